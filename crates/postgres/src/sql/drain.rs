//! What a primary is asked when nobody is to write to it any more: which of its processes write nothing of anybody's, and where its log ends
//! once the others are gone.

use std::collections::BTreeSet;

use bellwether_core::wal::{Lsn, Timeline};

use super::facts::Answer;
use super::{Session, SqlError};

/// Processes that end no transaction. Those that are not named here may: clients, and whatever an extension lets run in the background.
const SILENT: &str = "select pid from pg_stat_activity where pid = pg_backend_pid() or backend_type in (
    'archiver', 'background writer', 'checkpointer', 'io worker', 'logger', 'walsender', 'walsummarizer', 'walwriter')";

/// A commit record, which makes everything before it durable: also what was acknowledged without waiting for the disk. It waits for no
/// standby.
const LAST_WORD: &str =
    "begin; set transaction read write; set local synchronous_commit = local; select pg_current_xact_id(); commit";

impl Session {
    /// The processes of the server that may live on when nobody is to write any more, this session's own among them.
    pub async fn silent_processes(&self) -> Result<BTreeSet<i32>, SqlError> {
        const WHAT: &str = "ask who writes nothing";
        let rows = self.within(WHAT, self.client.query(SILENT, &[])).await?;
        rows.iter().map(|row| Answer { what: WHAT, row }.get("pid")).collect()
    }

    /// Makes everything that was written durable, and says where that ends. Whatever comes after it, if anything does, ends no
    /// transaction of anybody's, if nobody but [`Session::silent_processes`] is left.
    pub async fn last_word(&self) -> Result<(Timeline, Lsn), SqlError> {
        self.execute("make the log durable", LAST_WORD).await?;
        const WHAT: &str = "ask where the log ends";
        const SQL: &str = "select pg_current_wal_flush_lsn()::text as end, substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) as timeline";
        let row = self.within(WHAT, self.client.query_one(SQL, &[])).await?;
        let row = Answer { what: WHAT, row: &row };
        let timeline = u32::from_str_radix(row.get("timeline")?, 16).ok().filter(|timeline| *timeline > 0);
        Ok((Timeline(timeline.ok_or_else(|| row.odd("timeline"))?), row.required("end")?))
    }
}
