//! Bugs to plant, one at a time, to prove that the exploration finds them. Compiled only under the feature `planted`.

/// One bug, named after what is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Plant {
    /// E1: the Lease is written without naming a version.
    WritesWithoutVersion,
    /// E1: a write without an answer is sent again, and the second one's conflict is taken for the first's.
    WritesRetried,
    /// E2: a renewal counts from its response.
    RenewalFromResponse,
    /// E3: promises revive tenure that has lapsed.
    PromisesRevive,
    /// E4: the holder's name is taken for tenure.
    NameIsTenure,
    /// E4: a Lease that names this instance is taken at its word, without asking the others.
    OwnNameTrusted,
    /// E5: an addition counts from its commit.
    AdditionCountedLate,
    /// E5: a removal counts from its sending.
    RemovalCountedEarly,
    /// E6: whatever version arrives last is taken for the newest.
    MembersOutOfOrder,
    /// E7: an OK counts after stepping down, and for a lower term.
    OksAfterSteppingDown,
    /// E7: an OK to an earlier life is taken for one to this one's write.
    OksOfEarlierLives,
    /// E8: the leader counts a promise from the receipt of the grant.
    PromiseFromReceipt,
    /// E8: a grant counts for the newest round, whichever it answers.
    GrantWithoutRequest,
    /// E9: a campaign does not wait for the Lease to be unchanged for L.
    CampaignWithoutWait,
    /// E9: a campaign does not wait for the own promise.
    CampaignDespitePromise,
    /// E9: a campaign by one that is no member.
    CampaignWhileNoMember,
    /// E9: a change of version does not restart the wait.
    WaitNotRestarted,
    /// E10: tenure is kept after a consent.
    TenureKeptAfterHandover,
    /// E10: the hand-over does not wait for PostgreSQL to be gone.
    HandoverBeforeStop,
    /// E11: a restarted agent waits less than D.
    LeaseShorterThanPromise,
    /// E12: a leader goes on at the sight of a higher term.
    HigherTermIgnored,
    /// E12: a leader grants promises.
    LeaderGrants,
    /// E12: promises are given while an own campaign may still be committed.
    PromiseWhileCampaigning,
    /// E12: promises are given to lower terms.
    LowerTermPromised,
    /// E13: a pod made again under the same name is taken for the one before, though its volume comes from a backup.
    IdentityByName,
    /// E13: a volume is taken by a new pod while the process of the one before still runs.
    VolumeTakenTwice,
    /// E14: a Lease put back, or made again, is taken at its word.
    DamageIgnored,
    /// E14: a damaged Lease is taken without everybody's word.
    RecoveryWithoutAll,
    /// E15: an admission is sent before the newcomer promised.
    AdmissionBeforePromise,
    /// E15: a silent member is removed while commits may wait for it.
    VoterRemoved,
    /// E15: the last voter is dropped under quorum.
    LastVoterDropped,
    /// E16: a person's word counts for every version of the Lease and every term.
    ForceForEver,
    /// E16: silence counts as a yes at once.
    ForceWithoutWait,
    /// E16: a person's word overrides one who refuses.
    RefusalOverridden,
    /// No margin for drift.
    NoDriftMargin,
    /// A majority of promises is taken for all of them.
    MajorityOfPromises,
    /// PostgreSQL is not stopped when tenure ends, and the guard is not there.
    LapseIgnored,
    /// A candidate does not ask for enough voters.
    QuorumIgnored,
    /// A candidate in a joint step satisfies the new voters only.
    JointStepIgnored,
    /// A candidate ignores longer logs.
    ShorterLogWins,
    /// The old voters are dropped from the record at once.
    OldVotersForgotten,
    /// New voters are applied before they are recorded.
    VotersBeforeRecord,
    /// New voters are recorded before a quorum of them holds what was acknowledged.
    FlushNotAwaited,
    /// A hand-over chooses a standby without looking at its log.
    HandoverToAnybody,
    /// A voter whose copy is being made anew is counted as one that would know what was acknowledged.
    EmptyCopyCounted,
    /// A former leader's word is taken for what a later one acknowledged.
    FormerLeaderForAll,
    /// The shell: what a leader told of its log in an earlier term is taken for its history.
    HistoryOfEarlierTerm,
    /// The shell: who follows the same leader in a later term does not compare its log again.
    SameLeaderNotCompared,
    /// The shell: commits wait for whoever is connected, in whichever term it believes to follow.
    EarlierFollowerCounted,
    /// A Lease that was put back within its term is taken at its word.
    EarlierEditionTaken,
    /// The shell: a leader that goes on in a later term does not keep that a timeline it begins will be of that term.
    LaterTermNotKept,
}

impl Plant {
    /// Every one, with its sentence.
    pub const ALL: &[(Self, &str)] = &[
        (Self::WritesWithoutVersion, "E1: the Lease is written without naming a version."),
        (
            Self::WritesRetried,
            "E1: a write without an answer is sent again, and the second one's conflict is taken for the first's.",
        ),
        (Self::RenewalFromResponse, "E2: a renewal counts from its response."),
        (Self::PromisesRevive, "E3: promises revive tenure that has lapsed."),
        (Self::NameIsTenure, "E4: the holder's name is taken for tenure."),
        (Self::OwnNameTrusted, "E4: a Lease that names this instance is taken at its word, without asking the others."),
        (Self::AdditionCountedLate, "E5: an addition counts from its commit."),
        (Self::RemovalCountedEarly, "E5: a removal counts from its sending."),
        (Self::MembersOutOfOrder, "E6: whatever version arrives last is taken for the newest."),
        (Self::OksAfterSteppingDown, "E7: an OK counts after stepping down, and for a lower term."),
        (Self::OksOfEarlierLives, "E7: an OK to an earlier life is taken for one to this one's write."),
        (Self::PromiseFromReceipt, "E8: the leader counts a promise from the receipt of the grant."),
        (Self::GrantWithoutRequest, "E8: a grant counts for the newest round, whichever it answers."),
        (Self::CampaignWithoutWait, "E9: a campaign does not wait for the Lease to be unchanged for L."),
        (Self::CampaignDespitePromise, "E9: a campaign does not wait for the own promise."),
        (Self::CampaignWhileNoMember, "E9: a campaign by one that is no member."),
        (Self::WaitNotRestarted, "E9: a change of version does not restart the wait."),
        (Self::TenureKeptAfterHandover, "E10: tenure is kept after a consent."),
        (Self::HandoverBeforeStop, "E10: the hand-over does not wait for PostgreSQL to be gone."),
        (Self::LeaseShorterThanPromise, "E11: a restarted agent waits less than D."),
        (Self::HigherTermIgnored, "E12: a leader goes on at the sight of a higher term."),
        (Self::LeaderGrants, "E12: a leader grants promises."),
        (Self::PromiseWhileCampaigning, "E12: promises are given while an own campaign may still be committed."),
        (Self::LowerTermPromised, "E12: promises are given to lower terms."),
        (
            Self::IdentityByName,
            "E13: a pod made again under the same name is taken for the one before, though its volume comes from a backup.",
        ),
        (Self::VolumeTakenTwice, "E13: a volume is taken by a new pod while the process of the one before still runs."),
        (Self::DamageIgnored, "E14: a Lease put back, or made again, is taken at its word."),
        (Self::RecoveryWithoutAll, "E14: a damaged Lease is taken without everybody's word."),
        (Self::AdmissionBeforePromise, "E15: an admission is sent before the newcomer promised."),
        (Self::VoterRemoved, "E15: a silent member is removed while commits may wait for it."),
        (Self::LastVoterDropped, "E15: the last voter is dropped under quorum."),
        (Self::ForceForEver, "E16: a person's word counts for every version of the Lease and every term."),
        (Self::ForceWithoutWait, "E16: silence counts as a yes at once."),
        (Self::RefusalOverridden, "E16: a person's word overrides one who refuses."),
        (Self::NoDriftMargin, "No margin for drift."),
        (Self::MajorityOfPromises, "A majority of promises is taken for all of them."),
        (Self::LapseIgnored, "PostgreSQL is not stopped when tenure ends, and the guard is not there."),
        (Self::QuorumIgnored, "A candidate does not ask for enough voters."),
        (Self::JointStepIgnored, "A candidate in a joint step satisfies the new voters only."),
        (Self::ShorterLogWins, "A candidate ignores longer logs."),
        (Self::OldVotersForgotten, "The old voters are dropped from the record at once."),
        (Self::VotersBeforeRecord, "New voters are applied before they are recorded."),
        (Self::FlushNotAwaited, "New voters are recorded before a quorum of them holds what was acknowledged."),
        (Self::HandoverToAnybody, "A hand-over chooses a standby without looking at its log."),
        (
            Self::EmptyCopyCounted,
            "A voter whose copy is being made anew is counted as one that would know what was acknowledged.",
        ),
        (Self::FormerLeaderForAll, "A former leader's word is taken for what a later one acknowledged."),
        (
            Self::HistoryOfEarlierTerm,
            "The shell: what a leader told of its log in an earlier term is taken for its history.",
        ),
        (
            Self::SameLeaderNotCompared,
            "The shell: who follows the same leader in a later term does not compare its log again.",
        ),
        (
            Self::EarlierFollowerCounted,
            "The shell: commits wait for whoever is connected, in whichever term it believes to follow.",
        ),
        (Self::EarlierEditionTaken, "E14: a Lease that was put back within its term is taken at its word."),
        (
            Self::LaterTermNotKept,
            "The shell: a leader that goes on in a later term does not keep that a timeline it begins will be of that term.",
        ),
    ];

    /// Its name on a command line.
    pub fn name(self) -> String {
        format!("{self:?}")
    }
    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().map(|(plant, _)| *plant).find(|plant| plant.name() == name)
    }
}
