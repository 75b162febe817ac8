//! Which scenario finds which planted bug, or which other rules make it harmless.

use bellwether_core::election::Plant;

/// What is expected of a planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// This scenario finds it.
    FoundIn(&'static str),
    /// No scenario can: another rule keeps the promise. The argument is in `docs/proof/model.md`; this scenario, which reaches the
    /// bug, closes clean with it planted.
    Harmless(&'static str),
    /// It is a mistake of the shell around `step`, which the model does not have: the simulator finds it.
    Simulated,
    /// It takes more faults than any scenario has; `tests/counterexamples.rs` plays them.
    Played,
}

/// What is expected of this one.
pub fn expected(plant: Plant) -> Expected {
    use Expected::{FoundIn, Harmless, Played, Simulated};
    use Plant::*;
    match plant {
        WritesWithoutVersion | RenewalFromResponse | PromisesRevive | NameIsTenure | OwnNameTrusted => FoundIn("pair"),
        RemovalCountedEarly | PromiseFromReceipt | GrantWithoutRequest => FoundIn("pair"),
        CampaignWithoutWait | CampaignDespitePromise | CampaignWhileNoMember | WaitNotRestarted => FoundIn("pair"),
        LeaseShorterThanPromise | DamageIgnored | RecoveryWithoutAll | NoDriftMargin | LapseIgnored => FoundIn("pair"),
        MajorityOfPromises => FoundIn("trio"),
        WritesRetried | AdditionCountedLate | OksOfEarlierLives => FoundIn("joining"),
        TenureKeptAfterHandover | HandoverBeforeStop => FoundIn("switchover"),
        VolumeTakenTwice => FoundIn("pair"),
        EmptyCopyCounted | IdentityByName | QuorumIgnored | ShorterLogWins => FoundIn("quorum"),
        JointStepIgnored | OldVotersForgotten | FlushNotAwaited | FormerLeaderForAll => FoundIn("quorum"),
        VotersBeforeRecord => FoundIn("voters"),
        ForceWithoutWait => FoundIn("forced-damaged"),
        ForceForEver => FoundIn("given-up"),
        RefusalOverridden => Played,
        HistoryOfEarlierTerm | SameLeaderNotCompared | EarlierFollowerCounted | LaterTermNotKept => Simulated,
        EarlierEditionTaken => FoundIn("put-back"),
        HandoverToAnybody => FoundIn("handover"),
        OksAfterSteppingDown | HigherTermIgnored | LeaderGrants => Harmless("pair-late"),
        PromiseWhileCampaigning | LowerTermPromised | AdmissionBeforePromise => Harmless("pair-late"),
        MembersOutOfOrder => Harmless("pair"),
        VoterRemoved | LastVoterDropped => Harmless("quorum"),
    }
}
