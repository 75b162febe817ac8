//! Decides from whom the leader's database is copied, and whether a copy that is under way goes on.
//!
//! From: who leads, whom else we are connected to, how many copies failed; whom the Lease names, and for how long nothing has come. Never: a copy that goes on from one who leads no more; it
//! would end in a log that parts from the leader's, and one who is frozen would be waited for until they thaw. Never: ended because
//! the Lease could not be read.

use std::time::Duration;

use crate::election::MemberId;

/// How long nothing may come. Before the first byte the leader makes a checkpoint, which takes minutes where much was written.
pub const SILENCE: Duration = Duration::from_secs(300);

/// Why a copy is ended before it is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Another leads.
    AnotherLeads,
    /// Nothing came for too long.
    Silence,
}

/// Copies that failed under one leader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failed {
    leader: Option<MemberId>,
    times: usize,
}

impl Failed {
    /// One more.
    pub fn again(self, leader: MemberId) -> Self {
        Self { leader: Some(leader), times: self.under(leader) + 1 }
    }
    fn under(self, leader: MemberId) -> usize {
        if self.leader == Some(leader) { self.times } else { 0 }
    }
}

/// Whom the next copy comes from: the leader; where copies failed, whoever may be at fault, each of the others in turn, and then the leader again.
pub fn source(leader: MemberId, others: &[MemberId], failed: Failed) -> MemberId {
    let turn = failed.under(leader) % (others.len() + 1);
    turn.checked_sub(1).and_then(|other| others.get(other)).copied().unwrap_or(leader)
}

/// Why a copy from `source` does not go on, if it doesn't. `holder` is whom the Lease names, where that is known.
pub fn ended(source: MemberId, holder: Option<MemberId>, silent: Duration) -> Option<Ended> {
    if holder.is_some_and(|holder| holder != source) {
        return Some(Ended::AnotherLeads);
    }
    (silent >= SILENCE).then_some(Ended::Silence)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: MemberId = MemberId(1);
    const MOMENT: Duration = Duration::from_secs(1);

    #[test]
    fn after_a_copy_that_failed_another_is_asked_and_then_the_leader_again() {
        let others = [MemberId(2), MemberId(3)];
        let mut failed = Failed::default();
        let mut asked = vec![];
        for _ in 0..4 {
            asked.push(source(SOURCE, &others, failed));
            failed = failed.again(SOURCE);
        }
        assert_eq!(asked, [SOURCE, MemberId(2), MemberId(3), SOURCE]);
        assert_eq!(source(SOURCE, &[], failed), SOURCE);
    }

    #[test]
    fn what_failed_under_another_leader_says_nothing_about_this_one() {
        let failed = Failed::default().again(SOURCE);
        assert_eq!(source(MemberId(2), &[SOURCE], failed), MemberId(2));
        assert_eq!(failed.again(MemberId(2)), Failed::default().again(MemberId(2)));
    }

    #[test]
    fn it_goes_on_while_its_source_leads_and_sends() {
        assert_eq!(ended(SOURCE, Some(SOURCE), MOMENT), None);
    }

    #[test]
    fn it_ends_when_another_leads() {
        assert_eq!(ended(SOURCE, Some(MemberId(2)), MOMENT), Some(Ended::AnotherLeads));
    }

    #[test]
    fn a_lease_that_cannot_be_read_ends_nothing() {
        assert_eq!(ended(SOURCE, None, MOMENT), None);
    }

    #[test]
    fn a_source_that_sends_nothing_for_minutes_is_given_up() {
        assert_eq!(ended(SOURCE, Some(SOURCE), SILENCE), Some(Ended::Silence));
    }
}
