//! Replication slots: what keeps WAL for an instance that is away.
//!
//! Must never happen: that a slot of a user's is dropped. A [`SlotName`] is always one of ours.

use bellwether_core::wal::Lsn;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

use super::facts::Answer;
use super::roles::Changed;
use super::{Session, SqlError};
use crate::slot::SlotName;

/// A replication slot, anybody's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its name.
    pub name: String,
    /// Whether it is for physical replication.
    pub physical: bool,
    /// Whether somebody streams from it now.
    pub active: bool,
    /// From where on it keeps WAL; `None` when it keeps none.
    pub restart: Option<Lsn>,
    /// Whether WAL that it should have kept is gone: who uses it must be cloned again.
    pub lost: bool,
}

const SLOTS: &str = "
    select slot_name::text as name, slot_type = 'physical' as physical, active, restart_lsn::text as restart,
           coalesce(wal_status = 'lost', false) as lost
      from pg_replication_slots
     where not temporary
     order by slot_name";

impl Session {
    /// All slots but temporary ones.
    pub async fn slots(&self) -> Result<Vec<Slot>, SqlError> {
        const WHAT: &str = "ask for replication slots";
        let rows = self.within(WHAT, self.client.query(SLOTS, &[])).await?;
        let slot = |row: &Row| {
            let row = Answer { what: WHAT, row };
            Ok(Slot {
                name: row.get("name")?,
                physical: row.get("physical")?,
                active: row.get("active")?,
                restart: row.parsed("restart")?,
                lost: row.get("lost")?,
            })
        };
        rows.iter().map(slot).collect()
    }

    /// Makes sure that there is a physical slot. A new one keeps WAL from now on, so that a clone that begins now finds all
    /// it needs.
    pub async fn ensure_slot(&self, slot: &SlotName) -> Result<Changed, SqlError> {
        const WHAT: &str = "create a replication slot";
        const CREATE: &str = "select 1 from pg_create_physical_replication_slot($1::text::name, true)";
        if self.slots().await?.iter().any(|present| present.name == slot.as_str()) {
            return Ok(Changed::No);
        }
        match self.within(WHAT, self.client.query(CREATE, &[&slot.as_str()])).await {
            Ok(_) => Ok(Changed::Yes),
            Err(error) if error.code() == Some(&SqlState::DUPLICATE_OBJECT) => Ok(Changed::No),
            Err(error) => Err(error),
        }
    }

    /// Lets a physical slot that nobody uses keep WAL only from here on.
    pub async fn advance_slot(&self, slot: &SlotName, to: Lsn) -> Result<(), SqlError> {
        const WHAT: &str = "move a replication slot on";
        const ADVANCE: &str = "select 1 from pg_replication_slot_advance($1::text::name, $2::text::pg_lsn)";
        self.within(WHAT, self.client.query(ADVANCE, &[&slot.as_str(), &to.to_string()])).await.map(drop)
    }

    /// How far a standby has replayed, and from where on it would replay after a crash.
    pub async fn replayed_and_redo(&self) -> Result<(Option<Lsn>, Option<Lsn>), SqlError> {
        const WHAT: &str = "ask how far it has replayed";
        const SQL: &str =
            "select pg_last_wal_replay_lsn()::text as replayed, redo_lsn::text as redo from pg_control_checkpoint()";
        let row = self.within(WHAT, self.client.query_one(SQL, &[])).await?;
        let row = Answer { what: WHAT, row: &row };
        Ok((row.parsed("replayed")?, row.parsed("redo")?))
    }

    /// Makes sure that there is no such slot. One in use is not dropped: that is an error.
    pub async fn drop_slot(&self, slot: &SlotName) -> Result<Changed, SqlError> {
        const WHAT: &str = "drop a replication slot";
        const DROP: &str = "select 1 from pg_drop_replication_slot($1::text::name)";
        match self.within(WHAT, self.client.query(DROP, &[&slot.as_str()])).await {
            Ok(_) => Ok(Changed::Yes),
            Err(error) if error.code() == Some(&SqlState::UNDEFINED_OBJECT) => Ok(Changed::No),
            Err(error) => Err(error),
        }
    }
}
