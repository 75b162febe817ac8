//! Reads the table of every instance after a run.
//!
//! A row is written on the primary first, and an instance counts as caught up once it shows that row: then it has replayed
//! everything that was committed before, and in the same history. A position in the log would show the first only: a
//! standby that went its own way may be further than its primary. Never: an instance that was not read, or had not caught up,
//! taken for one that lacks rows.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use crate::access::{Access, Target};
use crate::history::{Server, WriterId};
use crate::session::{Deadlines, Session};
use crate::table;

/// How often an instance is asked whether it has caught up.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Reading a table takes longer than writing a row.
const READ_WITHIN: Duration = Duration::from_secs(60);

/// A row's id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct RowId {
    /// The run.
    pub run: String,
    /// The writer.
    pub writer: WriterId,
    /// Its count.
    pub seq: u64,
}

/// What an instance is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// It is not in recovery.
    Primary,
    /// It follows.
    Standby,
}

/// An instance's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinalTable {
    /// Which instance.
    pub instance: String,
    /// What was read, or why nothing was.
    pub content: Result<Content, String>,
}

/// What is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// What the instance says it is.
    pub role: Role,
    /// Who it says it is.
    pub server: Option<Server>,
    /// Whether it is known to have everything that the primary had.
    pub caught_up: bool,
    /// Each row, with how often it is there.
    pub rows: BTreeMap<RowId, u64>,
}

/// Reads the tables of all instances, for these runs. Waits for standbys, for the primary too if there is none yet, for `within`.
pub async fn finals(
    access: &Access,
    runs: &[String],
    instances: &[Target],
    deadlines: Deadlines,
    within: Duration,
) -> Vec<FinalTable> {
    let until = Instant::now() + within;
    let reader = Reader { access, runs, deadlines, until };
    let sentinel = reader.sentinel(instances).await;
    let reads = instances.iter().map(|target| reader.read(target, sentinel.as_deref()));
    futures::future::join_all(reads).await
}

struct Reader<'a> {
    access: &'a Access,
    runs: &'a [String],
    deadlines: Deadlines,
    until: Instant,
}

impl Reader<'_> {
    /// Writes a row on the primary, as soon as one of the instances is it.
    async fn sentinel(&self, instances: &[Target]) -> Option<String> {
        let run = format!("sentinel-{}", uuid::Uuid::new_v4().simple());
        loop {
            for target in instances {
                if self.plant(target, &run).await.is_ok() {
                    return Some(run);
                }
            }
            if Instant::now() >= self.until {
                return None;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// It need not wait for a standby: every instance is going to be asked for it.
    async fn plant(&self, target: &Target, run: &str) -> Result<(), String> {
        let session = Session::open(self.access, target, self.deadlines).await.map_err(|error| error.to_string())?;
        let name = table::NAME;
        let sql = format!(
            "begin read write; set local synchronous_commit = local; insert into {name} (run, writer, seq) values ('{run}', 0, 0); commit"
        );
        session.ask(sql).await?;
        session.close();
        Ok(())
    }

    async fn read(&self, target: &Target, sentinel: Option<&str>) -> FinalTable {
        let instance = target.name();
        loop {
            let is_last = Instant::now() >= self.until;
            let content = match self.look(target, sentinel, is_last).await {
                Ok(None) => Err(()),
                Ok(Some(content)) => Ok(Ok(content)),
                Err(problem) if is_last => Ok(Err(problem)),
                Err(_) => Err(()),
            };
            match content {
                Ok(content) => return FinalTable { instance, content },
                Err(()) => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    }

    /// The table, once the instance has caught up; as it is when there is no more time.
    async fn look(&self, target: &Target, sentinel: Option<&str>, is_last: bool) -> Result<Option<Content>, String> {
        let mut session = self.open(target).await?;
        session.introduce().await?;
        let caught_up = match sentinel {
            None => false,
            Some(run) => {
                let sql = format!("select 1 from {} where run = '{run}' limit 1", table::NAME);
                !session.ask(sql).await?.is_empty()
            }
        };
        if !caught_up && !is_last {
            return Ok(None);
        }
        let rows = self.rows(&session).await?;
        let server = session.server.clone();
        session.close();
        let is_primary = server.as_ref().is_some_and(|server| server.timeline.is_some());
        let role = if is_primary { Role::Primary } else { Role::Standby };
        Ok(Some(Content { role, server, caught_up, rows }))
    }

    async fn rows(&self, session: &Session) -> Result<BTreeMap<RowId, u64>, String> {
        let runs = self.runs.iter().map(|run| format!("'{run}'")).collect::<Vec<_>>().join(", ");
        let sql = format!(
            "select run, writer, seq, count(*) as copies from {} where run in ({runs}) group by 1, 2, 3",
            table::NAME
        );
        let mut rows = BTreeMap::new();
        for row in session.ask(sql).await? {
            let column = |name: &str| row.try_get(name).ok().flatten().ok_or_else(|| format!("no {name} in a row"));
            let number = |name: &str| column(name)?.parse::<u64>().map_err(|error| format!("{name}: {error}"));
            let writer = WriterId(u32::try_from(number("writer")?).map_err(|error| format!("writer: {error}"))?);
            let id = RowId { run: column("run")?.to_owned(), writer, seq: number("seq")? };
            rows.insert(id, number("copies")?);
        }
        Ok(rows)
    }

    async fn open(&self, target: &Target) -> Result<Session, String> {
        let deadlines = Deadlines { statement: READ_WITHIN, ..self.deadlines };
        Session::open(self.access, target, deadlines).await.map_err(|error| error.to_string())
    }
}
