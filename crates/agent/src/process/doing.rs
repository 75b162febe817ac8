//! What the processes of a server are doing, from one beat to the next: by that a server that is stuck is told from one that gets no
//! processor ([`bellwether_core::instance::pulse`]).

use std::collections::BTreeMap;

use bellwether_core::election::Moment;
use bellwether_core::instance::pulse::{Doing, Processes};

use super::tree::{self, Process, State};

/// The kernel tells times of processes in these, of which a second has a hundred, whatever its own clock does.
const TICK_MILLIS: u64 = 10;

/// What was seen at the last beat.
#[derive(Debug, Default)]
pub struct Sight {
    at: Option<Moment>,
    ticks: BTreeMap<i32, u64>,
}

impl Sight {
    /// Looks at a server. `session` is the backend of the session that is kept open, `knocked` when somebody last knocked.
    pub fn look(&mut self, postmaster: i32, session: Option<i32>, knocked: Option<Moment>, now: Moment) -> Processes {
        self.compare(&tree::all(), postmaster, session, knocked, now)
    }

    fn compare(
        &mut self,
        all: &[Process],
        postmaster: i32,
        session: Option<i32>,
        knocked: Option<Moment>,
        now: Moment,
    ) -> Processes {
        let of_server = tree::descendants(postmaster, all);
        let elapsed = self.at.map(|at| now.since(at).0);
        let doing = |process: &Process| {
            let had = self.ticks.get(&process.pid).map(|before| process.ticks.saturating_sub(*before) * TICK_MILLIS);
            let most = had.zip(elapsed).is_some_and(|(had, elapsed)| had * 2 > elapsed);
            match process.state {
                State::Runnable if most => Doing::Runs,
                State::Runnable => Doing::Starves,
                State::Asleep => Doing::Sleeps,
                State::Disk | State::Stopped | State::Zombie => Doing::Halted,
            }
        };
        let of = |pid: i32| all.iter().find(|process| process.pid == pid).map_or(Doing::Halted, doing);
        let since = |process: &Process| knocked.is_some_and(|knocked| process.started * TICK_MILLIS >= knocked.0);
        let seen = Processes {
            session: session.map_or(Doing::Halted, of),
            postmaster: of(postmaster),
            newcomers: of_server.iter().any(since),
            some_wait_for_disk: of_server.iter().any(|process| process.state == State::Disk),
            some_starve: of_server.iter().any(|process| doing(process) == Doing::Starves),
        };
        self.ticks = all.iter().map(|process| (process.pid, process.ticks)).collect();
        self.at = Some(now);
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POSTMASTER: i32 = 10;
    const SESSION: i32 = 11;
    const OTHER: i32 = 12;
    const KNOCKED: Option<Moment> = Some(Moment(5_000));

    fn process(pid: i32, ticks: u64) -> Process {
        let parent = if pid == POSTMASTER { 1 } else { POSTMASTER };
        Process { pid, parent, state: State::Asleep, ticks, started: 100 }
    }
    fn runnable(pid: i32, ticks: u64) -> Process {
        Process { state: State::Runnable, ..process(pid, ticks) }
    }
    fn halted(pid: i32) -> Process {
        Process { state: State::Stopped, ..process(pid, 0) }
    }
    /// A quarter of a second apart.
    fn seen(before: &[Process], after: &[Process]) -> Processes {
        let mut sight = Sight::default();
        sight.compare(before, POSTMASTER, Some(SESSION), KNOCKED, Moment(6_000));
        sight.compare(after, POSTMASTER, Some(SESSION), KNOCKED, Moment(6_250))
    }

    #[test]
    fn who_could_run_and_had_little_time_starves_and_who_had_it_runs() {
        let before = [process(POSTMASTER, 0), runnable(SESSION, 100), runnable(OTHER, 100)];
        let after = [process(POSTMASTER, 0), runnable(SESSION, 105), runnable(OTHER, 125)];
        let seen = seen(&before, &after);
        assert_eq!((seen.session, seen.postmaster, seen.some_starve), (Doing::Starves, Doing::Sleeps, true));
        let after = [process(POSTMASTER, 0), runnable(SESSION, 125), runnable(OTHER, 125)];
        let alone = self::seen(&before, &after);
        assert_eq!((alone.session, alone.some_starve), (Doing::Runs, false));
    }

    #[test]
    fn who_is_stopped_or_gone_is_halted() {
        let all = [halted(POSTMASTER), runnable(OTHER, 0)];
        let seen = seen(&all, &all);
        assert_eq!((seen.postmaster, seen.session), (Doing::Halted, Doing::Halted));
    }

    #[test]
    fn a_newcomer_is_one_that_began_since_somebody_knocked() {
        let all = [process(POSTMASTER, 0), process(OTHER, 0)];
        assert!(!seen(&all, &all).newcomers);
        let all = [process(POSTMASTER, 0), Process { started: 500, ..process(OTHER, 0) }];
        assert!(seen(&all, &all).newcomers);
    }

    #[test]
    fn a_process_of_this_machine_is_seen_to_begin_by_the_same_clock() {
        let before = crate::clock::now().unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as i32;
        let process = tree::all().into_iter().find(|process| process.pid == pid).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let began = process.started * TICK_MILLIS;
        let after = crate::clock::now().unwrap();
        assert!((before.0.saturating_sub(TICK_MILLIS)..=after.0).contains(&began), "{before:?} {began} {after:?}");
    }
}
