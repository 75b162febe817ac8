//! Makes sure of roles, passwords and databases: looks first, and writes only what is different.
//!
//! Must never happen: that a password reaches the server. It gets the SCRAM verifier.

use bellwether_core::contract::REPLICATION_USER;
use tokio_postgres::error::SqlState;

use super::facts::Answer;
use super::quote::{ident, literal};
use super::{Session, SqlError};
use crate::scram::Verifier;
use crate::secret::Secret;

/// Whether anything had to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// It was not as it should be, and is now.
    Yes,
    /// It was as it should be.
    No,
}

impl Changed {
    fn or(self, other: Self) -> Self {
        if self == Self::Yes { self } else { other }
    }
}

/// What the replication role, which may copy everything, may besides: ask for a checkpoint, because `pg_rewind` goes by the leader's last one;
/// and see whom a standby receives from, because only from one that follows the leader may be copied.
const MEMBER_OF: [&str; 2] = ["pg_checkpoint", "pg_read_all_stats"];
/// What it calls: `pg_rewind` on the server that it copies from; and a standby that has taken a backup, so that the end of it is archived.
const CALLS: [&str; 5] = [
    "pg_switch_wal()",
    "pg_ls_dir(text, boolean, boolean)",
    "pg_stat_file(text, boolean)",
    "pg_read_binary_file(text)",
    "pg_read_binary_file(text, bigint, bigint, boolean)",
];

impl Session {
    /// Makes sure of a role that may log in with this password.
    pub async fn ensure_login(&self, role: &str, password: &Secret) -> Result<Changed, SqlError> {
        let created = self.ensure_role(role, "LOGIN").await?;
        Ok(created.or(self.set_password(role, password).await?))
    }

    /// Makes sure of the role by which instances replicate, rewind and ask each other: by certificate, without password.
    pub async fn ensure_replication_role(&self) -> Result<Changed, SqlError> {
        let mut created = self.ensure_role(REPLICATION_USER, "LOGIN REPLICATION").await?;
        let mut missing = vec![];
        for function in CALLS {
            const WHAT: &str = "ask for the replication role's rights";
            const MAY: &str = "select has_function_privilege($1::text::name, $2::text, 'execute') as may";
            let row = self.within(WHAT, self.client.query_one(MAY, &[&REPLICATION_USER, &function])).await?;
            if !(Answer { what: WHAT, row: &row }).get::<bool>("may")? {
                missing.push(function);
            }
        }
        for role in MEMBER_OF {
            created = created.or(self.ensure_membership(role).await?);
        }
        if missing.is_empty() {
            return Ok(created);
        }
        let grant = format!("grant execute on function {} to {}", missing.join(", "), ident(REPLICATION_USER));
        self.execute("grant what the replication role calls", &grant).await?;
        Ok(Changed::Yes)
    }

    async fn ensure_membership(&self, role: &str) -> Result<Changed, SqlError> {
        const WHAT: &str = "grant the replication role what it needs";
        const MAY: &str = "select pg_has_role($1::text::name, $2::text::name, 'member') as may";
        let row = self.within(WHAT, self.client.query_one(MAY, &[&REPLICATION_USER, &role])).await?;
        if (Answer { what: WHAT, row: &row }).get::<bool>("may")? {
            return Ok(Changed::No);
        }
        self.execute(WHAT, &format!("grant {} to {}", ident(role), ident(REPLICATION_USER))).await?;
        Ok(Changed::Yes)
    }

    /// Makes sure that a role has this password. An unchanged one is not written.
    pub async fn set_password(&self, role: &str, password: &Secret) -> Result<Changed, SqlError> {
        const WHAT: &str = "set a password";
        const STORED: &str = "select rolpassword from pg_authid where rolname = $1::text";
        let row = self.within(WHAT, self.client.query_opt(STORED, &[&role])).await?;
        let stored: Option<String> = match &row {
            Some(row) => Answer { what: WHAT, row }.get("rolpassword")?,
            None => None,
        };
        if stored.as_deref().and_then(Verifier::parse).is_some_and(|verifier| verifier.matches(password)) {
            return Ok(Changed::No);
        }
        let verifier =
            Verifier::new(password).map_err(|error| SqlError::Unexpected { what: WHAT, problem: error.to_string() })?;
        let alter = format!("alter role {} password {}", ident(role), literal(&verifier.to_string()));
        self.execute(WHAT, &alter).await?;
        Ok(Changed::Yes)
    }

    /// Makes sure of a database and who owns it.
    pub async fn ensure_database(&self, database: &str, owner: &str) -> Result<Changed, SqlError> {
        const WHAT: &str = "create the application's database";
        const OWNER: &str = "select pg_get_userbyid(datdba)::text as owner from pg_database where datname = $1::text";
        let row = self.within(WHAT, self.client.query_opt(OWNER, &[&database])).await?;
        let present: Option<String> = match &row {
            Some(row) => Some(Answer { what: WHAT, row }.get("owner")?),
            None => None,
        };
        let statement = match present {
            Some(present) if present == owner => return Ok(Changed::No),
            Some(_) => format!("alter database {} owner to {}", ident(database), ident(owner)),
            None => format!("create database {} owner {}", ident(database), ident(owner)),
        };
        match self.execute(WHAT, &statement).await {
            Err(error) if error.code() == Some(&SqlState::DUPLICATE_DATABASE) => Ok(Changed::No),
            done => done.map(|()| Changed::Yes),
        }
    }

    async fn ensure_role(&self, role: &str, attributes: &'static str) -> Result<Changed, SqlError> {
        const WHAT: &str = "create a role";
        const PRESENT: &str = "select rolcanlogin, rolreplication from pg_roles where rolname = $1::text";
        let row = self.within(WHAT, self.client.query_opt(PRESENT, &[&role])).await?;
        let verb = match &row {
            None => "create",
            Some(row) => {
                let row = Answer { what: WHAT, row };
                let replication = !attributes.contains("REPLICATION") || row.get("rolreplication")?;
                if replication && row.get("rolcanlogin")? {
                    return Ok(Changed::No);
                }
                "alter"
            }
        };
        self.execute(WHAT, &format!("{verb} role {} {attributes}", ident(role))).await?;
        Ok(Changed::Yes)
    }
}
