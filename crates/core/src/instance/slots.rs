//! Decides which physical replication slots an instance creates, moves on and drops, whether it leads or follows: whoever leads next has
//! kept for every other what they still need.
//!
//! From: the instances that there should be, the slots that exist here, how far this instance is, and what the leader keeps for whom.
//! Never: drops or moves a slot that is in use, or one whose name isn't ours (a user's own tools have slots too); moves one on by a
//! position that is not known, or beyond what is here.

use std::collections::{BTreeMap, BTreeSet};

use crate::wal::Lsn;

/// A slot that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its name.
    pub name: String,
    /// Who made it, by its name.
    pub owner: SlotOwner,
    /// Whether somebody streams from it.
    pub active: bool,
    /// From where on it keeps WAL.
    pub keeps: Keeps,
}

/// Who made a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotOwner {
    /// We, for an instance.
    Bellwether,
    /// A user, for something of theirs.
    User,
}

/// What a slot keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// WAL from here on.
    From(Lsn),
    /// Nothing yet.
    Nothing,
    /// What it should have kept is gone (`max_slot_wal_keep_size`). Nobody can use it any more, not even for a new copy.
    Lost,
}

/// What this instance is, as far as slots are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place<'a> {
    /// Each slot moves with the standby that uses it.
    Leads,
    /// Nobody uses the slots here, so they are moved.
    Follows {
        /// The leader's slot here.
        leader: &'a str,
        /// What the leader keeps for the others, by slot. Empty: not said.
        kept: &'a BTreeMap<String, Lsn>,
        /// How far this instance has replayed.
        replayed: Option<Lsn>,
        /// Where its own last checkpoint would have it begin after a crash.
        redo: Option<Lsn>,
    },
}

/// What to do about slots, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotChanges {
    /// To drop.
    pub drop: Vec<String>,
    /// To create.
    pub create: Vec<String>,
    /// To move on, and to where.
    pub advance: Vec<(String, Lsn)>,
}

/// What to do, so that each slot in `wanted` is there and keeps what its instance needs, and no instance that left holds WAL back.
pub fn changes(wanted: &BTreeSet<String>, existing: &[Slot], place: Place<'_>) -> SlotChanges {
    let ours = || existing.iter().filter(|slot| slot.owner == SlotOwner::Bellwether && !slot.active);
    let of_no_use = |slot: &&Slot| !wanted.contains(&slot.name) || slot.keeps == Keeps::Lost;
    let drop: Vec<String> = ours().filter(of_no_use).map(|slot| slot.name.clone()).collect();
    let stays: BTreeSet<&str> =
        existing.iter().map(|slot| slot.name.as_str()).filter(|name| !drop.iter().any(|gone| gone == name)).collect();
    SlotChanges {
        create: wanted.iter().filter(|slot| !stays.contains(slot.as_str())).cloned().collect(),
        advance: ours()
            .filter(|slot| wanted.contains(&slot.name))
            .filter_map(|slot| Some((slot.name.clone(), onward(slot, place)?)))
            .collect(),
        drop,
    }
}

/// Where a slot that nobody uses moves on to, if it moves.
fn onward(slot: &Slot, place: Place<'_>) -> Option<Lsn> {
    let (Place::Follows { leader, kept, replayed, redo }, Keeps::From(from)) = (place, slot.keeps) else { return None };
    let needed = if slot.name == leader {
        // It has everything that is here. Should it come back as a standby with more, it needs what is after the last checkpoint that both
        // have, to be rewound; this one's own was that at the latest.
        redo?
    } else {
        *kept.get(&slot.name)?
    };
    let to = needed.min(replayed?);
    (to > from).then_some(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(name: &str, active: bool) -> Slot {
        Slot { name: name.to_owned(), owner: SlotOwner::Bellwether, active, keeps: Keeps::From(Lsn(10)) }
    }
    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }
    fn decide(wanted: &[&str], existing: &[Slot]) -> SlotChanges {
        changes(&names(wanted), existing, Place::Leads)
    }
    /// A standby of 1 that has replayed 50, with its last checkpoint at 40.
    fn follow(existing: &[Slot], kept: &[(&str, u64)]) -> SlotChanges {
        let kept = kept.iter().map(|(name, lsn)| ((*name).to_owned(), Lsn(*lsn))).collect();
        let place = Place::Follows { leader: "bw_o_1", kept: &kept, replayed: Some(Lsn(50)), redo: Some(Lsn(40)) };
        changes(&names(&["bw_o_1", "bw_o_3"]), existing, place)
    }

    #[test]
    fn every_other_instance_gets_a_slot() {
        assert_eq!(decide(&["bw_o_2", "bw_o_3"], &[ours("bw_o_2", false)]).create, ["bw_o_3"]);
        assert_eq!(follow(&[], &[]).create, ["bw_o_1", "bw_o_3"]);
    }

    #[test]
    fn the_slot_of_an_instance_that_left_is_dropped() {
        assert_eq!(decide(&[], &[ours("bw_o_3", false)]).drop, ["bw_o_3"]);
    }

    #[test]
    fn a_slot_in_use_stays() {
        assert_eq!(decide(&[], &[ours("bw_o_3", true)]), SlotChanges::default());
        let lost = Slot { keeps: Keeps::Lost, ..ours("bw_o_3", true) };
        assert_eq!(decide(&["bw_o_3"], &[lost]), SlotChanges::default());
    }

    #[test]
    fn a_users_slot_stays() {
        let debezium = Slot { owner: SlotOwner::User, ..ours("debezium", false) };
        assert_eq!(decide(&[], std::slice::from_ref(&debezium)), SlotChanges::default());
        let lost = Slot { keeps: Keeps::Lost, ..debezium };
        assert_eq!(decide(&[], &[lost]), SlotChanges::default());
    }

    #[test]
    fn a_second_look_changes_nothing() {
        assert_eq!(decide(&["bw_o_2"], &[ours("bw_o_2", true)]), SlotChanges::default());
        let moved = |name, to| Slot { keeps: Keeps::From(Lsn(to)), ..ours(name, false) };
        let there = [moved("bw_o_1", 40), moved("bw_o_3", 30)];
        assert_eq!(follow(&there, &[("bw_o_3", 30)]), SlotChanges::default());
    }

    #[test]
    fn a_slot_that_lost_what_it_kept_is_made_anew() {
        let lost = Slot { keeps: Keeps::Lost, ..ours("bw_o_2", false) };
        let changes = decide(&["bw_o_2"], &[lost]);
        assert_eq!((changes.drop, changes.create), (vec!["bw_o_2".to_owned()], vec!["bw_o_2".to_owned()]));
    }

    #[test]
    fn a_standby_keeps_for_another_what_the_leader_keeps_for_it() {
        let there = [ours("bw_o_1", false), ours("bw_o_3", false)];
        let moved = |lsn| vec![("bw_o_1".to_owned(), Lsn(40)), ("bw_o_3".to_owned(), Lsn(lsn))];
        assert_eq!(follow(&there, &[("bw_o_3", 30)]).advance, moved(30));
        assert_eq!(follow(&there, &[("bw_o_3", 99)]).advance, moved(50), "and no more than it has itself");
    }

    #[test]
    fn a_slot_moves_neither_back_nor_on_what_is_not_known_nor_under_who_uses_it() {
        let there = [Slot { keeps: Keeps::From(Lsn(45)), ..ours("bw_o_1", false) }, ours("bw_o_3", false)];
        assert_eq!(follow(&there, &[]).advance, []);
        assert_eq!(follow(&[ours("bw_o_1", true), ours("bw_o_3", true)], &[("bw_o_3", 30)]).advance, []);
        let kept = BTreeMap::from([("bw_o_3".to_owned(), Lsn(30))]);
        let place = Place::Follows { leader: "bw_o_1", kept: &kept, replayed: None, redo: None };
        assert_eq!(changes(&names(&["bw_o_1", "bw_o_3"]), &there, place).advance, []);
    }

    #[test]
    fn a_leader_moves_no_slot() {
        assert_eq!(decide(&["bw_o_2"], &[ours("bw_o_2", false)]).advance, []);
    }
}
