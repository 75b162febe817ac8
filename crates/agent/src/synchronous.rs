//! Whom commits wait for, as PostgreSQL's configuration has it.
//!
//! A standby goes by the identity of its volume, not by its name: a volume that is new is another voter, whatever its pod is called. And by the
//! term in which it follows: its agent has compared the logs then, and remembers whose WAL comes. One that is still connected, or again, to a
//! leader of which it has not heard that it leads a later term would rank what it gets as the earlier term's, and whoever has less of the
//! later one would be preferred to it ([why](../../../docs/adr/0020-a-standby-counts-in-the-term-that-it-follows.md)).

use bellwether_core::election::{MemberId, Voters};
use bellwether_core::wal::Term;
use bellwether_postgres::conf::Synchronous;

/// Who never comes. A standby's configuration lets commits wait for it, so that one which is promoted acknowledges nothing before it
/// has read whom to wait for: the server keeps a flag of its own whether anybody is waited for, and this way it is set already.
const NOBODY: &str = "nobody";

/// A primary's.
pub fn setting(voters: Option<&Voters>, term: Term) -> Synchronous {
    match voters {
        None => Synchronous::Off,
        Some(voters) => Synchronous::Any {
            quorum: voters.needed(),
            voters: voters.members().iter().map(|id| name(id, term)).collect(),
        },
    }
}

/// A standby's.
pub fn of_standby() -> Synchronous {
    Synchronous::Any { quorum: 1, voters: vec![NOBODY.to_owned()] }
}

/// What a standby calls itself that follows a leader of this term (`application_name`: 63 characters at most).
pub fn name(id: MemberId, term: Term) -> String {
    format!("{id}@{}", term.0)
}

/// Who calls itself this, if it follows in this very term.
pub fn follower(name: &str, term: Term) -> Option<MemberId> {
    let (id, of) = name.split_once('@')?;
    MemberId::from_uid(id).filter(|_| of == term.0.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standby_counts_in_the_term_that_it_follows_and_in_no_other() {
        let (id, term) = (MemberId(u128::MAX), Term(u64::MAX));
        assert_eq!(follower(&name(id, term), term), Some(id));
        assert!(name(id, term).len() < 64);
        for other in [name(id, Term(4)), id.to_string(), "orders-2-joining".into(), format!("{id}@05"), "@5".into()] {
            assert_eq!(follower(&other, Term(5)), None, "{other}");
        }
    }
}
