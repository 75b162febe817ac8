//! Decides whether a volume has room: ample, low or full, and what becomes of the reserve that the agent keeps on it.
//!
//! From: the size of the volume, what is free on it, and how large the reserve there is. Never: calls a volume full, and then not, and then
//! full again, because a file came and went (what ends it lies well above what begins it); takes the reserve that was given back for
//! room that came back; makes a reserve of what the database needs.
//!
//! Why before it is really full: PostgreSQL whose data volume is full fails statements and lives. One that can't write WAL panics, and panics
//! again at the end of its recovery, for as long as there is no room for one more segment.

use std::fmt;

use serde::{Deserialize, Serialize};

const MIB: u64 = 1024 * 1024;
/// A segment of WAL: what PostgreSQL needs at once when it needs more.
pub const SEGMENT: u64 = 16 * MIB;
/// Below this part of the volume it is full: at four per cent, a person who is woken by it can still delete, vacuum and dump …
const GUARD_PART: u64 = 25;
/// … but never less than four segments: the writes that are under way when it is noticed, half a second of them, and the reserve …
const GUARD_LEAST: u64 = 4 * SEGMENT;
/// … nor more than this: what a fast disk takes in half a second, and what nobody wants to give away of a terabyte.
const GUARD_MOST: u64 = 64 * SEGMENT;
/// The reserve is one per cent of the volume …
const RESERVE_PART: u64 = 100;
/// … but at least two segments: one that recovery may need to end, and one to go on …
const RESERVE_LEAST: u64 = 2 * SEGMENT;
/// … and four are as good as any more: nothing is written once it is needed.
const RESERVE_MOST: u64 = 4 * SEGMENT;

/// Which of an instance's volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum VolumeKind {
    /// The data's, and the WAL's where that has none of its own.
    Data,
    /// The WAL's own.
    Wal,
}

impl fmt::Display for VolumeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Data => "data volume",
            Self::Wal => "WAL volume",
        })
    }
}

/// How much room there is. More is more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Space {
    /// So little that nothing more may be written.
    Full,
    /// It can be written to; nobody should begin to.
    Low,
    /// Enough.
    #[default]
    Ample,
}

/// A volume, measured. All in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// All of it.
    pub size: u64,
    /// What PostgreSQL could still write.
    pub free: u64,
    /// What the agent holds in reserve on it.
    pub reserve: u64,
}

/// How much of its volume the log may take, in MiB: PostgreSQL's own defaults where the volume is large, less where it is small. They are
/// for any volume, and their `max_wal_size` alone would fill one of a gigabyte. A standby lets go of its log only where its
/// primary made a checkpoint, so one that is full before there was any would stay so for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalRoom {
    /// What those who are gone may hold back (`max_slot_wal_keep_size`): after that they have to be copied anew, which is better than a primary
    /// that stops because its disk is full.
    pub slots: u64,
    /// What is written between two checkpoints (`max_wal_size`). Before a standby has let go of it, it may have twice as much.
    pub checkpoint: u64,
    /// What is kept to be written over (`min_wal_size`).
    pub recycled: u64,
    /// What is kept for who was away for a moment (`wal_keep_size`).
    pub kept: u64,
}

impl WalRoom {
    /// On a volume of so many bytes.
    pub fn on(size: u64) -> Self {
        // PostgreSQL takes no less than two segments.
        let part = |part: u64, most: u64| (size / part / MIB).clamp(2 * SEGMENT / MIB, most);
        Self {
            slots: (size / 2 / MIB).clamp(4 * SEGMENT / MIB, i32::MAX as u64),
            checkpoint: part(8, 1024),
            recycled: part(16, 80),
            kept: part(16, 128),
        }
    }
}

/// What becomes of the reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// It stays as it is.
    Keep,
    /// PostgreSQL needs it: it goes.
    GiveBack,
    /// There is room for one of this size.
    Make(u64),
}

impl Measured {
    /// What there would be without the reserve: giving that back must not look like room that came back.
    fn room(self) -> u64 {
        self.free.saturating_add(self.reserve)
    }

    /// Below this it is full.
    fn guard(self) -> u64 {
        (self.size / GUARD_PART).clamp(GUARD_LEAST.min(self.size / 8), GUARD_MOST)
    }

    fn wanted_reserve(self) -> u64 {
        (self.size / RESERVE_PART).clamp(RESERVE_LEAST.min(self.size / 16), RESERVE_MOST)
    }

    /// How much room there is. It `was` so before: one that is full stays so until half as much again is free as made it full.
    pub fn space(self, was: Space) -> Space {
        let (room, guard) = (self.room(), self.guard());
        let full_below = if was == Space::Full { guard + guard / 2 } else { guard };
        match room {
            room if room < full_below => Space::Full,
            room if room < 2 * guard => Space::Low,
            _ => Space::Ample,
        }
    }

    /// What becomes of the reserve on a volume with so much room.
    pub fn reserve(self, space: Space) -> Reserve {
        let wanted = self.wanted_reserve();
        if self.reserve > 0 && self.free < SEGMENT.min(wanted) {
            Reserve::GiveBack
        } else if self.reserve < wanted && space > Space::Full && self.room() >= self.guard() + wanted {
            Reserve::Make(wanted)
        } else {
            Reserve::Keep
        }
    }

    /// Whether PostgreSQL can be started here. A primary may need a segment before its recovery ends; without it, it would panic there,
    /// and begin anew, for ever.
    pub fn can_start(self, writes: bool) -> bool {
        let needed = if writes { SEGMENT } else { MIB };
        self.free >= needed.min(self.size / 16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1024 * MIB;

    fn measured(size: u64, free: u64, reserve: u64) -> Measured {
        Measured { size, free, reserve }
    }
    fn space(size: u64, free: u64) -> Space {
        measured(size, free, 0).space(Space::Ample)
    }

    #[test]
    fn a_volume_is_full_before_nothing_is_free() {
        assert_eq!(space(GIB, 65 * MIB), Space::Low);
        assert_eq!(space(GIB, 63 * MIB), Space::Full);
        assert_eq!(space(10 * GIB, 500 * MIB), Space::Low);
        assert_eq!(space(10 * GIB, 400 * MIB), Space::Full);
        assert_eq!(space(10_000 * GIB, 3 * GIB), Space::Ample, "nobody gives hundreds of gigabytes away");
        assert_eq!(space(100 * MIB, 50 * MIB), Space::Ample, "a small one is not full from the beginning");
    }

    #[test]
    fn the_log_takes_what_postgresql_gives_it_on_a_large_volume_and_less_on_a_small_one() {
        let large = WalRoom { slots: 50 * 1024, checkpoint: 1024, recycled: 80, kept: 128 };
        assert_eq!(WalRoom::on(100 * GIB), large);
        let small = WalRoom { slots: 256, checkpoint: 64, recycled: 32, kept: 32 };
        assert_eq!(WalRoom::on(512 * MIB), small);
        assert_eq!(WalRoom::on(0), WalRoom { slots: 64, checkpoint: 32, recycled: 32, kept: 32 });
    }

    #[test]
    fn what_slots_hold_back_and_a_standby_has_not_let_go_of_leaves_a_volume_with_room() {
        for size in [512 * MIB, GIB, 10 * GIB, 1000 * GIB] {
            let WalRoom { slots, checkpoint, recycled, .. } = WalRoom::on(size);
            let rest = size - (slots + 2 * checkpoint + recycled) * MIB;
            assert!(rest > measured(size, 0, 0).guard(), "{size}");
        }
    }

    #[test]
    fn a_full_one_stays_full_until_there_is_clearly_more() {
        for size in [200 * MIB, GIB, 10 * GIB, 1000 * GIB] {
            let guard = measured(size, 0, 0).guard();
            let at = |free, was| measured(size, free, 0).space(was);
            assert_eq!(at(guard - 1, Space::Ample), Space::Full);
            assert_eq!(at(guard + guard / 4, Space::Full), Space::Full);
            assert_eq!(at(guard + guard / 4, Space::Low), Space::Low);
            assert_eq!(at(guard + guard / 2, Space::Full), Space::Low);
            assert_eq!(at(3 * guard, Space::Full), Space::Ample);
        }
    }

    #[test]
    fn the_reserve_is_given_back_before_the_last_segment_and_that_is_no_room_that_came_back() {
        let before = measured(GIB, 10 * MIB, 32 * MIB);
        assert_eq!(before.space(Space::Ample), Space::Full);
        assert_eq!(before.reserve(Space::Full), Reserve::GiveBack);
        let after = measured(GIB, 42 * MIB, 0);
        assert_eq!(after.space(Space::Full), Space::Full);
        assert_eq!(after.reserve(Space::Full), Reserve::Keep);
    }

    #[test]
    fn it_is_made_again_as_soon_as_the_volume_is_no_longer_full_and_does_not_fill_it() {
        for size in [200 * MIB, GIB, 10 * GIB, 1000 * GIB] {
            let guard = measured(size, 0, 0).guard();
            let back = measured(size, guard + guard / 2, 0);
            let space = back.space(Space::Full);
            assert_eq!(space, Space::Low);
            let Reserve::Make(made) = back.reserve(space) else { panic!("{size}: {back:?}") };
            let made = measured(size, back.free - made, made);
            assert_eq!((made.space(space), made.reserve(space)), (Space::Low, Reserve::Keep), "{size}");
        }
    }

    #[test]
    fn it_never_takes_what_makes_a_volume_full() {
        for free in (0..GIB).step_by((7 * MIB) as usize) {
            let now = measured(GIB, free, 0);
            if let Reserve::Make(size) = now.reserve(now.space(Space::Ample)) {
                assert!(free - size >= now.guard(), "{free}");
            }
        }
    }

    #[test]
    fn a_primary_is_not_started_where_its_recovery_could_not_end() {
        assert!(!measured(GIB, 15 * MIB, 0).can_start(true));
        assert!(measured(GIB, 16 * MIB, 0).can_start(true));
        assert!(measured(GIB, 2 * MIB, 0).can_start(false));
        assert!(!measured(GIB, 0, 0).can_start(false));
    }

    #[test]
    fn more_room_is_more() {
        assert!(Space::Full < Space::Low && Space::Low < Space::Ample);
    }
}
