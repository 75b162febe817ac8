//! Remembers who wrote what, and who was refused.
//!
//! One line for every write and every 403: tests count the writes of a service account here, and people find out who changed an
//! object. Never: the content of an object (a Secret's least of all); an entry says that it changed, not to what.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde::Serialize;

/// Entries kept in memory: enough for any test and for minutes of a busy cluster, at most a few MiB.
const KEPT: usize = 10_000;
/// The file is set aside at this size (one earlier file is kept), so that a laptop's disk never fills with it.
const FILE_LIMIT: u64 = 16 << 20;

/// One write, or one refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    /// When the request came.
    pub time: Timestamp,
    /// Who asked.
    pub user: String,
    /// The RBAC verb.
    pub verb: String,
    /// API group.
    pub group: String,
    /// Resource; for paths that are no resource, the path.
    pub resource: String,
    /// Subresource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subresource: Option<String>,
    /// Namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name; of a create with `generateName` the generated one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The HTTP status of the answer.
    pub code: u16,
    /// The client's User-Agent.
    pub user_agent: String,
    /// Whether it was a dry run.
    pub dry_run: bool,
    /// Whether the store changed by it: false for a write that changed nothing.
    pub changed: bool,
}

/// The log.
pub struct Audit {
    state: Mutex<State>,
}

struct State {
    ring: VecDeque<AuditEntry>,
    file: Option<LogFile>,
}

struct LogFile {
    path: PathBuf,
    file: File,
    size: u64,
}

impl Audit {
    /// Opens the log file in a directory, or keeps entries only in memory.
    pub fn open(dir: Option<&Path>) -> std::io::Result<Audit> {
        let file = dir.map(|dir| LogFile::open(dir.join("audit.log"))).transpose()?;
        Ok(Audit { state: Mutex::new(State { ring: VecDeque::new(), file }) })
    }

    /// Adds an entry. A full disk costs the file's line, never the request that it is about.
    pub(super) fn record(&self, entry: AuditEntry) {
        let mut state = self.state();
        if let Some(file) = &mut state.file
            && let Err(error) = file.append(&entry)
        {
            tracing::warn!(%error, path = %file.path.display(), "an audit entry was not written");
        }
        if state.ring.len() == KEPT {
            state.ring.pop_front();
        }
        state.ring.push_back(entry);
    }

    /// All entries in memory, oldest first.
    pub fn entries(&self) -> Vec<AuditEntry> {
        self.state().ring.iter().cloned().collect()
    }

    /// Writes that were answered with success and were no dry run, by users whose name begins so.
    pub fn writes_by(&self, user_prefix: &str) -> Vec<AuditEntry> {
        let of_user = |entry: &&AuditEntry| entry.user.starts_with(user_prefix) && entry.code < 300 && !entry.dry_run;
        self.state().ring.iter().filter(of_user).cloned().collect()
    }

    /// Requests that were forbidden, by users whose name begins so.
    pub fn refusals_of(&self, user_prefix: &str) -> Vec<AuditEntry> {
        self.state()
            .ring
            .iter()
            .filter(|entry| entry.user.starts_with(user_prefix) && entry.code == 403)
            .cloned()
            .collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LogFile {
    fn open(path: PathBuf) -> std::io::Result<LogFile> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
        let size = file.metadata()?.len();
        Ok(LogFile { path, file, size })
    }

    fn append(&mut self, entry: &AuditEntry) -> std::io::Result<()> {
        if self.size >= FILE_LIMIT {
            std::fs::rename(&self.path, self.path.with_extension("log.1"))?;
            *self = LogFile::open(self.path.clone())?;
        }
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        self.file.write_all(&line)?;
        self.size += line.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(user: &str, code: u16, dry_run: bool) -> AuditEntry {
        AuditEntry {
            time: Timestamp::UNIX_EPOCH,
            user: user.into(),
            verb: "patch".into(),
            group: String::new(),
            resource: "secrets".into(),
            subresource: None,
            namespace: Some("a".into()),
            name: Some("s".into()),
            code,
            user_agent: "test".into(),
            dry_run,
            changed: true,
        }
    }

    #[test]
    fn writes_of_a_user_leave_out_refusals_and_dry_runs() {
        let audit = Audit::open(None).unwrap();
        [entry("op", 200, false), entry("op", 200, true), entry("op", 403, false), entry("other", 201, false)]
            .into_iter()
            .for_each(|entry| audit.record(entry));
        assert_eq!(audit.writes_by("op").len(), 1);
        assert_eq!(audit.refusals_of("op").len(), 1);
        assert_eq!(audit.entries().len(), 4);
    }

    #[test]
    fn the_file_has_one_json_line_for_each_entry() {
        let dir = tempfile::tempdir().unwrap();
        let audit = Audit::open(Some(dir.path())).unwrap();
        audit.record(entry("op", 200, false));
        audit.record(entry("op", 200, false));
        let text = std::fs::read_to_string(dir.path().join("audit.log")).unwrap();
        assert_eq!(text.lines().count(), 2);
        let line: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert_eq!(line["userAgent"], "test");
    }
}
