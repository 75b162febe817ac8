//! The check that kills the primary while somebody writes: the instances agree on who leads, and every acknowledged row is there.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use bellwether_api::names::Names;
use bellwether_core::contract::POSTGRES_PORT;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio_postgres::Client as Session;

use super::{CONNECT_WITHIN, Failover, Trial, TrialError};
use crate::connection::{Connection, Target};
use crate::proc;
use crate::view::ClusterView;

/// Rows that are acknowledged before the kill, and after it.
const BEFORE: u64 = 100;
const AFTER: u64 = 100;
/// How long writes may be away before the check gives up.
const GIVE_UP: Duration = Duration::from_secs(60);
/// How long one row may take: a session with a server that is gone must not hang.
const ROW_WITHIN: Duration = Duration::from_secs(2);
/// Between two attempts while nobody accepts writes.
const TRY_AGAIN: Duration = Duration::from_millis(5);

/// One client that writes numbered rows, and opens a session anew when it lost its own.
struct Writer<'a> {
    connection: &'a Connection,
    rw: &'a Target,
    session: Option<Session>,
    acknowledged: Vec<i64>,
    last: Instant,
    longest: Duration,
}

impl Writer<'_> {
    /// Writes until so many more rows are acknowledged.
    async fn write(&mut self, more: u64) -> Result<(), TrialError> {
        let (goal, began) = (self.acknowledged.len() as u64 + more, Instant::now());
        let mut id = self.acknowledged.last().copied().unwrap_or(0);
        while (self.acknowledged.len() as u64) < goal {
            id += 1;
            if self.row(id).await {
                self.longest = self.longest.max(self.last.elapsed());
                self.last = Instant::now();
                self.acknowledged.push(id);
            } else if began.elapsed() > GIVE_UP {
                return Err(TrialError::Broken(format!("nobody accepts writes for {GIVE_UP:?}")));
            } else {
                tokio::time::sleep(TRY_AGAIN).await;
            }
        }
        Ok(())
    }

    async fn row(&mut self, id: i64) -> bool {
        if self.session.as_ref().is_none_or(Session::is_closed) {
            self.session = self.connection.open(self.rw, ROW_WITHIN).await.ok();
        }
        let Some(session) = &self.session else { return false };
        let insert = format!("insert into bellwether_trial_failover values ({id})");
        let written = tokio::time::timeout(ROW_WITHIN, session.batch_execute(&insert)).await;
        if !matches!(written, Ok(Ok(()))) {
            self.session = None;
        }
        matches!(written, Ok(Ok(())))
    }
}

impl Trial {
    /// Kills the primary's postmaster with −9 under a client that writes.
    pub(super) async fn failover(&self, view: &ClusterView) -> Result<(Failover, String), TrialError> {
        let broken = |why: &str| TrialError::Broken(why.to_owned());
        let primary = view.primary().ok_or_else(|| broken("there is no primary"))?.name.clone();
        let connection = self.connection().await?;
        let rw = connection.service(&self.client, &Names::of(&self.cluster).rw()).await?;
        let session = connection.open(&rw, CONNECT_WITHIN).await?;
        let table = "drop table if exists bellwether_trial_failover; create table bellwether_trial_failover (id bigint primary key)";
        session.batch_execute(table).await.map_err(|error| TrialError::Broken(error.to_string()))?;
        let mut writer = Writer {
            connection: &connection,
            rw: &rw,
            session: Some(session),
            acknowledged: vec![],
            last: Instant::now(),
            longest: Duration::ZERO,
        };
        writer.write(BEFORE).await?;
        let address = self.instance(&connection, &primary).await?.address;
        let (pid, _) = proc::listener(SocketAddr::new(address, POSTGRES_PORT))
            .ok_or_else(|| broken("nobody listens at the primary's address"))?;
        writer.longest = Duration::ZERO;
        kill(Pid::from_raw(pid), Signal::SIGKILL).map_err(|errno| TrialError::Broken(errno.to_string()))?;
        writer.write(AFTER).await?;
        let gap = writer.longest;

        let (after, now) = self.until_status_agrees(&connection, &rw).await?;
        let expected = writer.acknowledged;
        for instance in &after.instances {
            let target = self.instance(&connection, &instance.name).await?;
            self.has_all(&connection, &target, &expected).await?;
        }
        let seconds = gap.as_secs_f64();
        let seen = format!(
            "{primary} killed, {now} {} after a gap of {:.0} ms; all of {} acknowledged rows are on each instance",
            if now == primary { "leads again" } else { "leads" },
            seconds * 1000.0,
            expected.len()
        );
        Ok((Failover { from: primary, to: now, gap_seconds: seconds }, seen))
    }

    /// Ready by its status again, which names the primary that the read-write Service leads to.
    async fn until_status_agrees(
        &self,
        connection: &Connection,
        rw: &Target,
    ) -> Result<(ClusterView, String), TrialError> {
        let began = Instant::now();
        loop {
            let (view, _) = self.until_ready().await?;
            let named = view.primary().map(|primary| primary.name.clone());
            let answers = self.behind(connection, rw, &view).await;
            match (named, answers) {
                (Some(named), Ok(Some(answers))) if named == answers => return Ok((view, named)),
                (named, answers) if began.elapsed() > GIVE_UP => {
                    let why = format!("status names {named:?} as primary, the read-write Service leads to {answers:?}");
                    return Err(TrialError::Broken(why));
                }
                _ => tokio::time::sleep(TRY_AGAIN * 10).await,
            }
        }
    }

    /// The instance that answers at `target`.
    async fn behind(
        &self,
        connection: &Connection,
        target: &Target,
        view: &ClusterView,
    ) -> Result<Option<String>, TrialError> {
        let session = connection.open(target, CONNECT_WITHIN).await?;
        let row = session.query_one("select inet_server_addr()", &[]).await;
        let address: IpAddr = row.map_err(|error| TrialError::Broken(error.to_string()))?.get(0);
        for instance in &view.instances {
            if self.instance(connection, &instance.name).await?.address == address {
                return Ok(Some(instance.name.clone()));
            }
        }
        Ok(None)
    }

    async fn has_all(&self, connection: &Connection, target: &Target, expected: &[i64]) -> Result<(), TrialError> {
        let began = Instant::now();
        loop {
            let session = connection.open(target, CONNECT_WITHIN).await?;
            let question = "select count(*) from bellwether_trial_failover where id = any($1)";
            let found: i64 = match session.query_one(question, &[&expected]).await {
                Ok(row) => row.get(0),
                Err(_) => -1,
            };
            if usize::try_from(found) == Ok(expected.len()) {
                return Ok(());
            }
            if began.elapsed() > GIVE_UP {
                let why = format!("{} has {found} of {} acknowledged rows", target.host, expected.len());
                return Err(TrialError::Broken(why));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}
