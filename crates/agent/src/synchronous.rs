//! Whom commits wait for, as PostgreSQL's configuration has it.
//!
//! Standbys go by their identity, not by their name: a volume that is new is another voter, whatever its pod is called.

use bellwether_core::election::Voters;
use bellwether_postgres::conf::Synchronous;

/// Who never comes. A standby's configuration lets commits wait for it, so that one which is promoted acknowledges nothing before it
/// has read whom to wait for: the server keeps a flag of its own whether anybody is waited for, and this way it is set already.
const NOBODY: &str = "nobody";

/// A primary's.
pub fn setting(voters: Option<&Voters>) -> Synchronous {
    match voters {
        None => Synchronous::Off,
        Some(voters) => Synchronous::Any {
            quorum: voters.needed(),
            voters: voters.members().iter().map(|id| id.to_string()).collect(),
        },
    }
}

/// A standby's.
pub fn of_standby() -> Synchronous {
    Synchronous::Any { quorum: 1, voters: vec![NOBODY.to_owned()] }
}
