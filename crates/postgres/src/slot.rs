//! What the replication slot of an instance is called.
//!
//! Must never happen: that two instances share a slot (one would lose its WAL), or that a slot of a user's is taken for one
//! of ours (we drop ours when an instance is gone).

use std::fmt;

/// PostgreSQL's limit for any name: `NAMEDATALEN - 1` bytes.
const MAX_LEN: usize = 63;
/// Slots that begin like this are ours; nobody else's are touched.
const PREFIX: &str = "bw_";

/// The name of a replication slot of ours.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotName(String);

/// Why an instance can't have a slot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "instance {instance:?} can't have a replication slot: use lower-case letters, digits and `-`, at most {} characters",
    MAX_LEN - PREFIX.len()
)]
pub struct NoSlotName {
    instance: String,
}

impl SlotName {
    /// The slot of an instance. `-` becomes `_`; no two instances meet, because `_` is not allowed in their names.
    pub fn of_instance(instance: &str) -> Result<Self, NoSlotName> {
        let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if instance.is_empty() || instance.len() > MAX_LEN - PREFIX.len() || !instance.bytes().all(allowed) {
            return Err(NoSlotName { instance: instance.to_owned() });
        }
        Ok(Self(format!("{PREFIX}{}", instance.replace('-', "_"))))
    }
    /// The name, if a slot by this name is one of ours.
    pub fn recognise(slot: &str) -> Option<Self> {
        slot.starts_with(PREFIX).then(|| Self(slot.to_owned()))
    }
    /// As PostgreSQL knows it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SlotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_has_a_slot_of_a_legal_name() {
        assert_eq!(SlotName::of_instance("orders-1").unwrap().as_str(), "bw_orders_1");
    }

    #[test]
    fn a_name_that_could_collide_or_overflow_is_refused() {
        for name in ["", "a_b", "Orders-1", "a.b", "ä", &"x".repeat(61)] {
            assert!(SlotName::of_instance(name).is_err(), "{name}");
        }
        assert_eq!(SlotName::of_instance(&"x".repeat(60)).unwrap().as_str().len(), MAX_LEN);
    }

    #[test]
    fn a_users_slot_is_not_ours() {
        assert_eq!(SlotName::recognise("debezium"), None);
    }
}
