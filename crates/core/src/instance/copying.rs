//! Decides whether a copy of the leader's database that is under way goes on.
//!
//! From: whom it comes from, whom the Lease names, and for how long nothing has come. Never: a copy that goes on from one who leads no more; it
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
