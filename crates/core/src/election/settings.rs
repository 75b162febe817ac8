//! The timings of the election, each with its argument, and the conditions between them that the proof needs.

use std::hash::{Hash, Hasher};

use super::types::Span;

/// What durability was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Durability {
    /// Commits wait for a quorum of voters; the last voter is never dropped.
    Quorum,
    /// As `Quorum` while somebody streams, else commits don't wait, and it is said.
    Preferred,
    /// Commits don't wait.
    Async,
}

/// The timings. Those that others depend on travel: D in each request (E8), L in the Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Between two rounds of requests: a lost answer costs half a second of a promise of three.
    pub ask_every: Span,
    /// D. Four lost rounds in a row end it, or an agent that does not run for two seconds: while every connection, core
    /// and the disk were busy it came nowhere near that (docs/proof/failover.md). More would prolong every failover from a lost node.
    pub promise: Span,
    /// L. At least D (E11), and long enough for two attempts at a renewal after the first timed out.
    pub lease: Span,
    /// Between two renewals, while they are needed: L less one timeout leaves room for two.
    pub renew_every: Span,
    /// δ: how much two clocks may disagree over L, and then some. 0.1 s in 6 s is 1.6 %; quartz is 0.01 %, and a kernel slews by
    /// 0.05 %. The rest pays for timers that fire late.
    pub drift: Span,
    /// What an immediate stop of PostgreSQL may take. Tenure is given up this much before it ends.
    pub stop_budget: Span,
    /// What the stop before a hand-over may take. A process that waits for a disk can't be killed; then tenure lapses.
    pub stop_within: Span,
    /// The same for a shutdown in order, as a switchover begins.
    pub shut_down_within: Span,
    /// The oldest promise's age at which renewing starts: two rounds were lost, or a slow network answers the second late. What is left
    /// of tenure then is enough for an API server that takes a second.
    pub renew_after: Span,
    /// How long a candidate waits for the answers to its poll: a round trip, and a slow disk at the other end.
    pub poll: Span,
    /// How long a leader whose PostgreSQL is down waits for the answers to its own: starting again in place takes longer than a slow
    /// standby does, and the tenure that it needs for that is kept.
    pub last_poll: Span,
    /// How long a candidate leaves a better one the first move, and waits before it tries again.
    pub defer: Span,
    /// Silence after which commits no longer count on a voter.
    pub drop_voter_after: Span,
    /// Silence after which a member is removed, so that the rest goes back to zero writes (E15). Longer than a pod's restart.
    pub remove_after: Span,
    /// Silence of every voter after which a primary under `quorum` lets the others try: no commit of it can be acknowledged.
    pub cut_off_after: Span,
    /// How long one that stood back leaves the others the field. More than L + D, so that their campaign is possible.
    pub stand_back: Span,
    /// How long the old primary waits for the target of a hand-over before it resumes.
    pub resume_after: Span,
    /// What was asked for.
    pub durability: Durability,
    /// A bug to prove that the exploration finds it. Exists only under the feature `planted`.
    #[cfg(feature = "planted")]
    pub planted: Option<super::Plant>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            ask_every: Span(500),
            promise: Span(3_000),
            lease: Span(6_000),
            renew_every: Span(2_000),
            drift: Span(100),
            stop_budget: Span(500),
            stop_within: Span(3_000),
            shut_down_within: Span(15_000),
            renew_after: Span(1_250),
            poll: Span(300),
            last_poll: Span(2_000),
            defer: Span(400),
            drop_voter_after: Span(10_000),
            remove_after: Span(60_000),
            cut_off_after: Span(10_000),
            stand_back: Span(15_000),
            resume_after: Span(2_000),
            durability: Durability::Quorum,
            #[cfg(feature = "planted")]
            planted: None,
        }
    }
}

/// Settings under which the promise would not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsound {
    /// A restarted agent would campaign while its forgotten promise still keeps another in office (E11).
    #[error(
        "the lease lasts {lease} ms, less than a promise of {promise} ms: a restarted member would break its promise"
    )]
    LeaseShorterThanPromise {
        /// L.
        lease: u64,
        /// D.
        promise: u64,
    },
    /// Tenure would end before the next round of requests could extend it.
    #[error(
        "a promise of {promise} ms less drift and stop budget does not outlive the {renew_after} ms after which renewing starts"
    )]
    PromiseTooShort {
        /// D.
        promise: u64,
        /// When renewing starts.
        renew_after: u64,
    },
    /// Whoever stands back would be first again.
    #[error("standing back for {stand_back} ms leaves the others no time: it must exceed lease and promise together")]
    StandBackTooShort {
        /// How long one stands back.
        stand_back: u64,
    },
}

impl Settings {
    /// Refuses settings under which the promise would not hold.
    pub fn check(&self) -> Result<(), Unsound> {
        if self.lease < self.promise {
            return Err(Unsound::LeaseShorterThanPromise { lease: self.lease.0, promise: self.promise.0 });
        }
        if self.promise.0 <= self.drift.0 + self.stop_budget.0 + self.renew_after.0 {
            return Err(Unsound::PromiseTooShort { promise: self.promise.0, renew_after: self.renew_after.0 });
        }
        if self.stand_back.0 <= self.lease.0 + self.promise.0 {
            return Err(Unsound::StandBackTooShort { stand_back: self.stand_back.0 });
        }
        Ok(())
    }
}

/// Settings don't change during a run, so they tell no two states of it apart.
impl Hash for Settings {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}
