//! Decides whether a verification that failed says something of its backup.
//!
//! A store that does not answer, a node without room and a server that is ended from outside are nobody's proof of anything. Never: a backup called bad for
//! those; or one that is damaged, incomplete or another's excused.

use super::VerifyError;
use crate::base::protocol::ProtocolError;
use crate::restore::RestoreError;
use crate::store::StoreError;
use crate::wal::WalError;

/// What PostgreSQL and its programs say when it is the machine.
const OF_THE_MACHINE: [&str; 4] =
    ["No space left on device", "out of memory", "Cannot allocate memory", "could not resize shared memory"];

impl VerifyError {
    /// Whether the backup is what is wrong. Otherwise the same may succeed elsewhere, or later.
    pub fn is_the_backup_s(&self) -> bool {
        match self {
            Self::Restore(error) => match error {
                RestoreError::Store(error) => of_store(error),
                RestoreError::Damaged { .. } | RestoreError::Incomplete { .. } => true,
                RestoreError::NotEmpty { .. }
                | RestoreError::Relative { .. }
                | RestoreError::NoSuchTablespace { .. }
                | RestoreError::Io { .. }
                | RestoreError::Aborted { .. } => false,
            },
            Self::Archive { cause, .. } => match cause {
                WalError::Store(error) => of_store(error),
                WalError::Foreign { .. } | WalError::Damaged { .. } => true,
                WalError::Io { .. } | WalError::GivenUp { .. } => false,
            },
            Self::Finding { finding, .. } | Self::NotRecovered { finding } | Self::NotStopped { finding } => {
                !OF_THE_MACHINE.iter().any(|words| finding.contains(words))
            }
            Self::NotReached { .. } | Self::OtherDatabase { .. } | Self::Query { .. } => true,
            Self::Protocol(error) => matches!(error, ProtocolError::Server { .. }),
            Self::Control(_) | Self::Wal(_) | Self::Io { .. } | Self::Deadline { .. } => false,
        }
    }
}

/// Only what is plainly not there is missing from a backup.
fn of_store(error: &StoreError) -> bool {
    match error {
        StoreError::Missing { .. } | StoreError::Conflict { .. } => true,
        StoreError::Refused { .. }
        | StoreError::NoStore { .. }
        | StoreError::Failed { .. }
        | StoreError::Resting { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(error: StoreError) -> bool {
        VerifyError::from(RestoreError::from(error)).is_the_backup_s()
    }

    #[test]
    fn an_object_that_is_not_there_is_the_backup_s_fault_and_a_store_that_does_not_answer_is_not() {
        let (store, key) = ("s3://b".to_owned(), "base/x/pack-00000.tar.zst".to_owned());
        assert!(of(StoreError::Missing { store: store.clone(), key: key.clone() }));
        let (what, message) = ("get", "timed out".to_owned());
        assert!(!of(StoreError::Failed { store: store.clone(), what, key: key.clone(), message: message.clone() }));
        assert!(!of(StoreError::Refused { store, what, key, message }));
    }

    #[test]
    fn a_full_volume_is_no_finding() {
        let finding = |finding: &str| VerifyError::NotRecovered { finding: finding.to_owned() };
        assert!(!finding("FATAL: could not write to file: No space left on device").is_the_backup_s());
        assert!(finding("FATAL: could not locate a valid checkpoint record").is_the_backup_s());
    }
}
