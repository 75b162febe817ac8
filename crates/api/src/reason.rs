//! Why a condition is what it is. Each reason is the file name of a runbook in `docs/runbooks/`.
//!
//! Never: a reason renamed or given a second meaning, because alerts and other people's scripts match on it.

use serde::{Deserialize, Serialize};

/// Makes the enum, its list and its words from one list, so that a reason can't be left out of the documentation.
macro_rules! reasons {
    ($($(#[doc = $meaning:literal])+ $name:ident,)+) => {
        /// The reason of a condition: an enum, because code, alerts and runbooks depend on it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Reason {
            $($(#[doc = $meaning])+ $name,)+
        }

        impl Reason {
            /// Every reason, for tests and documentation.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// What it means, in a sentence.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($meaning,)+).trim_ascii(),)+
                }
            }
        }
    };
}

reasons! {
    /// Everything asked for is there and works.
    AsSpecified,
    /// Objects that the cluster needs are being created.
    Provisioning,
    /// The first instance is initialising its database.
    Bootstrapping,
    /// The first instance is restoring the database from an object store.
    Restoring,
    /// What the database is to be restored from is not there; the message says which and why.
    RecoverySourceMissing,
    /// The database can't be restored to where the spec says; the message says what can be reached. Nothing was touched.
    RecoveryTargetUnreachable,
    /// The restore of the database ended with an error. It is not begun again by itself.
    RecoveryFailed,
    /// Volumes of an earlier cluster of this name hold a database, where one is to be restored.
    VolumesInTheWay,
    /// Instances are copying their data or catching up.
    Joining,
    /// An instance is restarting.
    Restarting,
    /// A change that needs a restart is being rolled out, one instance at a time.
    RollingOut,
    /// A rollout stopped, because an instance did not come back as the spec now has it.
    RolloutStalled,
    /// Somebody paused the cluster: no rollout and no scale-down begins a new step.
    Paused,
    /// No instance accepts writes.
    NoPrimary,
    /// Commits wait, because too few standbys stream to acknowledge them. Reads work.
    NoSynchronousStandby,
    /// A volume is full. On a primary writes are refused, a standby receives nothing; reads work.
    VolumeFull,
    /// The volume behind an instance's claim is gone.
    VolumeLost,
    /// A pod is to be gone, and its node does not say that it is.
    NodeLost,
    /// A volume is smaller than the spec asks for, and is being made larger.
    VolumeGrowing,
    /// A volume is smaller than the spec asks for, and its storage does not make it larger.
    VolumeNotGrown,
    /// An instance is down or doesn't stream.
    ReplicaUnhealthy,
    /// PostgreSQL on an instance is stopped because a person wants it so.
    Fenced,
    /// An instance was made to lead by force; acknowledged commits may be lost.
    ForcedFailover,
    /// A pod's image can't be had.
    ImageUnavailable,
    /// A pod can't be placed on a node.
    Unschedulable,
    /// A pod's container keeps failing.
    InstanceCrashing,
    /// The spec has a value that we can't act on; the message names the field and the fix.
    InvalidSpec,
    /// Volumes under this name hold another database.
    SystemIdentifierMismatch,
    /// Volumes under this name are there, but which of them led can't be told.
    AdoptionAmbiguous,
    /// A volume claim under this name allows several nodes to write to it.
    SharedVolume,
    /// Volumes of a deleted cluster of this name are still being removed.
    WaitingForVolumes,
    /// A field was accepted but isn't acted on by this release.
    NotYetActedOn,
    /// The API server refused a write; the message says which and why.
    ApiRefused,
    /// All instances are on one node.
    SharedFailureDomain,
    /// The log does not get into the object store, or nobody says that it does.
    ArchiveFailing,
    /// The last backup failed.
    BackupFailed,
    /// There is an object store, and no backup in it yet.
    NoBackup,
    /// No backup has been restored and found good yet.
    NoVerifiedBackup,
    /// A backup was restored, and it is none; or it could not be restored.
    VerificationFailed,
    /// The newest backup that was restored and found good is older than the schedule says.
    VerifiedBackupOld,
    /// Backups are not verified, because the spec says so.
    VerificationOff,
    /// Retention is carried out, but nobody knows what the archive is worth: no backup was verified, or none for long, or one can't be understood.
    RetentionHeld,
    /// What retention removes can't be removed from the object store, or nobody says that it is.
    RetentionFailing,
    /// The cluster is being deleted.
    Deleting,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_written_as_it_is_named_and_says_what_it_means() {
        assert_eq!(Reason::NoPrimary.to_string(), "NoPrimary");
        assert_eq!(serde_json::to_value(Reason::NoPrimary).expect("JSON"), "NoPrimary");
        assert_eq!(Reason::NoPrimary.meaning(), "No instance accepts writes.");
    }
}
