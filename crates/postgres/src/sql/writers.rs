//! Ends statements that write, on a primary that has no room for what they write.

use std::time::Duration;

use super::facts::Answer;
use super::{Session, SqlError};

impl Session {
    /// Cancels the statements of transactions that have written something and began longer than `ago`. Sessions stay. A commit that waits for
    /// standbys is left alone: it has written all it has to, and cancelling it would acknowledge it.
    pub async fn cancel_writers(&self, ago: Duration) -> Result<i64, SqlError> {
        const WHAT: &str = "cancel statements that write";
        const SQL: &str = "select count(*) filter (where pg_cancel_backend(pid)) as cancelled
              from pg_stat_activity
             where backend_type = 'client backend' and state = 'active' and backend_xid is not null
               and pid <> pg_backend_pid() and wait_event is distinct from 'SyncRep'
               and xact_start < clock_timestamp() - make_interval(secs => $1)";
        let row = self.within(WHAT, self.client.query_one(SQL, &[&ago.as_secs_f64()])).await?;
        Answer { what: WHAT, row: &row }.get("cancelled")
    }
}
