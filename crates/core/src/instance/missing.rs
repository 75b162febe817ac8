//! Decides whether a standby has to be copied anew, because its leader no longer has the log that its own goes on with.
//!
//! From: when its receiver complained about that, and how far it has replayed. Never: on one complaint, which a leader that starts may cause; or while
//! anything is replayed.

use std::time::Duration;

use crate::wal::Lsn;

/// For how long nothing may have been replayed, with complaints all the while.
pub const LASTS: Duration = Duration::from_secs(10);
/// A receiver tries again after five seconds at most: one that has not complained for this long may have what it needs.
pub const FRESH: Duration = Duration::from_secs(8);

/// A standby's complaints over time.
#[derive(Clone, Debug, Default)]
pub struct Missing {
    since: Option<(Duration, Option<Lsn>)>,
}

impl Missing {
    /// One look at it: how far it has replayed, and when its receiver last said that the leader has removed what it asks for. Answers whether waiting
    /// is in vain.
    pub fn observe(&mut self, replayed: Option<Lsn>, complained: Option<Duration>, now: Duration) -> bool {
        let complains = complained.is_some_and(|at| now.saturating_sub(at) <= FRESH);
        match self.since {
            _ if !complains => self.since = None,
            Some((since, still)) if still == replayed => return now.saturating_sub(since) >= LASTS,
            _ => self.since = Some((now, replayed)),
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Looks once a second; answers the second in which waiting is in vain.
    fn in_vain(replayed: impl Fn(u32) -> u64, complains: impl Fn(u32) -> bool) -> Option<u32> {
        let (mut missing, mut complained) = (Missing::default(), None);
        (0..60).find(|second| {
            let now = SECOND * *second;
            complained = if complains(*second) { Some(now) } else { complained };
            missing.observe(Some(Lsn(replayed(*second))), complained, now)
        })
    }

    #[test]
    fn a_leader_that_has_removed_what_is_asked_for_is_not_asked_for_ever() {
        assert_eq!(in_vain(|_| 7, |_| true), Some(10));
        assert_eq!(in_vain(|_| 7, |second| second % 5 == 0), Some(10), "with PostgreSQL's own pause between attempts");
    }

    #[test]
    fn one_complaint_is_none() {
        assert_eq!(in_vain(|_| 7, |second| second == 3), None);
    }

    #[test]
    fn nothing_is_given_up_while_something_arrives() {
        assert_eq!(in_vain(u64::from, |_| true), None);
        assert_eq!(in_vain(|second| u64::from(second.min(20)), |_| true), Some(30));
    }
}
