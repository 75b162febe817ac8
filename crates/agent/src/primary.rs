//! A primary's chores over SQL: roles and passwords, the user's first SQL, slots, whom commits wait for, and whether it
//! accepts what an application would send.
//!
//! Never: the user's SQL run twice (what records it commits with it); a slot dropped that is in use; a password in clear on the
//! wire or in a log (`bellwether_postgres` sends verifiers). Our own commits wait for no standby, or bootstrap would wait for
//! standbys that wait for it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bellwether_api::v1::DurabilityMode;
use bellwether_core::contract::{InstanceConfig, POSTGRES_PORT, Restart, SUPERUSER, key};
use bellwether_core::election::{MemberId, Voters};
use bellwether_core::instance::durability;
use bellwether_core::instance::switchover::{self, Refusal};
use bellwether_core::lease_object;
use bellwether_core::wal::{Lsn, Term};
use bellwether_postgres::sql::{Remote, Sender, Session, SqlError, TlsClient};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::checkpoint;
use crate::configuration::Configuration;
use crate::election::driver::Wish;
use crate::instance::{Instance, SQL_DEADLINE, TICK};
use crate::slots::others;
use crate::synchronous;
use crate::trouble::Trouble;

/// How often slots are compared with the instances that there should be, when nothing is known to have changed.
pub(crate) const SLOTS_CHECK: Duration = Duration::from_secs(10);
/// How often acceptance is checked while it holds. With one repetition this stays within the ten seconds in which `Ready` must
/// fall; each check is a connection with TLS and SCRAM, so not every second.
const ACCEPTANCE_CHECK: Duration = Duration::from_secs(4);
/// How long too few standbys may stream before that is said.
const WAITS: Duration = Duration::from_secs(2);
/// How long one commit may wait before that is said.
const STUCK: Duration = Duration::from_secs(5);
/// How long a checkpoint before a switchover may take: nobody waits for it, clients write meanwhile.
const CHECKPOINT: Duration = Duration::from_secs(300);
/// The longest that the user's first SQL may take.
const POST_INIT_DEADLINE: Duration = Duration::from_secs(1800);

/// What the agent of a primary keeps between looks.
#[derive(Debug)]
pub struct Primary {
    /// Superuser, through the socket.
    pub session: Session,
    /// Whom commits wait for.
    pub voters: Option<Voters>,
    /// Whether that is so for every backend, and for all that was acknowledged.
    pub in_force: bool,
    /// The term in which it leads.
    pub term: Term,
    /// What the server makes of its configuration.
    pub configuration: Configuration,
    /// Since when it refuses writes, because a volume is full.
    pub refuses_since: Option<Instant>,
    coming: Coming,
    streaming: BTreeSet<MemberId>,
    /// Since when fewer of the voters stream than commits wait for.
    short_since: Option<Instant>,
    /// The version of the Lease whose request was looked at, and why it was not followed.
    asked: Option<(String, Option<Refusal>)>,
    /// Commits that wait, and since when they were seen to.
    waiting: BTreeMap<(i32, String), Instant>,
    /// A switchover that is being prepared. It ends with the lead.
    leaving: JoinSet<()>,
    /// A restart in place that is being prepared.
    restarting: JoinSet<()>,
    roles_done: bool,
    reload_due: bool,
    slots_due: Instant,
    acceptance_due: Instant,
}

/// How far voters have come into force.
#[derive(Debug)]
enum Coming {
    /// The server is about to read its configuration.
    Read,
    /// Each process that sends WAL judges by what it has read itself. It reads before it looks at a reply, so after two more replies it
    /// has. Its number, the last reply's time, and how many came.
    Judged(Vec<(Sender, u32)>),
    /// So many of them must hold the log up to here.
    Held(Lsn),
}

/// Replies after which a process is certain to have read its configuration: the first may have been on its way.
const REPLIES: u32 = 2;

impl Primary {
    /// A primary that has just started.
    pub fn new(session: Session, term: Term) -> Self {
        let now = Instant::now();
        Self {
            session,
            voters: None,
            in_force: false,
            term,
            coming: Coming::Read,
            streaming: BTreeSet::new(),
            short_since: None,
            waiting: BTreeMap::new(),
            asked: None,
            leaving: JoinSet::new(),
            restarting: JoinSet::new(),
            configuration: Configuration::unknown(),
            refuses_since: None,
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

    /// The configuration has to be written again.
    pub fn reload_later(&mut self) {
        self.reload_due = true;
    }

    /// Whether the configuration has to be written again.
    pub fn take_reload_due(&mut self) -> bool {
        std::mem::take(&mut self.reload_due)
    }

    /// Whether it has been written.
    pub fn is_configured(&self) -> bool {
        !self.reload_due
    }

    /// Commits are about to wait for these.
    pub fn will_wait_for(&mut self, term: Term, voters: Option<Voters>) {
        self.term = term;
        self.voters = voters;
        self.in_force = false;
        self.coming = Coming::Read;
    }

    /// Looks who streams.
    pub async fn look_who_streams(&mut self) -> Result<(), SqlError> {
        let standbys = self.session.standbys().await?;
        let streaming = standbys.into_iter().filter(|standby| standby.streaming);
        self.streaming =
            streaming.filter_map(|standby| synchronous::follower(&standby.application_name, self.term)).collect();
        let short = self.voters.as_ref().is_some_and(|voters| self.there(voters) < voters.needed());
        self.short_since = short.then(|| self.short_since.unwrap_or_else(Instant::now));
        // A standby that is frozen streams by all accounts until its connection times out.
        let before = std::mem::take(&mut self.waiting);
        let since = |commit: &(i32, String)| before.get(commit).copied().unwrap_or_else(Instant::now);
        self.waiting =
            self.session.waiting_commits().await?.into_iter().map(|commit| (commit.clone(), since(&commit))).collect();
        Ok(())
    }

    fn there(&self, voters: &Voters) -> usize {
        voters.members().iter().filter(|voter| self.streaming.contains(voter)).count()
    }

    /// Whether commits wait, and not just until a standby has found its new primary.
    pub fn commits_wait(&self) -> bool {
        let long = |since: &Instant, limit| since.elapsed() >= limit;
        self.short_since.is_some_and(|since| long(&since, WAITS))
            || self.waiting.values().any(|since| long(since, STUCK))
    }

    /// Looks whether the voters are in force: no process goes by older ones, and a quorum of these holds what was acknowledged till
    /// then. Answers them once they are.
    pub async fn look_in_force(&mut self) -> Result<Option<Option<Voters>>, SqlError> {
        match &mut self.coming {
            Coming::Read => {
                let wanted = synchronous::setting(self.voters.as_ref(), self.term).names();
                if self.session.setting("synchronous_standby_names").await?.as_deref() == Some(&wanted) {
                    let senders = self.session.senders().await?;
                    self.coming = Coming::Judged(senders.into_iter().map(|sender| (sender, 0)).collect());
                }
                return Ok(None);
            }
            Coming::Judged(before) => {
                let now = self.session.senders().await?;
                before.retain_mut(|(known, replies)| {
                    // One that is gone judges nothing; one that came since began with what the server had read.
                    let Some(again) = now.iter().find(|sender| sender.process == known.process) else { return false };
                    if again.replied != known.replied {
                        *replies += 1;
                        known.replied.clone_from(&again.replied);
                    }
                    *replies < REPLIES
                });
                if before.is_empty() {
                    self.coming = Coming::Held(self.session.written().await?);
                }
                return Ok(None);
            }
            Coming::Held(end) => {
                if let Some(voters) = &self.voters {
                    let (end, term) = (*end, self.term);
                    let holds = |sender: &Sender| {
                        let votes = synchronous::follower(&sender.application_name, term)
                            .is_some_and(|id| voters.members().contains(id));
                        votes && sender.flushed >= Some(end)
                    };
                    let senders = self.session.senders().await?;
                    if senders.iter().filter(|sender| holds(sender)).count() < voters.needed() {
                        return Ok(None);
                    }
                }
            }
        }
        self.in_force = true;
        Ok(Some(self.voters.clone()))
    }

    /// What a user should know about a primary that works.
    pub fn notes(&self, config: &InstanceConfig, me: &str) -> Option<String> {
        let mut notes = vec![];
        let others = others(config, me);
        match &self.voters {
            Some(voters) if self.commits_wait() => {
                let there = self.there(voters);
                notes.push(format!("commits wait: {there} of {} needed standbys stream", voters.needed()));
            }
            Some(_) => {}
            None if durability::mode(config) != DurabilityMode::Async && !others.is_empty() => {
                notes.push("commits wait for no standby: too few stream".to_owned());
            }
            None => {}
        }
        notes.extend(self.asked.iter().filter_map(|(_, refusal)| Some(refusal.as_ref()?.to_string())));
        notes.extend(self.configuration.complaints().iter().cloned());
        (!notes.is_empty()).then(|| notes.join("; "))
    }
}

impl Instance {
    /// Looks whether somebody asks for another primary, and hands over if that can be.
    pub(crate) async fn look_for_request(&mut self, primary: &mut Primary) -> Result<(), Trouble> {
        let request = self.lease.borrow_and_update().known().and_then(|object| {
            let version = object["metadata"]["resourceVersion"].as_str()?;
            Some((version.to_owned(), lease_object::switchover(object)?.to_owned()))
        });
        let Some((version, wanted)) = request else {
            primary.asked = None;
            return Ok(());
        };
        while primary.leaving.try_join_next().is_some() {}
        if !primary.leaving.is_empty() || primary.asked.as_ref().is_some_and(|(seen, _)| *seen == version) {
            return Ok(());
        }
        let chosen = switchover::choose(&wanted, &self.candidates(primary).await?);
        match &chosen {
            Ok(target) => {
                tracing::info!(wanted, %target, "a switchover is asked for");
                let (wishes, target) = (self.wishes.clone(), *target);
                let socket = self.places.socket.path().to_owned();
                primary.leaving.spawn(async move {
                    checkpoint::before_stopping(&socket, CHECKPOINT).await;
                    let _ = wishes.send(Wish::Switchover(Some(target)));
                });
            }
            Err(refusal) => tracing::warn!(%refusal, "a switchover is not begun"),
        }
        primary.asked = Some((version, chosen.err()));
        Ok(())
    }

    /// Whether PostgreSQL is to be restarted in place now. It is asked for by the operator, of this very primary, and done only where nothing
    /// but lower values wait: what is raised, a standby must have first, and what may not start at all is tried on standbys. Clients
    /// write until the checkpoint is made.
    pub(crate) fn is_to_restart(&self, primary: &mut Primary) -> bool {
        let asked = self.inputs.config.restart.as_ref();
        let me = |asked: &Restart| asked.instance == self.environment.instance && asked.term == primary.term.0;
        if !asked.is_some_and(me) || !primary.configuration.waits_only_to_be_lower() || !primary.leaving.is_empty() {
            return false;
        }
        if primary.restarting.is_empty() {
            tracing::info!(lowered = ?primary.configuration.lowered(), "a restart in place is asked for");
            let socket = self.places.socket.path().to_owned();
            primary.restarting.spawn(async move { checkpoint::before_stopping(&socket, CHECKPOINT).await });
            return false;
        }
        primary.restarting.try_join_next().is_some()
    }

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
    pub(crate) async fn keep_slots_when_due(&self, primary: &mut Primary) -> Result<(), Trouble> {
        if Instant::now() < primary.slots_due {
            return Ok(());
        }
        let unneeded = self.keep_slots_as_leader(&primary.session).await?;
        // Whoever leaves stops to stream in a moment.
        primary.slots_due = Instant::now() + if unneeded { TICK } else { SLOTS_CHECK };
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
