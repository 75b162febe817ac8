//! How close a primary comes to losing its lead while nothing is wrong but that everybody is busy.
//!
//! Every connection is taken and computes, other processes keep every core busy at the priority of the agents, and the disk that all
//! volumes are on takes writes that are flushed at once. Its agent tells whenever less of its tenure was left than ever before when it
//! was extended. From that follows how much shorter a promise could be. Never: a lead that moved, or a
//! server that was killed and started again in the same term, and is not counted.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bellwether_api::names::Names;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use serde_json::Value;

use crate::embedded::{Site, SiteError};

/// Sessions compute for so long at a time; whoever's session was ended is connected again then.
const TURN: Duration = Duration::from_secs(120);
/// What is written before it is flushed.
const BLOCK: usize = 4 << 20;
/// A file is written over from its beginning when it has this size.
const LARGEST: u64 = 256 << 20;
/// Before somebody is looked for again who leads.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// How an agent says how much was left.
const LEFT: &str = "of tenure was left when it was extended";
/// How an agent says that it took its server for stuck.
const KILLED: &str = "PostgreSQL is stuck: it is killed";

/// How much of everything.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// For how long.
    pub lasting: Duration,
    /// Threads that compute, beside the server's sessions.
    pub busy: usize,
    /// Threads that write and flush.
    pub writers: usize,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The term before.
    pub before: i32,
    /// The term after: each more is a lead that moved.
    pub after: i32,
    /// How often a server was taken for stuck, and killed.
    pub killed: usize,
    /// The least that was left of tenure when it was extended, in milliseconds; nothing, if there was always plenty.
    pub least: Option<u64>,
    /// Mebibytes that were written and flushed beside the servers.
    pub flushed: u64,
}

/// Loads the cluster whose pods' logs are in `logs`. `scratch` is a directory on the disk of its volumes.
pub async fn run(site: &Site, load: Load, logs: &Path, scratch: &Path) -> Result<Told, SiteError> {
    site.ready().await?;
    let before = term(site).await?;
    let began = Instant::now();
    let neighbours = Neighbours::start(load, scratch)?;
    while let Some(left) = load.lasting.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) {
        let Some(primary) = site.primary().await else {
            tokio::time::sleep(LOOK_AGAIN).await;
            continue;
        };
        // A session that can't be had is for the verdict: the lead may have moved.
        if let Err(error) = site.overload(&primary, left.min(TURN)).await {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if term(site).await? == before {
                return Err(error);
            }
        }
    }
    let flushed = neighbours.end();
    site.ready().await?;
    let said = Said::read(logs)?;
    Ok(Told { before, after: term(site).await?, killed: said.killed, least: said.least, flushed })
}

async fn term(site: &Site) -> Result<i32, SiteError> {
    let leases: Api<Lease> = Api::default_namespaced(site.client.clone());
    let lease = leases.get(&Names::of(Site::CLUSTER).lease()).await?;
    let term = lease.spec.and_then(|spec| spec.lease_transitions);
    term.ok_or_else(|| SiteError::Wrong("the Lease has no term".to_owned()))
}

/// What agents said, in all logs.
#[derive(Debug, Default, PartialEq, Eq)]
struct Said {
    killed: usize,
    least: Option<u64>,
}

impl Said {
    fn read(logs: &Path) -> std::io::Result<Self> {
        let mut said = Self::default();
        for entry in std::fs::read_dir(logs)? {
            std::fs::read_to_string(entry?.path())?.lines().for_each(|line| said.hear(line));
        }
        Ok(said)
    }

    fn hear(&mut self, line: &str) {
        // A line that is no JSON is none of an agent's.
        let Ok(line) = serde_json::from_str::<Value>(line) else { return };
        if line["message"] == KILLED {
            self.killed += 1;
        } else if line["message"] == LEFT {
            self.least = self.least.into_iter().chain(line["millis"].as_u64()).min();
        }
    }
}

/// What else runs on the machine. It ends with this.
struct Neighbours {
    over: Arc<AtomicBool>,
    flushed: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Neighbours {
    fn start(load: Load, scratch: &Path) -> std::io::Result<Self> {
        let mut all = Self { over: Arc::default(), flushed: Arc::default(), threads: vec![] };
        for number in 0..load.writers {
            let path = scratch.join(format!("written-{number}"));
            let file = OpenOptions::new().create(true).truncate(true).write(true).open(&path)?;
            let (over, flushed) = (all.over.clone(), all.flushed.clone());
            all.threads.push(std::thread::spawn(move || write(file, &path, &over, &flushed)));
        }
        for _ in 0..load.busy {
            let over = all.over.clone();
            all.threads.push(std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            }));
        }
        Ok(all)
    }

    fn end(self) -> u64 {
        let flushed = self.flushed.clone();
        drop(self);
        flushed.load(Ordering::Relaxed)
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// Until it is over, or the disk takes no more.
fn write(mut file: File, path: &PathBuf, over: &AtomicBool, flushed: &AtomicU64) {
    let block = vec![0x5a_u8; BLOCK];
    let mut at = 0;
    while !over.load(Ordering::Relaxed) && file.write_all(&block).and_then(|()| file.sync_data()).is_ok() {
        flushed.fetch_add((BLOCK >> 20) as u64, Ordering::Relaxed);
        at += BLOCK as u64;
        if at >= LARGEST {
            at = 0;
            if file.seek(SeekFrom::Start(0)).is_err() {
                break;
            }
        }
    }
    // Nobody needs it any more.
    let _ = std::fs::remove_file(path);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_and_the_least_are_taken_from_what_agents_say_and_from_nothing_else() {
        let logs = tempfile::tempdir().unwrap();
        let said = |millis: u64, what: &str| format!(r#"{{"level":"info","message":"{what}","millis":{millis}}}"#);
        std::fs::write(logs.path().join("a.log"), format!("starting\n{}\n{}\n", said(1_900, LEFT), said(3, "else")))
            .unwrap();
        assert_eq!(Said::read(logs.path()).unwrap(), Said { killed: 0, least: Some(1_900) });
        std::fs::write(logs.path().join("b.log"), format!("{}\n{}\n", said(1_700, LEFT), said(0, KILLED))).unwrap();
        assert_eq!(Said::read(logs.path()).unwrap(), Said { killed: 1, least: Some(1_700) });
    }

    #[test]
    fn neighbours_write_and_end() {
        let scratch = tempfile::tempdir().unwrap();
        let load = Load { lasting: Duration::ZERO, busy: 1, writers: 1 };
        let neighbours = Neighbours::start(load, scratch.path()).unwrap();
        while neighbours.flushed.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        assert!(neighbours.end() > 0);
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
    }
}
