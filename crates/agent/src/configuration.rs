//! What a running server makes of the configuration that we wrote: said in the report, because only a person can help.

use std::collections::BTreeMap;
use std::time::Duration;

use bellwether_core::contract::parameters_hash;
use bellwether_postgres::sql::{Session, SqlError};
use tokio::time::Instant;

/// How often the server is asked.
const CHECK: Duration = Duration::from_secs(10);
/// How long it takes to read its files after it was told to.
const READING: Duration = Duration::from_secs(1);

/// The server's complaints, kept between looks.
#[derive(Debug)]
pub struct Configuration {
    complaints: Vec<String>,
    pending: Vec<String>,
    /// Of them, those that only a restart as primary lowers.
    lowered: Vec<String>,
    /// The hash of the parameters that this is known of.
    of: Option<String>,
    due: Instant,
}

impl Configuration {
    /// Nothing is known yet.
    pub fn unknown() -> Self {
        Self { complaints: vec![], pending: vec![], lowered: vec![], of: None, due: Instant::now() }
    }

    /// It was written again.
    pub fn written(&mut self) {
        self.due = Instant::now() + READING;
    }

    /// Asks, now and then. These are the parameters that the files were written with.
    pub async fn look(&mut self, session: &Session, parameters: &BTreeMap<String, String>) -> Result<(), SqlError> {
        if Instant::now() < self.due {
            return Ok(());
        }
        let mut complaints = vec![];
        let pending = session.pending_restart().await?;
        if !pending.is_empty() {
            complaints.push(format!("pending restart: {}", pending.join(", ")));
        }
        let lowered = if pending.is_empty() { vec![] } else { session.lowered().await? };
        for error in session.file_errors().await? {
            let name = error.name.map(|name| format!(" {name}")).unwrap_or_default();
            complaints.push(format!("{}{name}: {}", error.file, error.error));
        }
        self.complaints = complaints;
        self.pending = pending;
        self.lowered = lowered;
        self.of = Some(parameters_hash(parameters));
        self.due = Instant::now() + CHECK;
        Ok(())
    }

    /// Parameters whose new value waits for a restart.
    pub fn pending(&self) -> &[String] {
        &self.pending
    }

    /// Those of them that only a restart as primary lowers.
    pub fn lowered(&self) -> &[String] {
        &self.lowered
    }

    /// Whether nothing else waits for a restart, and something does.
    pub fn waits_only_to_be_lower(&self) -> bool {
        !self.pending.is_empty() && self.pending.iter().all(|name| self.lowered.contains(name))
    }

    /// The hash of the parameters that this is known of.
    pub fn of(&self) -> Option<String> {
        self.of.clone()
    }

    /// What it complained about.
    pub fn complaints(&self) -> &[String] {
        &self.complaints
    }
}
