//! Processes as `/proc` shows them: who is whose child, which role, how much memory.

use std::fs;

/// A process of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: i32,
    /// Its parent.
    pub parent: i32,
    /// The role of our binary: the word after the program's name.
    pub role: String,
    /// Resident memory in bytes.
    pub resident: u64,
    /// The part of it that is its own and can't be dropped: anonymous memory, in bytes.
    pub anonymous: u64,
}

/// `root` and everything below it.
pub fn tree(root: i32) -> Vec<Process> {
    let all: Vec<Process> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(look)
        .collect();
    let mut found: Vec<Process> = all.iter().filter(|process| process.pid == root).cloned().collect();
    let mut next = 0;
    while next < found.len() {
        let parent = found[next].pid;
        found.extend(all.iter().filter(|process| process.parent == parent).cloned());
        next += 1;
    }
    found
}

fn look(pid: i32) -> Option<Process> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let role = command.split(|byte| *byte == 0).nth(1).unwrap_or_default();
    Some(Process {
        pid,
        parent: field(&status, "PPid:")?.parse().ok()?,
        role: String::from_utf8_lossy(role).into_owned(),
        resident: kibibytes(&status, "VmRSS:"),
        anonymous: kibibytes(&status, "RssAnon:"),
    })
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

fn kibibytes(status: &str, name: &str) -> u64 {
    let number = field(status, name).and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
    number.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_found_with_its_memory() {
        let me = std::process::id() as i32;
        let found = tree(me);
        assert_eq!(found[0].pid, me);
        assert!(found[0].resident > 0 && found[0].resident >= found[0].anonymous);
    }
}
