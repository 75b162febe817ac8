//! Fills an empty volume: with a new database, or with a copy of the leader's.
//!
//! Never: without a marker on the volume ([`Volume::begin`](crate::volume::Volume::begin)), or with another database than the Lease names.

use std::time::Duration;

use bellwether_api::v1::{InstanceRole, InstanceState};
use bellwether_core::contract::{Leader, SUPERUSER};
use bellwether_core::election::MemberId;
use bellwether_core::instance::copying::{self, Ended, Failed};
use bellwether_core::instance::history::Told;
use bellwether_core::instance::start::{LeaseView, VolumeState};
use bellwether_core::wal::{SystemIdentifier, Term, Timeline};
use bellwether_postgres::basebackup::{self, BaseBackup};
use bellwether_postgres::conninfo::{ClientTls, ConnInfo};
use bellwether_postgres::initdb::{NewCluster, PasswordFile};
use bellwether_postgres::sql::{POSTGRES_DATABASE, Receiver, Remote, Session, SqlError, TlsClient};

use crate::election::Role;
use crate::election::driver::Wish;
use crate::instance::{Instance, SQL_DEADLINE, Turn};
use crate::tool::{Line, Tool};
use crate::trouble::Trouble;
use crate::volume::{LastCopy, Work};

/// How often a leader that doesn't answer yet is asked again.
const LEADER_ANSWERS: Duration = Duration::from_millis(300);
/// What programs say when a volume is full.
const NO_ROOM: &str = "No space left on device";

/// Whom a copy comes from.
struct Source {
    place: Leader,
    leads: bool,
}

/// Whether this server receives what the leader writes on this timeline: then its log is the beginning of the leader's. One that still
/// believes to receive from a former leader may be on a timeline of the same number, which is another.
async fn follows(session: &Session, leader: &str, timeline: Timeline) -> Result<bool, Trouble> {
    let state = session.state().await?;
    let from_leader = |receiver: Receiver| receiver.streaming && receiver.host.as_deref() == Some(leader);
    Ok(state.timeline == timeline && state.receiver.is_some_and(from_leader))
}

impl Instance {
    /// Runs `initdb`. The database is announced, and led, in the next turn.
    pub(crate) async fn initialise(&mut self, state: &VolumeState) -> Result<Turn, Trouble> {
        self.board.report(|report| {
            report.state = InstanceState::Bootstrapping;
            report.message = Some("initdb".into());
        });
        let _pause = self.children.pause();
        self.volume.begin(Work::Initdb, state)?;
        let password = PasswordFile::create(&self.environment.run_dir, &self.inputs.superuser)?;
        let (scratch, wal) = (self.volume.scratch(), self.volume.wal());
        let cluster = NewCluster {
            spec: &self.inputs.config.initdb,
            data_dir: &scratch,
            wal_dir: wal.as_deref(),
            superuser: SUPERUSER,
        };
        Self::keep_turning(&self.board, cluster.run(&self.installation, &password)).await?;
        let system = self.volume.finish(Work::Initdb, &self.installation, None).await?;
        tracing::info!(%system, "initialised a new database");
        Ok(Turn::Again)
    }

    /// Copies the leader's database: from the leader, or where that failed, from a standby of it.
    pub(crate) async fn join(
        &mut self,
        from: &Leader,
        lease: &LeaseView,
        state: &VolumeState,
    ) -> Result<Turn, Trouble> {
        self.board.report(|report| {
            // What the last attempt failed with stays until this one gets further: a report for each would be two writes.
            if report.state != InstanceState::Joining {
                report.message = Some(format!("copying from {}", from.instance));
            }
            report.state = InstanceState::Joining;
            report.role = Some(InstanceRole::Standby);
            report.term = lease.term.map(|term| term.0);
        });
        // Whose WAL the copy will hold is known before the first file of it is there.
        let Some(holder) = lease.holder.as_deref().and_then(MemberId::from_uid) else {
            return Ok(Turn::Wait(LEADER_ANSWERS));
        };
        let Some((theirs, history)) = self.history_of(holder, lease.term.unwrap_or(Term(0))) else {
            let _ = self.wishes.send(Wish::AskForHistory(holder));
            self.note(format!("waiting for {} to accept writes", from.instance));
            return Ok(Turn::Wait(LEADER_ANSWERS));
        };
        // Whoever cut the receiver took the key away; nothing receives any more, so it can come back.
        self.places.stage(&self.inputs)?;
        let source = self.copy_source(holder, from);
        let leads_at = self.places.joining(&self.environment, from)?.conninfo.host;
        let from = &source.place;
        let upstream = self.places.joining(&self.environment, from)?;
        match self.check_leader(from, lease.system, &upstream.conninfo, SQL_DEADLINE).await? {
            Ok(session) if source.leads || follows(&session, &leads_at, theirs).await? => {}
            Err(why) if source.leads => {
                tracing::debug!(%why, "the leader isn't up yet");
                self.board.report(|report| report.message = Some(format!("waiting for {} to answer", from.instance)));
                return Ok(Turn::Wait(LEADER_ANSWERS));
            }
            _ => {
                tracing::info!(
                    from = from.instance,
                    "it does not stream from the leader: the next is asked for a copy"
                );
                self.failed_copies = self.failed_copies.again(holder);
                return Ok(Turn::Wait(LEADER_ANSWERS));
            }
        }
        // What is on the volume is no log from here on, until the copy is whole.
        self.copy.send_replace(None);
        self.restart_log(lease.term.unwrap_or(Term(0)), &history)?;
        self.volume.make_room(self.last_copy)?;
        self.volume.begin(Work::Clone, state)?;
        let (scratch, wal) = (self.volume.scratch(), self.volume.wal());
        let backup = BaseBackup {
            source: &upstream.conninfo,
            // A standby drops what it keeps for one who doesn't need it from there.
            slot: source.leads.then_some(&upstream.slot),
            data_dir: &scratch,
            wal_dir: wal.as_deref(),
        };
        let tool = Tool {
            name: "pg_basebackup",
            program: backup.program(&self.installation),
            arguments: backup.arguments(),
            within: None,
        };
        let (board, name) = (self.board.clone(), from.instance.clone());
        let understand = move |line: &str| {
            let Some(progress) = basebackup::progress(line) else { return Line::Said };
            // In tens, because each change is a write to the API.
            let message = format!("copied {} % from {name}", progress.percent() / 10 * 10);
            board.report(|report| report.message = Some(message));
            Line::Understood
        };
        let copied = self.run_tool(tool, understand, |this, silent| this.copy_objection(holder, silent)).await;
        self.last_copy = match &copied {
            Err(Trouble::Tool { said, .. }) if said.contains(NO_ROOM) => LastCopy::FoundNoRoom,
            _ => LastCopy::Other,
        };
        self.failed_copies = match (&copied, self.last_copy) {
            (Err(Trouble::Tool { .. }), LastCopy::Other) => self.failed_copies.again(holder),
            _ => Failed::default(),
        };
        copied?;
        {
            let _pause = self.children.pause();
            self.volume.finish(Work::Clone, &self.installation, lease.system).await?;
        }
        self.record.lock().copy_complete()?;
        tracing::info!(from = from.instance, "copied the database");
        Ok(Turn::Again)
    }

    /// Whom the next copy comes from.
    fn copy_source(&self, leader: MemberId, place: &Leader) -> Source {
        let me = self.record.lock().identity();
        let others: Vec<_> =
            self.peers.who().into_iter().map(|(id, ..)| id).filter(|id| ![me, leader].contains(id)).collect();
        let chosen = copying::source(leader, &others, self.failed_copies);
        match self.place_of(chosen).filter(|_| chosen != leader) {
            Some(place) => Source { place, leads: false },
            None => Source { place: place.clone(), leads: true },
        }
    }

    /// Why a copy from `source` does not go on, if it doesn't. The next comes from whoever leads then.
    fn copy_objection(&mut self, source: MemberId, silent: Duration) -> Option<Trouble> {
        if let Some(Role::Stop(_)) = self.wanted_meanwhile() {
            return Some(Trouble::NotWanted);
        }
        let holder = self.lease_view().and_then(|view| view.holder).and_then(|holder| MemberId::from_uid(&holder));
        let said = match copying::ended(source, holder, silent)? {
            Ended::AnotherLeads => "another leads by now",
            Ended::Silence => "nothing came for too long",
        };
        Some(Trouble::Tool { name: "pg_basebackup", said: said.to_owned() })
    }

    /// What is here can't come back to the leader: it is set aside, and the leader's is copied.
    pub(crate) fn copy_anew(&mut self, leader: &Leader, term: Term, why: &str) -> Result<Turn, Trouble> {
        self.board.report(|report| {
            report.state = InstanceState::Joining;
            report.message = Some(format!("copying {} anew: {why}", leader.instance));
        });
        self.copy.send_replace(None);
        self.record.lock().restart_log(term)?;
        self.volume.set_aside()?;
        Ok(Turn::Again)
    }

    /// What is on the volume is no log from here on, and what comes is of this history.
    pub(crate) fn restart_log(&self, term: Term, history: &Told) -> Result<(), Trouble> {
        let mut record = self.record.lock();
        record.restart_log(term)?;
        record.adopt_log(&history.log)?;
        Ok(())
    }

    /// The leader must serve the cluster's database before anything is copied: hours would be lost otherwise.
    /// One that doesn't answer yet is no trouble: it takes the Lease before it starts.
    pub(crate) async fn check_leader(
        &self,
        leader: &Leader,
        expected: Option<SystemIdentifier>,
        upstream: &ConnInfo,
        deadline: Duration,
    ) -> Result<Result<Session, SqlError>, Trouble> {
        let tls = TlsClient::with_certificate(&ClientTls::in_dir(&self.places.replication_tls))?;
        let remote = Remote {
            host: &upstream.host,
            address: upstream.address,
            port: upstream.port,
            user: &upstream.user,
            password: None,
            database: POSTGRES_DATABASE,
        };
        let session = match Session::tls(&remote, tls, deadline).await {
            Err(why @ (SqlError::Unreachable { .. } | SqlError::NotReady { .. })) => return Ok(Err(why)),
            session => session?,
        };
        let found = session.state().await?.system_identifier;
        match expected.filter(|expected| *expected != found) {
            None => Ok(Ok(session)),
            Some(expected) => Err(Trouble::WrongLeader { leader: leader.instance.clone(), found, expected }),
        }
    }
}
