//! Identities as text, in files and messages: `bellwether_core::election` has no serialisation of its own.

use bellwether_core::election::{LeaseUid, MemberId, Members};
use serde::{Deserialize, Serialize};

/// A UID as Kubernetes writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uid(pub u128);

impl Serialize for Uid {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&MemberId(self.0))
    }
}

impl<'de> Deserialize<'de> for Uid {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bad = || serde::de::Error::custom(format_args!("{text:?} is not a UID"));
        MemberId::from_uid(&text).map(Self::from).ok_or_else(bad)
    }
}

impl From<MemberId> for Uid {
    fn from(id: MemberId) -> Self {
        Self(id.0)
    }
}

impl From<Uid> for MemberId {
    fn from(uid: Uid) -> Self {
        Self(uid.0)
    }
}

impl From<LeaseUid> for Uid {
    fn from(uid: LeaseUid) -> Self {
        Self(uid.0)
    }
}

impl From<Uid> for LeaseUid {
    fn from(uid: Uid) -> Self {
        Self(uid.0)
    }
}

/// A set of members as a list.
pub fn list(members: &Members) -> Vec<Uid> {
    members.iter().map(Uid::from).collect()
}

/// A list as a set of members.
pub fn members(list: &[Uid]) -> Members {
    list.iter().copied().map(MemberId::from).collect()
}
