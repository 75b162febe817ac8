//! Decides which physical replication slots the primary creates and which it drops.
//!
//! From: the cluster's instances and the slots that exist. Never: drops a slot that is in use, or one whose name isn't ours
//! (a user's own tools have slots too).

use std::collections::BTreeSet;

use bellwether_api::names::Names;

/// Slots of ours begin with this.
const PREFIX: &str = "bellwether_";

/// A slot that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its name.
    pub name: String,
    /// Whether somebody streams from it.
    pub active: bool,
}

/// What to do about slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotChanges {
    /// To create.
    pub create: Vec<String>,
    /// To drop.
    pub drop: Vec<String>,
}

/// The name of an instance's slot: by serial, because PostgreSQL allows neither `-` nor more than 63 characters.
pub fn slot_name(names: &Names, instance: &str) -> Option<String> {
    names.serial(instance).map(|serial| format!("{PREFIX}{serial}"))
}

/// What to create and drop, so that each of `instances` other than `me` has its slot and nobody else holds WAL back.
pub fn changes(names: &Names, instances: &[String], me: &str, existing: &[Slot]) -> SlotChanges {
    let wanted: BTreeSet<String> =
        instances.iter().filter(|instance| *instance != me).filter_map(|instance| slot_name(names, instance)).collect();
    let there: BTreeSet<&str> = existing.iter().map(|slot| slot.name.as_str()).collect();
    SlotChanges {
        create: wanted.iter().filter(|slot| !there.contains(slot.as_str())).cloned().collect(),
        drop: existing
            .iter()
            .filter(|slot| is_ours(&slot.name) && !slot.active && !wanted.contains(&slot.name))
            .map(|slot| slot.name.clone())
            .collect(),
    }
}

fn is_ours(slot: &str) -> bool {
    slot.strip_prefix(PREFIX).is_some_and(|serial| !serial.is_empty() && serial.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(instances: &[&str], existing: &[(&str, bool)]) -> SlotChanges {
        let instances: Vec<String> = instances.iter().map(|name| (*name).to_owned()).collect();
        let existing: Vec<Slot> =
            existing.iter().map(|(name, active)| Slot { name: (*name).to_owned(), active: *active }).collect();
        changes(&Names::of("o"), &instances, "o-1", &existing)
    }

    #[test]
    fn every_other_instance_gets_a_slot() {
        assert_eq!(decide(&["o-1", "o-2", "o-3"], &[("bellwether_2", false)]).create, ["bellwether_3"]);
    }

    #[test]
    fn the_slot_of_an_instance_that_left_is_dropped() {
        assert_eq!(decide(&["o-1"], &[("bellwether_3", false)]).drop, ["bellwether_3"]);
    }

    #[test]
    fn a_slot_in_use_stays() {
        assert_eq!(decide(&["o-1"], &[("bellwether_3", true)]), SlotChanges::default());
    }

    #[test]
    fn a_users_slot_stays() {
        for name in ["debezium", "bellwether_", "bellwether_cdc", "xbellwether_1"] {
            assert_eq!(decide(&["o-1"], &[(name, false)]), SlotChanges::default(), "{name}");
        }
    }

    #[test]
    fn a_second_look_changes_nothing() {
        assert_eq!(decide(&["o-1", "o-2"], &[("bellwether_2", true)]), SlotChanges::default());
    }
}
