//! Decides whether a PostgreSQL that runs is stuck: nothing answers, its disk takes nothing, or it recovers for too long.
//!
//! From: what it answered between two beats, and what its processes were doing. Never: calls a slow server stuck. An answer, however late,
//! begins the count anew; a silence does not count while whoever is to answer could run and gets no processor, because another server on
//! a busy machine would fare no better; and beats are counted, not seconds, because whoever gets no time to listen gets none to beat either.

use std::fmt;
use std::time::Duration;

use crate::wal::Lsn;

/// Between two beats.
pub const BEAT: Duration = Duration::from_millis(250);
/// Beats of silence until it counts as stuck: six seconds. A server with a hundred runnable processes for each core answers within one.
const SILENT: u32 = 24;
/// Beats without a byte of WAL flushed while somebody waits for that: ten seconds. A saturated disk is slow, and flushes.
const DISK: u32 = 40;
/// Beats after which it is looked at more closely: two seconds.
const DISK_DOUBTED: u32 = 8;
/// Beats of crash recovery, while another could lead: ten seconds. It ends in a moment or takes minutes.
const RECOVERY: u32 = 40;

/// What was heard since the last beat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Nothing was asked.
    NotAsked,
    /// A question is open.
    Nothing,
    /// A question is open, and whoever is to answer it waits for a processor.
    Starved,
    /// An answer.
    Answer,
}

/// What a process was doing, at one beat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// It had a processor for most of the time since the last beat.
    Runs,
    /// It could run, and had a processor for little of that time or none.
    Starves,
    /// It waits for something to happen.
    Sleeps,
    /// It is stopped, waits for a disk, or is not there: no processor would help it.
    Halted,
}

/// The processes that a question is about, at one beat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Processes {
    /// The backend of the session that is kept open.
    pub session: Doing,
    /// The postmaster.
    pub postmaster: Doing,
    /// Somebody was let in since the door last answered: the postmaster did its part.
    pub newcomers: bool,
    /// Some process of this server starves: whoever sleeps may wait for what it holds.
    pub some_starve: bool,
    /// Some process of this server waits for a disk.
    pub some_wait_for_disk: bool,
}

impl Processes {
    /// What a silence in the open session is.
    pub fn session(&self) -> Heard {
        silence(match self.session {
            Doing::Starves => true,
            Doing::Sleeps => self.some_starve,
            Doing::Runs | Doing::Halted => false,
        })
    }

    /// Whether WAL may be late for want of a processor: nobody waits for a disk in fact.
    pub fn flush_starves(&self) -> bool {
        self.some_starve && !self.some_wait_for_disk
    }

    /// What a silence at the door is.
    pub fn door(&self) -> Heard {
        silence(match self.postmaster {
            Doing::Starves => true,
            Doing::Sleeps => self.newcomers && self.some_starve,
            Doing::Runs | Doing::Halted => false,
        })
    }
}

fn silence(starved: bool) -> Heard {
    if starved { Heard::Starved } else { Heard::Nothing }
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
    /// It may be for want of a processor that it was not.
    pub flush_starved: bool,
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

    /// Whether WAL is late by now, so that it matters what the processes are doing.
    pub fn doubts_disk(&self) -> bool {
        self.disk.is_some_and(|(_, beats)| beats >= DISK_DOUBTED)
    }

    /// One beat later.
    pub fn beat(&mut self, seen: Seen) -> Option<Stuck> {
        count(&mut self.session, seen.session);
        count(&mut self.door, seen.door);
        self.recovery = if seen.recovers { self.recovery.saturating_add(1) } else { 0 };
        self.disk = seen.flush_awaited.map(|flushed| match self.disk {
            Some((before, beats)) if before == flushed => (flushed, beats + u32::from(!seen.flush_starved)),
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
        Heard::NotAsked | Heard::Starved => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: Seen = Seen {
        session: Heard::Answer,
        door: Heard::Answer,
        recovers: false,
        flush_awaited: None,
        flush_starved: false,
    };

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

    const BUSY: Processes = Processes {
        session: Doing::Sleeps,
        postmaster: Doing::Sleeps,
        newcomers: true,
        some_starve: true,
        some_wait_for_disk: false,
    };

    #[test]
    fn a_server_that_gets_no_processor_is_not_stuck_however_long_that_lasts() {
        let starved = [
            Processes { session: Doing::Starves, postmaster: Doing::Starves, ..BUSY },
            // A backend waits for a lock that is held by one that starves.
            BUSY,
        ];
        for processes in starved {
            let seen = Seen { session: processes.session(), door: processes.door(), ..FINE };
            assert_eq!(after(true, 10_000, |_| seen), None, "{processes:?}");
        }
    }

    #[test]
    fn on_a_busy_machine_what_is_stopped_or_waits_for_a_disk_or_turns_in_circles_is_stuck_all_the_same() {
        for doing in [Doing::Halted, Doing::Runs] {
            assert_eq!(Processes { session: doing, ..BUSY }.session(), Heard::Nothing);
            assert_eq!(Processes { postmaster: doing, ..BUSY }.door(), Heard::Nothing);
        }
        assert_eq!(Processes { newcomers: false, ..BUSY }.door(), Heard::Nothing, "it sleeps at its door");
        let idle = Processes { some_starve: false, ..BUSY };
        assert_eq!((idle.session(), idle.door()), (Heard::Nothing, Heard::Nothing));
    }

    #[test]
    fn a_silence_goes_on_being_counted_when_there_is_time_again() {
        let at = |beat: u32| if beat.is_multiple_of(2) { Heard::Starved } else { Heard::Nothing };
        let half = |beat: u32| Seen { door: at(beat), ..FINE };
        assert_eq!(after(true, 100, half), Some((2 * SILENT - 1, Stuck::Door)));
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
    fn wal_that_is_late_for_want_of_a_processor_does_not_count_and_a_disk_that_somebody_waits_for_does() {
        let late = |flush_starved| Seen { flush_awaited: Some(Lsn(7)), flush_starved, ..FINE };
        assert_eq!(after(true, 1000, |_| late(BUSY.flush_starves())), None);
        let stuck = Processes { some_wait_for_disk: true, ..BUSY };
        assert_eq!(after(true, 100, |_| late(stuck.flush_starves())), Some((DISK + 1, Stuck::Disk)));
        let mut pulse = Pulse::new(true);
        let doubted = (0..DISK).position(|_| pulse.beat(late(false)).is_none() && pulse.doubts_disk());
        assert_eq!(doubted, Some(DISK_DOUBTED as usize));
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
