//! Decides which physical replication slots the primary creates and which it drops.
//!
//! From: the slots that the cluster's instances need and those that exist. Never: drops a slot that is in use, or one whose
//! name isn't ours (a user's own tools have slots too).

use std::collections::BTreeSet;

/// A slot that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its name.
    pub name: String,
    /// Who made it, by its name.
    pub owner: SlotOwner,
    /// Whether somebody streams from it.
    pub active: bool,
}

/// Who made a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotOwner {
    /// We, for an instance.
    Bellwether,
    /// A user, for something of theirs.
    User,
}

/// What to do about slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotChanges {
    /// To create.
    pub create: Vec<String>,
    /// To drop.
    pub drop: Vec<String>,
}

/// What to create and drop, so that each slot in `wanted` is there and no instance that left holds WAL back.
pub fn changes(wanted: &BTreeSet<String>, existing: &[Slot]) -> SlotChanges {
    let there: BTreeSet<&str> = existing.iter().map(|slot| slot.name.as_str()).collect();
    SlotChanges {
        create: wanted.iter().filter(|slot| !there.contains(slot.as_str())).cloned().collect(),
        drop: existing
            .iter()
            .filter(|slot| slot.owner == SlotOwner::Bellwether && !slot.active && !wanted.contains(&slot.name))
            .map(|slot| slot.name.clone())
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(name: &str, active: bool) -> Slot {
        Slot { name: name.to_owned(), owner: SlotOwner::Bellwether, active }
    }
    fn decide(wanted: &[&str], existing: &[Slot]) -> SlotChanges {
        changes(&wanted.iter().map(|name| (*name).to_owned()).collect(), existing)
    }

    #[test]
    fn every_other_instance_gets_a_slot() {
        assert_eq!(decide(&["bw_o_2", "bw_o_3"], &[ours("bw_o_2", false)]).create, ["bw_o_3"]);
    }

    #[test]
    fn the_slot_of_an_instance_that_left_is_dropped() {
        assert_eq!(decide(&[], &[ours("bw_o_3", false)]).drop, ["bw_o_3"]);
    }

    #[test]
    fn a_slot_in_use_stays() {
        assert_eq!(decide(&[], &[ours("bw_o_3", true)]), SlotChanges::default());
    }

    #[test]
    fn a_users_slot_stays() {
        let debezium = Slot { name: "debezium".to_owned(), owner: SlotOwner::User, active: false };
        assert_eq!(decide(&[], &[debezium]), SlotChanges::default());
    }

    #[test]
    fn a_second_look_changes_nothing() {
        assert_eq!(decide(&["bw_o_2"], &[ours("bw_o_2", true)]), SlotChanges::default());
    }
}
