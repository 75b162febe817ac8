//! What a restored database brings along from its original that would act in that one's name.
//!
//! Must never happen: that any of this is asked of a database that somebody uses. Here slots of users' are dropped.

use tokio_postgres::Row;

use super::facts::Answer;
use super::quote::ident;
use super::{Session, SqlError};

impl Session {
    /// Drops every replication slot. Answers their names.
    pub async fn drop_slots_of_original(&self) -> Result<Vec<String>, SqlError> {
        const DROP: &str =
            "select slot_name::text as name, pg_drop_replication_slot(slot_name) from pg_replication_slots";
        self.names("drop the original's replication slots", DROP).await
    }

    /// The databases in which subscriptions are enabled.
    pub async fn databases_with_subscriptions(&self) -> Result<Vec<String>, SqlError> {
        const SQL: &str = "select distinct datname::text as name from pg_subscription join pg_database d on d.oid = subdbid \
                           where subenabled order by 1";
        self.names("ask for subscriptions", SQL).await
    }

    /// Disables the subscriptions of this database. Answers their names.
    pub async fn disable_subscriptions(&self) -> Result<Vec<String>, SqlError> {
        const SQL: &str = "select subname::text as name from pg_subscription join pg_database d on d.oid = subdbid \
                           where subenabled and datname = current_database() order by 1";
        let names = self.names("ask for subscriptions", SQL).await?;
        for name in &names {
            self.execute("disable a subscription", &format!("alter subscription {} disable", ident(name))).await?;
        }
        Ok(names)
    }

    async fn names(&self, what: &'static str, sql: &str) -> Result<Vec<String>, SqlError> {
        let rows = self.within(what, self.client.query(sql, &[])).await?;
        rows.iter().map(|row: &Row| Answer { what, row }.get("name")).collect()
    }
}
