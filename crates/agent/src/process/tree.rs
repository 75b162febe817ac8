//! Finds and kills the descendants of a process, through `/proc`.
//!
//! Every child of a postmaster calls `setsid`, so no process group holds them together; and when a postmaster dies, its
//! children live on, can finish their commits and acknowledge them. Only the tree of parents tells which they are, and it
//! only holds as long as whoever walks it is a child subreaper: then an orphan comes back to the walker.
//! Never: a process called gone that was merely not seen in one walk. A walk is not a snapshot, so it is repeated until it
//! finds nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A process as `/proc/<pid>/stat` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: i32,
    /// Its parent.
    pub parent: i32,
    /// Whether it could run.
    pub state: State,
    /// The processor's time that it had, in ticks of the kernel's clock.
    pub ticks: u64,
    /// When it began, after the machine did, in the same.
    pub started: u64,
}

/// Whether a process could run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It does, or would if it had a processor.
    Runnable,
    /// It waits for something to happen.
    Asleep,
    /// It waits for a disk, and nothing can disturb it.
    Disk,
    /// Somebody stopped it.
    Stopped,
    /// It is dead and waits to be reaped.
    Zombie,
}

impl Process {
    /// Whether it is dead and waits to be reaped.
    pub fn is_zombie(&self) -> bool {
        self.state == State::Zombie
    }
}

/// Every process that can be seen.
pub fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return vec![] };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid: i32| parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?))
        .collect()
}

/// `pid (name) state ppid …`; the name may hold spaces and parentheses, so the last `)` ends it.
fn parse(pid: i32, stat: &str) -> Option<Process> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let mut numbers = fields.skip(9).map(|field| field.parse::<u64>().unwrap_or(0));
    let ticks = numbers.next().unwrap_or(0) + numbers.next().unwrap_or(0);
    let started = numbers.nth(6).unwrap_or(0);
    let state = match state {
        "R" => State::Runnable,
        "D" => State::Disk,
        "T" | "t" => State::Stopped,
        "Z" | "X" => State::Zombie,
        _ => State::Asleep,
    };
    Some(Process { pid, parent, state, ticks, started })
}

/// The descendants of `root` among `processes`, parents before their children.
pub fn descendants(root: i32, processes: &[Process]) -> Vec<Process> {
    let mut children: BTreeMap<i32, Vec<Process>> = BTreeMap::new();
    for process in processes {
        children.entry(process.parent).or_default().push(*process);
    }
    let mut found = vec![];
    let mut next = vec![root];
    while let Some(parent) = next.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            found.push(child);
            next.push(child.pid);
        }
    }
    found
}

/// Kills the living descendants of `root` that aren't in `spared` or below one of those. Answers how many it found alive.
pub fn kill_descendants(root: i32, spared: &BTreeSet<i32>) -> usize {
    let processes: Vec<Process> = all().into_iter().filter(|process| !spared.contains(&process.pid)).collect();
    let alive: Vec<Process> =
        descendants(root, &processes).into_iter().filter(|process| !process.is_zombie()).collect();
    // Children first: a postmaster that saw one of them die might otherwise begin to recover.
    for process in alive.iter().rev() {
        match kill(Pid::from_raw(process.pid), Signal::SIGKILL) {
            // Gone in the meantime, which is what we want.
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(errno) => tracing::error!(pid = process.pid, error = %errno, "a process can't be killed"),
        }
    }
    alive.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32) -> Process {
        Process { pid, parent, state: State::Asleep, ticks: 0, started: 0 }
    }

    #[test]
    fn a_name_with_parentheses_does_not_confuse() {
        assert_eq!(parse(7, "7 (a) b) S 3 7 7 0"), Some(process(7, 3)));
        let dead = Process { state: State::Zombie, ..process(7, 3) };
        assert_eq!(parse(7, "7 (postgres: x) Z 3 7"), Some(dead));
        assert_eq!(parse(7, ""), None);
    }

    #[test]
    fn what_it_does_and_how_much_time_it_had_is_read() {
        let busy = Process { state: State::Runnable, ticks: 37, started: 9_876, ..process(7, 3) };
        assert_eq!(parse(7, "7 (postgres) R 3 7 7 0 -1 4194304 500 0 2 0 30 7 0 0 20 5 1 0 9876 1024"), Some(busy));
        let stopped = Process { state: State::Stopped, started: 5, ..process(7, 3) };
        assert_eq!(parse(7, "7 (postgres) T 3 7 7 0 -1 4194304 500 0 2 0 0 0 0 0 20 5 1 0 5 1024"), Some(stopped));
    }

    #[test]
    fn descendants_are_all_generations_and_nobody_else() {
        let herd = [process(2, 1), process(3, 2), process(4, 3), process(5, 1), process(6, 99)];
        let mut found: Vec<i32> = descendants(2, &herd).iter().map(|process| process.pid).collect();
        found.sort_unstable();
        assert_eq!(found, [3, 4]);
    }

    #[test]
    fn a_walk_that_saw_a_cycle_ends() {
        assert_eq!(descendants(1, &[process(2, 1), process(1, 2)]).len(), 2);
    }

    #[test]
    fn this_process_sees_itself() {
        let me = std::process::id() as i32;
        assert!(all().iter().any(|process| process.pid == me && !process.is_zombie()));
    }
}
