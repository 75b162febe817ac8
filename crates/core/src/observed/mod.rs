//! Everything that the plan looks at.
//!
//! Facts are known, absent or unknown: a list that is not complete can show what is there, but never that something is not.
//! Contents of Secrets are not here at all, so no log line and no panic message can carry them.

mod backup;
mod pod;
mod read;
mod source;
mod verifier;
mod volume;

use std::collections::BTreeMap;
use std::sync::Arc;

use bellwether_api::names::Names;
use bellwether_api::v1::PostgresCluster;
use jiff::Timestamp;
use serde_json::Value;

pub use backup::Backup;
pub use pod::{Pod, PodPhase, Trouble};
pub use read::{Raw, Readings, observe, observe_again};
pub use source::{RawSource, Source};
pub use verifier::{Ended, Verifier};
pub use volume::{Growth, Volume, VolumeRole};

use crate::contract::{InstanceConfig, Leader};
use crate::fact::Fact;
use crate::force;
use crate::object::Kind;
use crate::wal::SystemIdentifier;

/// The world around one cluster.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The cluster's namespace.
    pub namespace: String,
    /// What its children are called.
    pub names: Names,
    /// The cluster itself. Absent only after a live read said so.
    pub cluster: Fact<PostgresCluster>,
    /// Its pods.
    pub pods: Listing<Pod>,
    /// Pods that verify its backups.
    pub verifiers: Listing<Verifier>,
    /// Its volumes, those of an earlier cluster of this name included.
    pub volumes: Listing<Volume>,
    /// Its Secrets, without contents.
    pub secrets: Listing<Secret>,
    /// The backups that name it, those of an earlier cluster of this name included.
    pub backups: Listing<Backup>,
    /// Its Lease.
    pub lease: Fact<Lease>,
    /// The configuration in the ConfigMap, where there is one that can be read.
    pub config: Fact<InstanceConfig>,
    /// Everything else, as the API server has it.
    pub objects: BTreeMap<Kind, Listing<Arc<Value>>>,
    /// Which edition of the Secret that the user named for the owner's password is there, and has it: its UID and version. Absent when it
    /// doesn't, or none is named.
    pub owner_password: Fact<String>,
    /// What a cluster without a database is to be restored from.
    pub source: Source,
    /// Objects that could not be decoded, with why.
    pub unreadable: Vec<String>,
}

/// The objects of one kind.
#[derive(Clone, Debug)]
pub struct Listing<T> {
    /// Whether everything there is has been seen.
    pub complete: bool,
    /// What has been seen, by name.
    pub items: BTreeMap<String, T>,
}

impl<T> Default for Listing<T> {
    /// Nothing has been seen, which is not "there is nothing".
    fn default() -> Self {
        Self { complete: false, items: BTreeMap::new() }
    }
}

impl<T> Listing<T> {
    /// What is known of the object called `name`.
    pub fn get(&self, name: &str) -> Fact<&T> {
        match self.items.get(name) {
            Some(item) => Fact::Known(item),
            None if self.complete => Fact::Absent,
            None => Fact::Unknown,
        }
    }
}

/// A Secret without its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secret {
    /// Keys that have a value.
    pub keys: Vec<String>,
    /// When what is in it expires.
    pub not_after: Option<Timestamp>,
    /// When the authority that issued it expires: which authority it was.
    pub issuer: Option<Timestamp>,
    /// The UID of its controller.
    pub owner: Option<String>,
    /// The hash of what was last applied.
    pub applied: Option<String>,
    /// The edition of the user's own Secret that its password was taken from.
    pub password_from: Option<String>,
}

/// Who leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its version.
    pub resource_version: String,
    /// The UID of its controller.
    pub owner: Option<String>,
    /// The leader, once there was one.
    pub leader: Option<Leader>,
    /// The identifier of the database, once it was initialised.
    pub system_identifier: Option<SystemIdentifier>,
    /// `leaseTransitions`.
    pub term: Option<u64>,
    /// When it was last written, by the clock of whoever did.
    pub renewed: Option<Timestamp>,
    /// The identities of all members of the election; nothing when that was not said or can't be read.
    pub members: Option<Vec<String>>,
    /// The last time that somebody led by force.
    pub forced: Option<force::Record>,
    /// Whom somebody wants as primary, as long as nobody followed that.
    pub switchover: Option<String>,
    /// When the operator asked for it; nothing when somebody else did.
    pub switchover_asked: Option<Timestamp>,
}

impl Observed {
    /// The Lease, when it was seen and is not that of an earlier cluster which the garbage collector has yet to remove.
    pub fn own_lease(&self) -> Option<&Lease> {
        let uid = self.cluster.known().and_then(|cluster| cluster.metadata.uid.as_ref());
        self.lease.known().filter(|lease| uid.is_none() || lease.owner.is_none() || lease.owner.as_ref() == uid)
    }

    /// The instance that the Lease names, when the Lease was seen and names one.
    pub fn leader(&self) -> Option<&str> {
        self.own_lease()?.leader.as_ref().map(|leader| leader.instance.as_str())
    }

    /// What is known of an object that has no type of its own here.
    pub fn object(&self, kind: Kind, name: &str) -> Fact<&Arc<Value>> {
        self.objects.get(&kind).map_or(Fact::Unknown, |listing| listing.get(name))
    }

    /// Whether pods, volumes and Lease were seen: what must be before anything is removed.
    pub fn sees_instances(&self) -> bool {
        self.pods.complete && self.volumes.complete && !self.lease.is_unknown()
    }

    /// The kinds that were not seen completely; nothing may be removed because of what is missing among them.
    pub fn unseen(&self) -> Vec<String> {
        let typed = [
            (Kind::Pod, self.pods.complete),
            (Kind::PersistentVolumeClaim, self.volumes.complete),
            (Kind::Secret, self.secrets.complete),
            (Kind::Backup, self.backups.complete),
            (Kind::Lease, !self.lease.is_unknown()),
        ];
        let plain = self.objects.iter().map(|(kind, listing)| (*kind, listing.complete));
        typed.into_iter().chain(plain).filter(|(_, seen)| !seen).map(|(kind, _)| kind.to_string()).collect()
    }
}
