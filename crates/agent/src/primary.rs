//! A primary's chores over SQL: roles and passwords, the user's first SQL, slots, whom commits wait for, and whether it
//! accepts what an application would send.
//!
//! Never: the user's SQL run twice (what records it commits with it); a slot dropped that is in use; a password in clear on the
//! wire or in a log (`bellwether_postgres` sends verifiers). Our own commits wait for no standby, or bootstrap would wait for
//! standbys that wait for it.

use std::collections::BTreeSet;
use std::time::Duration;

use bellwether_api::v1::DurabilityMode;
use bellwether_core::contract::{InstanceConfig, POSTGRES_PORT, SUPERUSER, key};
use bellwether_core::instance::durability::{self, Quorum, Voters};
use bellwether_core::instance::slots::{self, Slot, SlotOwner};
use bellwether_core::wal::Term;
use bellwether_postgres::SlotName;
use bellwether_postgres::sql::{Remote, Session, SqlError, TlsClient};
use tokio::time::Instant;

use crate::configuration::Configuration;
use crate::instance::{Instance, SQL_DEADLINE};
use crate::settings::SettingsError;
use crate::trouble::Trouble;

/// How often slots are compared with the instances that there should be, when nothing is known to have changed.
const SLOTS_CHECK: Duration = Duration::from_secs(10);
/// How often acceptance is checked while it holds. With one repetition this stays within the ten seconds in which `Ready` must
/// fall; each check is a connection with TLS and SCRAM, so not every second.
const ACCEPTANCE_CHECK: Duration = Duration::from_secs(4);
/// The longest that the user's first SQL may take.
const POST_INIT_DEADLINE: Duration = Duration::from_secs(1800);

/// What the agent of a primary keeps between looks.
#[derive(Debug)]
pub struct Primary {
    /// Superuser, through the socket.
    pub session: Session,
    /// Whom commits wait for.
    pub in_force: Option<Quorum>,
    /// The term in which it leads.
    pub term: Option<Term>,
    /// What the server makes of its configuration.
    pub configuration: Configuration,
    streaming: BTreeSet<String>,
    roles_done: bool,
    reload_due: bool,
    slots_due: Instant,
    acceptance_due: Instant,
}

impl Primary {
    /// A primary that has just started.
    pub fn new(session: Session, in_force: Option<Quorum>, term: Option<Term>) -> Self {
        let now = Instant::now();
        Self {
            session,
            in_force,
            term,
            streaming: BTreeSet::new(),
            configuration: Configuration::unknown(),
            roles_done: false,
            reload_due: false,
            slots_due: now,
            acceptance_due: now,
        }
    }

    /// What is mounted has changed: everything is looked at again.
    pub fn inputs_changed(&mut self) {
        let now = Instant::now();
        self.roles_done = false;
        self.reload_due = true;
        self.slots_due = now;
        self.acceptance_due = now;
        self.configuration.written();
    }

    /// Whether the configuration has to be written again.
    pub fn take_reload_due(&mut self) -> bool {
        std::mem::take(&mut self.reload_due)
    }

    /// Looks who streams. Answers whom commits should wait for, if that isn't what is in force.
    pub async fn changed_quorum(
        &mut self,
        config: &InstanceConfig,
        me: &str,
    ) -> Result<Option<Option<Quorum>>, SqlError> {
        let standbys = self.session.standbys().await?;
        self.streaming =
            standbys.into_iter().filter(|standby| standby.streaming).map(|standby| standby.application_name).collect();
        let others = others(config, me);
        let wanted = durability::quorum(Voters {
            mode: durability::mode(config),
            others: &others,
            streaming: &self.streaming,
            in_force: self.in_force.as_ref(),
        });
        Ok((wanted != self.in_force).then_some(wanted))
    }

    /// What a user should know about a primary that works.
    pub fn notes(&self, config: &InstanceConfig, me: &str) -> Option<String> {
        let mut notes = vec![];
        let others = others(config, me);
        match &self.in_force {
            Some(quorum) => {
                let there = quorum.voters.intersection(&self.streaming).count();
                if there < quorum.needed {
                    notes.push(format!("commits wait: {there} of {} needed standbys stream", quorum.needed));
                }
            }
            None if durability::mode(config) != DurabilityMode::Async && !others.is_empty() => {
                notes.push("commits wait for no standby: too few stream".to_owned());
            }
            None => {}
        }
        notes.extend(self.configuration.complaints().iter().cloned());
        (!notes.is_empty()).then(|| notes.join("; "))
    }
}

fn others(config: &InstanceConfig, me: &str) -> BTreeSet<String> {
    config.instances.iter().filter(|instance| *instance != me).cloned().collect()
}

impl Instance {
    /// Roles, passwords and the application's database, as the mounted Secrets have them.
    pub(crate) async fn keep_roles(&self, primary: &mut Primary) -> Result<(), Trouble> {
        if primary.roles_done {
            return Ok(());
        }
        let (session, app) = (&primary.session, &self.inputs.app);
        session.ensure_replication_role().await?;
        session.set_password(SUPERUSER, &self.inputs.superuser).await?;
        session.ensure_login(&app.user, &app.password).await?;
        session.ensure_database(&app.database, &app.user).await?;
        self.run_post_init_sql().await?;
        primary.roles_done = true;
        Ok(())
    }

    /// Runs the user's first SQL in one transaction, together with the record that it ran: the table that can be created only
    /// once. It waits for no standby, and is not acknowledged to anybody either.
    async fn run_post_init_sql(&self) -> Result<(), Trouble> {
        const BEGIN: &str = "begin; set local synchronous_commit = local; create schema if not exists bellwether; \
                             create table bellwether.post_init_sql ()";
        let statements = &self.inputs.config.initdb.post_init_sql;
        if statements.is_empty() {
            return Ok(());
        }
        let database = &self.inputs.app.database;
        let socket = self.places.socket.path();
        let session = Session::local_for_users(socket, POSTGRES_PORT, database, POST_INIT_DEADLINE).await?;
        if session.has_table("bellwether.post_init_sql").await? {
            return Ok(());
        }
        session.run_script(BEGIN).await?;
        for (index, statement) in statements.iter().enumerate() {
            let done = Self::keep_turning(&self.board, session.run_script(statement)).await;
            done.map_err(|cause| Trouble::PostInitSql { index, cause })?;
        }
        tracing::info!(statements = statements.len(), "ran spec.bootstrap.initdb.postInitSql");
        Ok(session.run_script("commit").await?)
    }

    /// A slot for each other instance, none for those that left.
    pub(crate) async fn keep_slots(&self, primary: &mut Primary) -> Result<(), Trouble> {
        if Instant::now() < primary.slots_due {
            return Ok(());
        }
        let mut wanted = BTreeSet::new();
        for instance in others(&self.inputs.config, &self.environment.instance) {
            wanted.insert(SlotName::of_instance(&instance).map_err(SettingsError::from)?.to_string());
        }
        let existing: Vec<Slot> = primary.session.slots().await?.into_iter().map(as_seen).collect();
        let changes = slots::changes(&wanted, &existing);
        for slot in changes.create.iter().filter_map(|name| SlotName::recognise(name)) {
            primary.session.ensure_slot(&slot).await?;
            tracing::info!(%slot, "created a replication slot");
        }
        for slot in changes.drop.iter().filter_map(|name| SlotName::recognise(name)) {
            primary.session.drop_slot(&slot).await?;
            tracing::info!(%slot, "dropped the replication slot of an instance that left");
        }
        primary.slots_due = Instant::now() + SLOTS_CHECK;
        Ok(())
    }

    /// Does what an application does: connects over TLS to the pod's address as the application's user, and asks.
    pub(crate) async fn check_acceptance(&self, primary: &mut Primary) -> Result<(), Trouble> {
        if Instant::now() < primary.acceptance_due {
            return Ok(());
        }
        let environment = &self.environment;
        let host = environment.names.host(&environment.instance, &environment.namespace);
        let remote = Remote {
            host: &host,
            address: environment.address,
            port: POSTGRES_PORT,
            user: &self.inputs.app.user,
            password: Some(&self.inputs.app.password),
            database: &self.inputs.app.database,
        };
        let tls = TlsClient::anonymous(&self.places.server_tls.join(key::CA_CRT))?;
        let session = Session::tls(&remote, tls, SQL_DEADLINE).await?;
        if session.setting("in_hot_standby").await?.as_deref() != Some("off") {
            return Err(Trouble::NotWritable("SQL is answered, but in recovery".into()));
        }
        primary.acceptance_due = Instant::now() + ACCEPTANCE_CHECK;
        Ok(())
    }
}

fn as_seen(slot: bellwether_postgres::sql::Slot) -> Slot {
    // A logical slot is never ours, whatever its name.
    let ours = slot.physical && SlotName::recognise(&slot.name).is_some();
    Slot { owner: if ours { SlotOwner::Bellwether } else { SlotOwner::User }, name: slot.name, active: slot.active }
}
