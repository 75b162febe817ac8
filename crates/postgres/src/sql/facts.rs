//! What a server says about itself and about those that follow it.

use std::str::FromStr;

use bellwether_core::wal::{Lsn, SystemIdentifier, Timeline};
use tokio_postgres::Row;

use super::{Session, SqlError};

/// What a server says about itself, all at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerState {
    /// Whether it follows another one.
    pub in_recovery: bool,
    /// Whose data it serves.
    pub system_identifier: SystemIdentifier,
    /// Its timeline: the one it writes, or receives, or last replayed.
    pub timeline: Timeline,
    /// How far it has written; on a primary.
    pub written: Option<Lsn>,
    /// How far it has received and flushed; on a standby that has received anything since it started.
    pub received: Option<Lsn>,
    /// How far it has replayed; on a standby.
    pub replayed: Option<Lsn>,
    /// How old the last replayed commit is; 0 when everything received is replayed; `None` on a primary, and on a
    /// standby that has replayed no commit.
    pub lag_seconds: Option<f64>,
    /// Its connection to the primary; `None` when it has none.
    pub receiver: Option<Receiver>,
    /// When its postmaster started (RFC 3339).
    pub started: String,
    /// Its version, such as `17.6`.
    pub version: String,
}

/// A standby's connection to its primary.
#[derive(Clone, Debug, PartialEq)]
pub struct Receiver {
    /// Whether WAL is coming. A receiver that connects, waits or restarts is not streaming.
    pub streaming: bool,
    /// What PostgreSQL calls what it does.
    pub status: String,
    /// Whom it is connected to, once it is.
    pub host: Option<String>,
    /// The slot it uses.
    pub slot: Option<String>,
    /// How far the other had written when it last sent anything.
    pub sender_end: Option<Lsn>,
    /// How long ago it heard anything, in seconds.
    pub silent_seconds: Option<f64>,
}

/// A standby as its primary sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standby {
    /// What it calls itself: its instance's name.
    pub application_name: String,
    /// Its address, unless it came through the socket.
    pub address: Option<String>,
    /// Whether it has caught up and is streaming.
    pub streaming: bool,
    /// How far it has flushed.
    pub flushed: Option<Lsn>,
    /// How far it has replayed.
    pub replayed: Option<Lsn>,
    /// Whether commits wait for it.
    pub synchronous: bool,
}

/// A process that sends WAL to a standby.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sender {
    /// Its number, and when it started: another process can get the same number.
    pub process: (i32, String),
    /// The `application_name` of its standby.
    pub application_name: String,
    /// The time in the standby's last reply.
    pub replied: Option<String>,
    /// Flushed there.
    pub flushed: Option<Lsn>,
}

const SENDERS: &str = "
    select pid, backend_start::text as began, application_name, reply_time::text as replied, flush_lsn::text as flushed
      from pg_stat_replication where state in ('streaming', 'catchup')";

const STATE: &str = "
    with here as (
        select pg_is_in_recovery() as recovery, pg_last_wal_receive_lsn() as received, pg_last_wal_replay_lsn() as replayed
    ), position as (
        select case when recovery then null else pg_current_wal_lsn() end as written from here
    )
    select recovery,
           (select system_identifier::text from pg_control_system()) as system_identifier,
           case when recovery then null else substr(pg_walfile_name(written), 1, 8) end as written_timeline,
           coalesce(receiver.received_tli,
                    greatest((select min_recovery_end_timeline from pg_control_recovery()),
                             (select timeline_id from pg_control_checkpoint())))::bigint as followed_timeline,
           written::text as written,
           case when recovery then received::text end as received,
           case when recovery then replayed::text end as replayed,
           case when not recovery then null
                when received <= replayed then 0
                else extract(epoch from clock_timestamp() - pg_last_xact_replay_timestamp())
           end::float8 as lag_seconds,
           receiver.status, receiver.sender_host, receiver.slot_name::text as slot,
           receiver.latest_end_lsn::text as sender_end,
           extract(epoch from clock_timestamp() - receiver.last_msg_receipt_time)::float8 as silent_seconds,
           to_char(pg_postmaster_start_time() at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"') as started,
           split_part(current_setting('server_version'), ' ', 1) as version
      from here cross join position left join pg_stat_wal_receiver as receiver on true";

const STANDBYS: &str = "
    select application_name, host(client_addr) as address, state = 'streaming' as streaming,
           flush_lsn::text as flushed, replay_lsn::text as replayed, sync_state in ('sync', 'quorum') as synchronous
      from pg_stat_replication
     order by application_name, pid";

impl Session {
    /// What the server says about itself.
    pub async fn state(&self) -> Result<ServerState, SqlError> {
        const WHAT: &str = "ask for the server's state";
        let row = self.within(WHAT, self.client.query_one(STATE, &[])).await?;
        let row = Answer { what: WHAT, row: &row };
        let in_recovery = row.get("recovery")?;
        let timeline = if in_recovery {
            let followed: i64 = row.get("followed_timeline")?;
            u32::try_from(followed).ok()
        } else {
            u32::from_str_radix(row.get("written_timeline")?, 16).ok()
        };
        let status: Option<String> = row.get("status")?;
        Ok(ServerState {
            in_recovery,
            system_identifier: row.required("system_identifier")?,
            timeline: Timeline(timeline.filter(|timeline| *timeline > 0).ok_or_else(|| row.odd("timeline"))?),
            written: row.parsed("written")?,
            received: row.parsed("received")?,
            replayed: row.parsed("replayed")?,
            lag_seconds: row.get("lag_seconds")?,
            receiver: match status {
                None => None,
                Some(status) => Some(Receiver {
                    streaming: status == "streaming",
                    status,
                    host: row.get("sender_host")?,
                    slot: row.get("slot")?,
                    sender_end: row.parsed("sender_end")?,
                    silent_seconds: row.get("silent_seconds")?,
                }),
            },
            started: row.get("started")?,
            version: row.get("version")?,
        })
    }

    /// The process that serves this session.
    pub async fn backend(&self) -> Result<i32, SqlError> {
        const WHAT: &str = "ask who serves this session";
        let row = self.within(WHAT, self.client.query_one("select pg_backend_pid() as v", &[])).await?;
        Answer { what: WHAT, row: &row }.get("v")
    }

    /// Whether it is in recovery.
    pub async fn in_recovery(&self) -> Result<bool, SqlError> {
        const WHAT: &str = "ask whether it is in recovery";
        let row = self.within(WHAT, self.client.query_one("select pg_is_in_recovery() as v", &[])).await?;
        Answer { what: WHAT, row: &row }.get("v")
    }

    /// How far a primary's WAL is on disk, if anybody waits for more of it to be. Touches no disk itself.
    pub async fn flush_awaited(&self) -> Result<Option<Lsn>, SqlError> {
        const WHAT: &str = "ask whether anybody waits for the disk";
        // Later versions write these names in another case. The view would join catalogs, the function joins nothing.
        const SQL: &str = "select pg_current_wal_flush_lsn()::text as flushed
                             from pg_stat_get_activity(null)
                            where lower(wait_event) in ('walsync', 'walwrite', 'walinitsync', 'walinitwrite', 'walsyncmethodassign')
                            limit 1";
        let row = self.within(WHAT, self.client.query_opt(SQL, &[])).await?;
        row.map_or(Ok(None), |row| Answer { what: WHAT, row: &row }.parsed("flushed"))
    }

    /// The statements whose commit waits for standbys, each by its process and when it began.
    pub async fn waiting_commits(&self) -> Result<Vec<(i32, String)>, SqlError> {
        const WHAT: &str = "ask which commits wait";
        const SQL: &str = "select pid, query_start::text as began from pg_stat_get_activity(null) where wait_event in ('SyncRep', 'SyncRepWait')";
        let rows = self.within(WHAT, self.client.query(SQL, &[])).await?;
        let waits = |row: &Row| {
            let row = Answer { what: WHAT, row };
            let began: Option<String> = row.get("began")?;
            Ok((row.get("pid")?, began.unwrap_or_default()))
        };
        rows.iter().map(waits).collect()
    }

    /// Those that stream, by name, and the bytes that each has not flushed.
    pub async fn lags(&self) -> Result<Vec<(String, u64)>, SqlError> {
        const WHAT: &str = "ask how far the standbys are";
        const SQL: &str = "select application_name as name,
                   greatest(pg_wal_lsn_diff(pg_current_wal_lsn(), flush_lsn), 0)::bigint as lag
              from pg_stat_replication where state = 'streaming' and flush_lsn is not null";
        let rows = self.within(WHAT, self.client.query(SQL, &[])).await?;
        let lag = |row: &Row| {
            let row = Answer { what: WHAT, row };
            let bytes: i64 = row.get("lag")?;
            Ok((row.get("name")?, u64::try_from(bytes).unwrap_or_default()))
        };
        rows.iter().map(lag).collect()
    }

    /// The timeline of its last checkpoint. One that was just promoted has made none on its own timeline.
    pub async fn checkpoint_timeline(&self) -> Result<Timeline, SqlError> {
        const WHAT: &str = "ask for the last checkpoint";
        const SQL: &str = "select timeline_id::bigint as v from pg_control_checkpoint()";
        let row = self.within(WHAT, self.client.query_one(SQL, &[])).await?;
        let row = Answer { what: WHAT, row: &row };
        let timeline: i64 = row.get("v")?;
        u32::try_from(timeline).ok().filter(|timeline| *timeline > 0).map(Timeline).ok_or_else(|| row.odd("v"))
    }

    /// Makes a checkpoint, at once.
    pub async fn checkpoint(&self) -> Result<(), SqlError> {
        self.execute("make a checkpoint", "checkpoint").await
    }

    /// Goes on in a new segment of the log, if more than half of the present one is written, and says where that begins. Whoever follows a new
    /// timeline is sent the segment in which it begins from the start; what is left of this one, standbys are sent now.
    pub async fn begin_segment(&self) -> Result<Option<Lsn>, SqlError> {
        const WHAT: &str = "begin a segment of the log";
        const SQL: &str = "select case when written % segment > segment / 2 then
                    case when pg_switch_wal() is not null
                         then ('0/0'::pg_lsn + (written / segment + 1) * segment)::text end end as v
              from (select (pg_current_wal_lsn() - '0/0')::bigint as written,
                           pg_size_bytes(current_setting('wal_segment_size')) as segment) as log";
        let row = self.within(WHAT, self.client.query_one(SQL, &[])).await?;
        Answer { what: WHAT, row: &row }.parsed("v")
    }

    /// Ends the segment of the log that is being written, if anything is in it, so that it is archived now.
    pub async fn end_segment(&self) -> Result<(), SqlError> {
        self.execute("end a segment of the log", "select pg_catalog.pg_switch_wal()").await
    }

    /// How far a primary has written its log.
    pub async fn written(&self) -> Result<Lsn, SqlError> {
        const WHAT: &str = "ask where the log is";
        let row = self.within(WHAT, self.client.query_one("select pg_current_wal_lsn()::text as v", &[])).await?;
        Answer { what: WHAT, row: &row }.required("v")
    }

    /// The processes that send WAL.
    pub async fn senders(&self) -> Result<Vec<Sender>, SqlError> {
        const WHAT: &str = "ask who sends";
        let rows = self.within(WHAT, self.client.query(SENDERS, &[])).await?;
        let sender = |row: &Row| {
            let row = Answer { what: WHAT, row };
            Ok(Sender {
                process: (row.get("pid")?, row.get("began")?),
                application_name: row.get("application_name")?,
                replied: row.get("replied")?,
                flushed: row.parsed("flushed")?,
            })
        };
        rows.iter().map(sender).collect()
    }

    /// Those that stream from this server now.
    pub async fn standbys(&self) -> Result<Vec<Standby>, SqlError> {
        const WHAT: &str = "ask for the standbys";
        let rows = self.within(WHAT, self.client.query(STANDBYS, &[])).await?;
        let standby = |row: &Row| {
            let row = Answer { what: WHAT, row };
            Ok(Standby {
                application_name: row.get("application_name")?,
                address: row.get("address")?,
                streaming: row.get("streaming")?,
                flushed: row.parsed("flushed")?,
                replayed: row.parsed("replayed")?,
                synchronous: row.get("synchronous")?,
            })
        };
        rows.iter().map(standby).collect()
    }
}

/// A row of an answer; what is not as expected is an error, never a default.
pub(super) struct Answer<'a> {
    pub(super) what: &'static str,
    pub(super) row: &'a Row,
}

impl<'a> Answer<'a> {
    pub(super) fn get<T: tokio_postgres::types::FromSql<'a>>(&self, column: &str) -> Result<T, SqlError> {
        let unexpected = |error| SqlError::Unexpected { what: self.what, problem: format!("{column}: {error}") };
        self.row.try_get(column).map_err(unexpected)
    }

    pub(super) fn parsed<T: FromStr>(&self, column: &str) -> Result<Option<T>, SqlError> {
        let text: Option<&str> = self.get(column)?;
        text.map(|text| text.parse().map_err(|_| self.odd(column))).transpose()
    }

    pub(super) fn required<T: FromStr>(&self, column: &str) -> Result<T, SqlError> {
        self.parsed(column)?.ok_or_else(|| self.odd(column))
    }

    pub(super) fn odd(&self, column: &str) -> SqlError {
        SqlError::Unexpected { what: self.what, problem: format!("{column} is not what it should be") }
    }
}
