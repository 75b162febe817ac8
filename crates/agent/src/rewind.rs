//! Brings a log that parts from the leader's back to it: rewinds the database in place, or has it copied anew.
//!
//! ```text
//! a standby of nobody, whose end is known ─► shut down ─► repair(): wait, copy, or
//!   record: no log · marker on the volume ─► pg_rewind ─► proven by the control file ─► started as a standby that nobody counts on,
//!   until it has replayed what makes it whole ─► record: whole · marker gone ─► compared and followed as any other
//! ```
//!
//! Never: PostgreSQL started on what a rewind left half-way (the marker stays, and what it speaks for is set aside and copied); a position told
//! between the first file that is touched and the last byte that makes it whole; a voter whose copy may yet be given up.

use std::time::Duration;

use bellwether_api::v1::InstanceState;
use bellwether_core::contract::Leader;
use bellwether_core::election::MemberId;
use bellwether_core::instance::history::{Told, term_of};
use bellwether_core::instance::rewind::{Own, Repair, Source, branches, repair};
use bellwether_core::wal::{Lsn, SystemIdentifier, Term, Timeline};
use bellwether_postgres::rewind::{self, Rewind};
use bellwether_postgres::signal::{self, StartAs};
use bellwether_postgres::{control, wal};
use tokio::time::{Instant, MissedTickBehavior};

use crate::election::{News, Role};
use crate::guard::orders::Order;
use crate::instance::{As, Instance, Running, SQL_DEADLINE, TICK, Turn};
use crate::settings::RunAs;
use crate::tool::{Line, Tool};
use crate::trouble::Trouble;

/// How long a standby may take to shut down: what it has replayed goes to disk. Nobody waits for it.
const SHUT_DOWN: Duration = Duration::from_secs(120);
/// How often a leader that can't be rewound onto yet is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(300);
/// How long a leader's checkpoint may take before it is asked for again. A base backup would wait for one just as well.
const CHECKPOINT: Duration = Duration::from_secs(120);
/// How long a rewind may take, and the replay after it. It moves what has changed since the fork, and the leader's WAL: one that has not
/// come to its end by then is no quicker than a copy.
const REWIND: Duration = Duration::from_secs(1800);

/// The leader whose history this log is to have.
#[derive(Clone, Debug)]
pub(crate) struct Onto {
    pub(crate) leader: MemberId,
    pub(crate) place: Leader,
    pub(crate) term: Term,
    pub(crate) timeline: Timeline,
    pub(crate) history: Told,
}

impl Instance {
    /// This log parts from the leader's, and PostgreSQL runs on it as a standby of nobody.
    pub(crate) async fn bring_back(
        &mut self,
        onto: &Onto,
        end: (Timeline, Lsn),
        running: &mut Option<Running>,
    ) -> Result<Turn, Trouble> {
        self.board.report(|report| {
            report.state = InstanceState::Joining;
            report.message = Some(format!("its log parts from that of {}", onto.place.instance));
        });
        self.shut_down(running).await;
        if self.superseded() {
            return Ok(Turn::Again);
        }
        match self.decide(onto, end).await? {
            Some((Repair::Rewind { timeline, at }, system)) => {
                let undone = end.1.ahead_of(at);
                tracing::warn!(onto = onto.place.instance, timeline = timeline.0, %at, undone, "rewinding");
                self.rewind(onto, system, running).await
            }
            Some((Repair::Copy(because), _)) => {
                tracing::warn!(%because, "it is not rewound: what is here is set aside, and the leader's is copied");
                self.copy_anew(&onto.place, onto.term, "its log parts from the leader's")
            }
            Some((Repair::Wait(_), _)) | None => Ok(Turn::Again),
        }
    }

    /// Stops a standby in order, so that its control file says where its log ends; kills it where that takes too long, or something
    /// else is wanted.
    async fn shut_down(&mut self, running: &mut Option<Running>) {
        if let Some(now) = running.as_mut() {
            self.board.report(|report| report.accepts_sql = false);
            now.postmaster.order(Order::StopFast).await;
            let until = Instant::now() + SHUT_DOWN;
            let mut tick = tokio::time::interval(TICK);
            tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    _ = now.postmaster.ended() => {
                        *running = None;
                        let _ = self.news.send(News::Streaming(None));
                        break;
                    }
                    Ok(()) = self.want.changed() => {
                        self.want.mark_changed();
                        break;
                    }
                    () = tokio::time::sleep_until(until) => break,
                    _ = tick.tick() => self.board.beat(),
                }
            }
        }
        self.end(running).await;
    }

    /// What becomes of this log; nothing, if something else is wanted before that is known.
    async fn decide(
        &mut self,
        onto: &Onto,
        end: (Timeline, Lsn),
    ) -> Result<Option<(Repair, SystemIdentifier)>, Trouble> {
        let (own, system) = self.parted(onto, end).await?;
        // Nothing of PostgreSQL runs that could receive by it.
        self.places.stage(&self.inputs)?;
        loop {
            let source = self.ask_leader(onto, system).await?;
            match repair(&own, source.as_ref()) {
                Repair::Wait(what) => self.note(format!("waiting for {} {what}", onto.place.instance)),
                decided => return Ok(Some((decided, system))),
            }
            self.wait_for_want(ASK_AGAIN).await;
            let told = self.history_of(onto.leader, onto.term);
            let same = told.is_some_and(|(_, history)| history.is_that_of(&onto.history));
            if self.superseded() || !same || self.place_of(onto.leader).as_ref() != Some(&onto.place) {
                return Ok(None);
            }
        }
    }

    /// What is on the volume.
    async fn parted(&self, onto: &Onto, (timeline, end): (Timeline, Lsn)) -> Result<(Own, SystemIdentifier), Trouble> {
        let _pause = self.children.pause();
        let pgdata = self.volume.pgdata();
        let control = control::read(&self.installation, &pgdata).await?;
        let history = match wal::forks(&pgdata, timeline) {
            Ok(forks) => branches(&forks, timeline, |of| self.record.lock().term_of(of)),
            Err(error) => {
                tracing::warn!(%error, "the own history can't be read");
                vec![]
            }
        };
        let own = Own {
            branches: history,
            end,
            checkpoint: rewind::timeline_of(&self.installation, &control),
            shut_down: control.state.is_shut_down(),
            changes_logged: control.data_checksums || control.wal_log_hints,
            has_tool: rewind::is_installed(&self.installation),
            tried: self.rewound == Some((onto.leader, onto.timeline)),
        };
        Ok((own, control.system_identifier))
    }

    /// What the leader says. One that was just promoted is asked for a checkpoint.
    async fn ask_leader(&mut self, onto: &Onto, system: SystemIdentifier) -> Result<Option<Source>, Trouble> {
        let upstream = self.places.joining(&self.environment, &onto.place)?.conninfo;
        let session = match self.check_leader(&onto.place, Some(system), &upstream, SQL_DEADLINE).await? {
            Ok(session) => session,
            Err(why) => {
                tracing::debug!(%why, "the leader isn't up yet");
                return Ok(None);
            }
        };
        let mut checkpoint = session.checkpoint_timeline().await?;
        if checkpoint != onto.timeline {
            tracing::info!(leader = onto.place.instance, "asking for a checkpoint on the new timeline");
            if let Ok(patient) = self.check_leader(&onto.place, Some(system), &upstream, CHECKPOINT).await? {
                let mut want = self.want.clone();
                let made = tokio::select! {
                    made = Self::keep_turning(&self.board, patient.checkpoint()) => made,
                    _ = want.changed() => return Ok(None),
                };
                if let Err(error) = made {
                    tracing::warn!(%error, "the leader makes its checkpoint in its own time");
                }
            }
            checkpoint = session.checkpoint_timeline().await?;
        }
        let history = branches(&onto.history.forks, onto.timeline, |of| term_of(&onto.history.log, of));
        Ok(Some(Source { branches: history, checkpoint }))
    }

    /// Rewinds. Whatever goes wrong from here on, what is on the volume is set aside and copied anew, in the turns to come.
    async fn rewind(
        &mut self,
        onto: &Onto,
        system: SystemIdentifier,
        running: &mut Option<Running>,
    ) -> Result<Turn, Trouble> {
        self.board.report(|report| {
            report.message = Some(format!("rewinding to where its log parted from that of {}", onto.place.instance));
        });
        // No log from here on, until it is whole.
        self.copy.send_replace(None);
        self.restart_log(onto.term, &onto.history)?;
        self.volume.begin_rewind()?;
        self.rewound = Some((onto.leader, onto.timeline));
        let began = Instant::now();
        let done = match self.run_rewind(onto, system).await {
            Ok(whole_at) => self.make_whole(onto, whole_at, running).await,
            Err(trouble) => Err(trouble),
        };
        match done {
            Ok(()) => {
                self.record.lock().copy_complete()?;
                self.volume.rewound()?;
                self.copy.send_replace(Some(system));
                let millis = began.elapsed().as_millis() as u64;
                tracing::info!(onto = onto.place.instance, millis, "rewound, and whole again");
            }
            Err(trouble) => {
                tracing::warn!(error = %trouble, "the rewind failed: what is here is set aside, and the leader's is copied");
                self.note(format!("the rewind failed, copying anew: {trouble}"));
                self.end(running).await;
            }
        }
        Ok(Turn::Again)
    }

    /// Runs `pg_rewind`, and answers up to where the leader's WAL has to be replayed then.
    async fn run_rewind(&mut self, onto: &Onto, system: SystemIdentifier) -> Result<Lsn, Trouble> {
        let source = self.places.joining(&self.environment, &onto.place)?.conninfo;
        let pgdata = self.volume.pgdata();
        let rewind = Rewind { source: &source, data_dir: &pgdata };
        let tool = Tool {
            name: "pg_rewind",
            program: rewind.program(&self.installation),
            arguments: rewind.arguments(),
            within: Some(REWIND),
        };
        self.run_tool(tool, |_| Line::Said, |this, _| this.unwanted(onto.leader)).await?;
        // The leader has no such file. Without it the directory would start writable.
        signal::set(&pgdata, StartAs::Standby).map_err(|cause| Trouble::Io { what: "write standby.signal", cause })?;
        let control = {
            let _pause = self.children.pause();
            control::read(&self.installation, &pgdata).await?
        };
        let whole_at = rewind::whole_at(&pgdata, &control, onto.timeline, system);
        whole_at.ok_or_else(|| Trouble::NotWhole("pg_rewind changed nothing".to_owned()))
    }

    /// Starts it as a standby that nobody counts on, until it has replayed what makes it whole. Part of that is on the leader only:
    /// what was written while it was rewound. Then it is a standby of nobody, as before.
    async fn make_whole(&mut self, onto: &Onto, whole_at: Lsn, running: &mut Option<Running>) -> Result<(), Trouble> {
        self.look_at_settings().await?;
        self.write_settings(RunAs::Joining(&onto.place))?;
        let until = Instant::now() + REWIND;
        let objection = |this: &mut Self| {
            if let Some(trouble) = this.unwanted(onto.leader) {
                return Some(trouble);
            }
            if Instant::now() > until {
                return Some(Trouble::NotWhole(format!("not replayed to {whole_at} within {REWIND:?}")));
            }
            // The leader no longer has what would make it whole.
            let removed = this.complaints.removed().and_then(|_| this.complaints.streaming());
            removed.map(Trouble::NotWhole)
        };
        self.launch_unless(As::Standby(None), running, objection).await?;
        let Some(now) = running.as_mut() else { return Err(Trouble::NotWanted) };
        let state = now.session.state().await?;
        if state.replayed < Some(whole_at) {
            let replayed = state.replayed.map(|lsn| lsn.to_string()).unwrap_or_default();
            return Err(Trouble::NotWhole(format!("it answers at {replayed}, before {whole_at}")));
        }
        self.write_settings(RunAs::Standby(None))?;
        if let Some(now) = running.as_mut() {
            now.postmaster.order(Order::Reload).await;
        }
        Ok(())
    }

    /// Whether a rewind onto `source` is still wanted.
    fn unwanted(&mut self, source: MemberId) -> Option<Trouble> {
        let elsewhere = match self.wanted_meanwhile()? {
            Role::Follow { leader, .. } => leader != source,
            Role::Stand => false,
            Role::Lead { .. } | Role::Stop(_) => true,
        };
        elsewhere.then_some(Trouble::NotWanted)
    }

    /// What is wanted by now, if it is something new, while there is no log here. Whoever asks how far it reaches is told so.
    pub(crate) fn wanted_meanwhile(&mut self) -> Option<Role> {
        if !self.superseded() {
            return None;
        }
        let want = self.want.borrow_and_update().clone();
        if want.role == Role::Stand {
            let _ = self.news.send(News::Standing(want.number, None));
        }
        Some(want.role)
    }
}
