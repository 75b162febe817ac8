//! What a running server makes of its configuration: what it has taken over, what waits for a restart, what it refuses.

use std::collections::BTreeMap;

use tokio_postgres::Row;

use super::facts::Answer;
use super::{Session, SqlError};

/// What it takes to change a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// It can't be changed.
    Internal,
    /// A restart.
    Restart,
    /// A reload is enough.
    Reload,
}

/// A line that the server does not accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// Which file: `postgresql.conf` or `pg_hba.conf`.
    pub file: &'static str,
    /// Its line, where it is known.
    pub line: Option<i32>,
    /// The setting, or the rule's kind.
    pub name: Option<String>,
    /// What the server said.
    pub error: String,
}

/// A setting that needs a restart is also listed there as an error, but it is none: it waits.
const SETTING_ERRORS: &str = "
    select sourceline as line, name, error
      from pg_file_settings as written
     where error is not null
       and not exists (select from pg_settings as s where s.name = written.name and s.pending_restart)";
const HBA_ERRORS: &str =
    "select line_number as line, type as name, error from pg_hba_file_rules where error is not null";

impl Session {
    /// Makes the server read its files again. It does so soon after, not at once.
    pub async fn reload(&self) -> Result<(), SqlError> {
        self.within("reload the configuration", self.client.query_one("select pg_reload_conf()", &[])).await.map(drop)
    }

    /// Makes a standby a primary, on a timeline of its own. It does so soon after, not at once.
    pub async fn promote(&self) -> Result<(), SqlError> {
        self.within("promote", self.client.query_one("select pg_promote(false)", &[])).await.map(drop)
    }

    /// Settings whose new value waits for a restart.
    pub async fn pending_restart(&self) -> Result<Vec<String>, SqlError> {
        const WHAT: &str = "ask which settings wait for a restart";
        const PENDING: &str = "select name from pg_settings where pending_restart order by name";
        let rows = self.within(WHAT, self.client.query(PENDING, &[])).await?;
        rows.iter().map(|row| Answer { what: WHAT, row }.get("name")).collect()
    }

    /// Those of them whose new value is lower, and that no standby may have below its primary's: a restart as primary lowers them.
    pub async fn lowered(&self) -> Result<Vec<String>, SqlError> {
        const WHAT: &str = "ask which settings are to be lower";
        // Of several lines the last one counts.
        const LOWERED: &str = "
            select s.name
              from pg_settings as s,
                   lateral (select f.setting from pg_file_settings as f where f.name = s.name order by f.seqno desc limit 1) as written
             where s.pending_restart
               and s.name in ('max_connections', 'max_worker_processes', 'max_wal_senders', 'max_prepared_transactions',
                              'max_locks_per_transaction')
               and case when written.setting ~ '^[0-9]+$' then written.setting::bigint < s.setting::bigint else false end
             order by s.name";
        let rows = self.within(WHAT, self.client.query(LOWERED, &[])).await?;
        rows.iter().map(|row| Answer { what: WHAT, row }.get("name")).collect()
    }

    /// What it takes to change each of these settings. Those that the server does not know are left out.
    pub async fn contexts(&self, names: &[&str]) -> Result<BTreeMap<String, Context>, SqlError> {
        const WHAT: &str = "ask what it takes to change settings";
        const CONTEXTS: &str = "select name, context from pg_settings where name = any(string_to_array($1::text, ','))";
        let names = names.join(",").to_lowercase();
        let rows = self.within(WHAT, self.client.query(CONTEXTS, &[&names])).await?;
        let context = |row: &Row| {
            let row = Answer { what: WHAT, row };
            let context = match row.get("context")? {
                "internal" => Context::Internal,
                "postmaster" => Context::Restart,
                _ => Context::Reload,
            };
            Ok((row.get("name")?, context))
        };
        rows.iter().map(context).collect()
    }

    /// Lines of the files, as they are now, that the server does not accept. While there are any, it keeps what it had.
    pub async fn file_errors(&self) -> Result<Vec<FileError>, SqlError> {
        const WHAT: &str = "ask whether the configuration is accepted";
        let mut errors = vec![];
        for (file, sql) in [(crate::conf::NAME, SETTING_ERRORS), (crate::hba::NAME, HBA_ERRORS)] {
            for row in self.within(WHAT, self.client.query(sql, &[])).await? {
                let row = Answer { what: WHAT, row: &row };
                errors.push(FileError {
                    file,
                    line: row.get("line")?,
                    name: row.get("name")?,
                    error: row.get("error")?,
                });
            }
        }
        Ok(errors)
    }

    /// Whether there is a table of this (qualified) name in the session's database.
    pub async fn has_table(&self, name: &str) -> Result<bool, SqlError> {
        const WHAT: &str = "look for a table";
        let row =
            self.within(WHAT, self.client.query_one("select to_regclass($1::text) is not null as v", &[&name])).await?;
        Answer { what: WHAT, row: &row }.get("v")
    }

    /// A setting's value as the server has it.
    pub async fn setting(&self, name: &str) -> Result<Option<String>, SqlError> {
        const WHAT: &str = "ask for a setting";
        let row =
            self.within(WHAT, self.client.query_one("select current_setting($1::text, true) as v", &[&name])).await?;
        Answer { what: WHAT, row: &row }.get("v")
    }

    /// Ends a session of the server's, if it is still there.
    pub async fn terminate(&self, pid: i32) -> Result<(), SqlError> {
        const TERMINATE: &str = "select pg_terminate_backend($1::int4)";
        self.within("end a session", self.client.query_one(TERMINATE, &[&pid])).await.map(drop)
    }
}
