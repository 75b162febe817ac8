//! Decides how the agents let an instance go that is on its way out (`leaving` in their configuration): it falls silent.
//!
//! From: who leaves, and what it says. The election removes a member that is silent, first from the voters, then from the members, each by the leader's own write (E15).
//! So of one that leaves nothing is heard that would keep it in, as if that was lost on the way: any message may be. Never: an answer to a
//! poll left unheard, or a question left unasked. Until it is removed it may hold an acknowledged commit that nobody else does.

use std::collections::BTreeSet;

use crate::contract::InstanceConfig;
use crate::election::{Message, Settings, Span};

/// Who is on its way out.
pub fn leaving(config: &InstanceConfig) -> BTreeSet<String> {
    config.leaving.iter().map(|leaving| leaving.instance.clone()).collect()
}

/// Whether this counts as lost when one says it that leaves: what keeps a member in are its promises, and who is no member gets in by knocking.
pub fn is_unheard(message: &Message) -> bool {
    match message {
        Message::Grant(_) | Message::Knock => true,
        Message::Ask(_) | Message::Refuse(_) | Message::Poll(_) | Message::Answer(_) | Message::Consent(_) => false,
    }
}

/// The settings while these leave: whoever is silent is a member for hardly longer than commits count on it. How soon it is removed is nothing that the proof
/// needs (`Settings::check`); that it is after it was dropped from the voters is what the exploration has, too. One that comes back is let in again.
pub fn settings(usual: Settings, leaving: &BTreeSet<String>) -> Settings {
    let soon = Span(usual.drop_voter_after.0 + usual.ask_every.0);
    let remove_after = if leaving.is_empty() { usual.remove_after } else { usual.remove_after.min(soon) };
    Settings { remove_after, ..usual }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::election::{Grant, Incarnation, RequestId};
    use crate::wal::Term;

    #[test]
    fn what_keeps_a_member_in_is_not_heard_and_what_its_log_says_is() {
        let (request, incarnation) = (RequestId(1), Incarnation(1));
        assert!(is_unheard(&Message::Grant(Grant { request, term: Term(1), incarnation, streaming: true })));
        assert!(is_unheard(&Message::Knock));
        assert!(!is_unheard(&Message::Refuse(None)));
    }

    #[test]
    fn who_leaves_is_dropped_from_the_voters_before_it_is_removed_and_settings_stay_sound() {
        let usual = Settings::default();
        assert_eq!(settings(usual, &BTreeSet::new()), usual);
        let sooner = settings(usual, &BTreeSet::from(["orders-3".to_owned()]));
        assert!(sooner.remove_after > usual.drop_voter_after && sooner.remove_after < usual.remove_after);
        assert_eq!((sooner.check(), Settings { remove_after: usual.remove_after, ..sooner }), (Ok(()), usual));
    }
}
