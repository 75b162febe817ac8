//! Decides whether a PostgreSQL that runs is stuck: nothing answers, its disk takes nothing, or it recovers for too long.
//!
//! From: what it answered between two beats. Never: calls a slow server stuck. An answer, however late, begins the count anew; and beats are
//! counted, not seconds, because whoever gets no time to listen gets none to beat either.

use std::fmt;
use std::time::Duration;

use crate::wal::Lsn;

/// Between two beats.
pub const BEAT: Duration = Duration::from_millis(250);
/// Beats of silence until it counts as stuck: six seconds. A server with a hundred runnable processes for each core answers within one.
const SILENT: u32 = 24;
/// Beats without a byte of WAL flushed while somebody waits for that: ten seconds. A saturated disk is slow, and flushes.
const DISK: u32 = 40;
/// Beats of crash recovery, while another could lead: ten seconds. It ends in a moment or takes minutes.
const RECOVERY: u32 = 40;

/// What was heard since the last beat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Nothing was asked.
    NotAsked,
    /// A question is open.
    Nothing,
    /// An answer.
    Answer,
}

/// What a server let itself be seen of, at one beat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// A session that is kept open: a backend.
    pub session: Heard,
    /// A session that is opened each time: the postmaster.
    pub door: Heard,
    /// It is there, and lets nobody in, because it recovers from the crash of a backend.
    pub recovers: bool,
    /// How far the WAL was flushed, while somebody waits for that. Nothing: nobody waits, or it is not known.
    pub flush_awaited: Option<Lsn>,
}

/// In which way it is stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// No backend answers.
    Session,
    /// The postmaster lets nobody in, and says nothing.
    Door,
    /// WAL does not reach the disk.
    Disk,
    /// It recovers, and others could have taken over long ago.
    Recovery,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |beats: u32| (BEAT * beats).as_secs();
        match self {
            Self::Session => write!(f, "an open session got no answer for {} s", seconds(SILENT)),
            Self::Door => write!(f, "a new session got no answer for {} s", seconds(SILENT)),
            Self::Disk => write!(f, "commits wait for the disk, which took no WAL for {} s", seconds(DISK)),
            Self::Recovery => write!(f, "crash recovery was not done after {} s", seconds(RECOVERY)),
        }
    }
}

/// What is counted of a primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulse {
    replaceable: bool,
    session: u32,
    door: u32,
    recovery: u32,
    disk: Option<(Lsn, u32)>,
}

impl Pulse {
    /// A server that has just been seen to answer. `replaceable`: others may be able to lead. Where nobody is, recovery takes what it takes: to
    /// begin it again would help nobody.
    pub fn new(replaceable: bool) -> Self {
        Self { replaceable, session: 0, door: 0, recovery: 0, disk: None }
    }

    /// One beat later.
    pub fn beat(&mut self, seen: Seen) -> Option<Stuck> {
        count(&mut self.session, seen.session);
        count(&mut self.door, seen.door);
        self.recovery = if seen.recovers { self.recovery.saturating_add(1) } else { 0 };
        self.disk = seen.flush_awaited.map(|flushed| match self.disk {
            Some((before, beats)) if before == flushed => (flushed, beats.saturating_add(1)),
            _ => (flushed, 0),
        });
        if self.session >= SILENT {
            Some(Stuck::Session)
        } else if self.door >= SILENT {
            Some(Stuck::Door)
        } else if self.disk.is_some_and(|(_, beats)| beats >= DISK) {
            Some(Stuck::Disk)
        } else if self.replaceable && self.recovery >= RECOVERY {
            Some(Stuck::Recovery)
        } else {
            None
        }
    }
}

fn count(silent: &mut u32, heard: Heard) {
    match heard {
        Heard::Answer => *silent = 0,
        Heard::Nothing => *silent = silent.saturating_add(1),
        // A session that was closed says nothing about the server; whether another can be opened does.
        Heard::NotAsked => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: Seen = Seen { session: Heard::Answer, door: Heard::Answer, recovers: false, flush_awaited: None };

    fn after(replaceable: bool, beats: u32, seen: impl Fn(u32) -> Seen) -> Option<(u32, Stuck)> {
        let mut pulse = Pulse::new(replaceable);
        (1..=beats).find_map(|beat| pulse.beat(seen(beat)).map(|stuck| (beat, stuck)))
    }

    #[test]
    fn a_server_that_answers_now_and_then_is_not_stuck() {
        let slow = |beat: u32| match beat % SILENT {
            0 => FINE,
            _ => Seen { session: Heard::Nothing, door: Heard::Nothing, ..FINE },
        };
        assert_eq!(after(true, 1000, slow), None);
    }

    #[test]
    fn silence_of_a_backend_or_of_the_postmaster_counts() {
        let backends = Seen { session: Heard::Nothing, ..FINE };
        assert_eq!(after(true, 100, |_| backends), Some((SILENT, Stuck::Session)));
        let postmaster = Seen { door: Heard::Nothing, ..FINE };
        assert_eq!(after(true, 100, |_| postmaster), Some((SILENT, Stuck::Door)));
    }

    #[test]
    fn a_session_that_was_closed_does_not_count() {
        assert_eq!(after(true, 1000, |_| Seen { session: Heard::NotAsked, ..FINE }), None);
    }

    #[test]
    fn a_disk_that_takes_nothing_counts_and_a_slow_one_does_not() {
        let at = |lsn| Seen { flush_awaited: Some(Lsn(lsn)), ..FINE };
        assert_eq!(after(true, 100, |_| at(7)), Some((DISK + 1, Stuck::Disk)));
        assert_eq!(after(true, 1000, |beat| at(u64::from(beat / DISK))), None);
        assert_eq!(after(true, 1000, |beat| if beat % DISK == 0 { FINE } else { at(7) }), None);
    }

    #[test]
    fn recovery_may_take_long_only_where_nobody_else_could_lead() {
        let recovers = Seen { session: Heard::NotAsked, recovers: true, ..FINE };
        assert_eq!(after(true, 100, |_| recovers), Some((RECOVERY, Stuck::Recovery)));
        assert_eq!(after(false, 1000, |_| recovers), None);
    }

    #[test]
    fn what_is_said_is_for_people() {
        assert_eq!(Stuck::Session.to_string(), "an open session got no answer for 6 s");
        assert_eq!(Stuck::Recovery.to_string(), "crash recovery was not done after 10 s");
    }
}
