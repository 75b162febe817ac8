//! The checks that write rows on the primary and look for them on the standbys.

use std::time::{Duration, Instant};

use bellwether_api::names::Names;
use tokio_postgres::Client as Session;
use tokio_postgres::error::SqlState;

use super::{CONNECT_WITHIN, Figures, Lag, Trial, TrialError};
use crate::connection::{Connection, Target, describe, sql};
use crate::view::ClusterView;

/// Rows of the first check: enough that some are in flight, few enough to take a moment.
const ROWS: u32 = 1000;
/// Commits whose way to the standbys is timed: p50 is steady and a slow one is caught.
const SAMPLES: usize = 50;
/// A standby that streams has a row within milliseconds; after this long it doesn't stream.
const VISIBLE_WITHIN: Duration = Duration::from_secs(10);
/// How long we wait before looking again. Waiting less would measure our own load.
const LOOK_EVERY: Duration = Duration::from_micros(500);

const TABLE: &str = "bellwether_trial";

impl Trial {
    /// Writes rows through the read-write Service.
    pub(super) async fn write(&self, figures: &mut Figures) -> Result<String, TrialError> {
        let connection = self.connection().await?;
        let rw = connection.service(&self.client, &Names::of(&self.cluster).rw()).await?;
        let session = connection.open(&rw, CONNECT_WITHIN).await?;
        let text = format!(
            "drop table if exists {TABLE}; create table {TABLE} (id bigint primary key, written timestamptz default clock_timestamp());
             insert into {TABLE} (id) select generate_series(1, {ROWS});"
        );
        session.batch_execute(&text).await.map_err(|error| sql(&rw, describe(&error)))?;
        let secure = one(
            &session,
            &rw,
            "select ssl::text || ' ' || coalesce(version, '') from pg_stat_ssl where pid = pg_backend_pid()",
        )
        .await?;
        if !secure.starts_with("true") {
            return Err(TrialError::Broken(format!("{} answers without TLS", rw.host)));
        }
        figures.rows = ROWS;
        Ok(format!("{ROWS} rows through {} ({}), {}", rw.host, rw.address, secure.trim_start_matches("true ")))
    }

    /// Reads the rows from each standby, and through the read-only Service.
    pub(super) async fn read(&self, view: &ClusterView, rows: u32) -> Result<String, TrialError> {
        let connection = self.connection().await?;
        let mut seen = vec![];
        for standby in view.standbys() {
            let target = self.instance(&connection, &standby.name).await?;
            self.has_rows(&connection, &target, rows).await?;
            seen.push(standby.name.clone());
        }
        if seen.len() + 1 != view.instances.len() {
            return Err(TrialError::Broken(format!(
                "of {} instances only {} are standbys",
                view.instances.len(),
                seen.len()
            )));
        }
        if seen.is_empty() {
            return Ok("there is no standby".to_owned());
        }
        let ro = connection.service(&self.client, &Names::of(&self.cluster).ro()).await?;
        self.has_rows(&connection, &ro, rows).await?;
        Ok(format!("{rows} rows on {} and through {}", seen.join(", "), ro.host))
    }

    async fn has_rows(&self, connection: &Connection, target: &Target, rows: u32) -> Result<(), TrialError> {
        let session = connection.open(target, CONNECT_WITHIN).await?;
        if one(&session, target, "select pg_is_in_recovery()::text").await? != "true" {
            return Err(TrialError::Broken(format!("{} ({}) is not a standby", target.host, target.address)));
        }
        until_visible(&session, target, &format!("select (count(*) = {rows})::text from {TABLE}")).await.map(drop)
    }

    /// Times rows on their way from a commit to each standby.
    pub(super) async fn lag(&self, view: &ClusterView) -> Result<Vec<Lag>, TrialError> {
        let connection = self.connection().await?;
        let rw = connection.service(&self.client, &Names::of(&self.cluster).rw()).await?;
        let primary = connection.open(&rw, CONNECT_WITHIN).await?;
        let mut standbys = vec![];
        for standby in view.standbys() {
            let target = self.instance(&connection, &standby.name).await?;
            let session = connection.open(&target, CONNECT_WITHIN).await?;
            standbys.push((standby.name.clone(), target, session, Vec::with_capacity(SAMPLES)));
        }
        for sample in 1..=SAMPLES {
            let id = 1_000_000 + sample;
            let insert = format!("insert into {TABLE} (id) values ({id})");
            primary.batch_execute(&insert).await.map_err(|error| sql(&rw, describe(&error)))?;
            let committed = Instant::now();
            let look = format!("select exists (select from {TABLE} where id = {id})::text");
            let looks = standbys.iter_mut().map(|(_, target, session, samples)| {
                let look = &look;
                async move {
                    let seen = until_visible(session, target, look).await?;
                    samples.push(seen.duration_since(committed));
                    Ok::<_, TrialError>(())
                }
            });
            futures::future::try_join_all(looks).await?;
        }
        Ok(standbys.into_iter().map(|(instance, _, _, samples)| summary(instance, samples)).collect())
    }
}

/// Asks until the answer is `true`; returns when the first such answer came. A standby may not even have the table yet: commits wait
/// for a quorum, not for everybody, and a standby that has a commit may not have replayed it.
async fn until_visible(session: &Session, target: &Target, question: &str) -> Result<Instant, TrialError> {
    let asked = Instant::now();
    loop {
        match session.query_one(question, &[]).await {
            Ok(row) if row.get::<_, String>(0) == "true" => return Ok(Instant::now()),
            Ok(_) => {}
            Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => {}
            Err(error) => return Err(sql(target, describe(&error)).into()),
        }
        if asked.elapsed() > VISIBLE_WITHIN {
            let problem =
                format!("{} ({}) did not have the rows within {VISIBLE_WITHIN:?}", target.host, target.address);
            return Err(TrialError::Broken(problem));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn one(session: &Session, target: &Target, question: &str) -> Result<String, TrialError> {
    let row = session.query_one(question, &[]).await.map_err(|error| sql(target, describe(&error)))?;
    Ok(row.get(0))
}

fn summary(instance: String, mut samples: Vec<Duration>) -> Lag {
    samples.sort();
    let milliseconds = |sample: Option<&Duration>| sample.map_or(0.0, |sample| sample.as_secs_f64() * 1000.0);
    Lag {
        instance,
        samples: samples.len(),
        p50_milliseconds: milliseconds(samples.get(samples.len() / 2)),
        max_milliseconds: milliseconds(samples.last()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_the_middle_and_the_worst() {
        let samples = [5, 1, 9].map(Duration::from_millis).to_vec();
        let lag = summary("db-2".into(), samples);
        assert!((lag.p50_milliseconds - 5.0).abs() < 0.001 && (lag.max_milliseconds - 9.0).abs() < 0.001);
    }
}
