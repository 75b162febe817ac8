//! Stays fenced: PostgreSQL is stopped because a person wants it so, the agent lives, says why, and answers for its log.
//!
//! Never: starts PostgreSQL or touches the volume while it is fenced; says that the log ends before it does, because a candidate may lead
//! without what lies behind. Where that is not known for certain, it has no position, and its word does not count.

use bellwether_api::labels;
use bellwether_api::v1::InstanceState;
use bellwether_core::election::Position;
use bellwether_core::wal::{Lsn, Timeline};
use bellwether_postgres::wal;

use crate::election::driver::Fence;
use crate::election::{Manner, News, Role, Want};
use crate::instance::{As, Instance, LOOK_AGAIN_REFUSED, Running, Turn};
use crate::trouble::Trouble;

impl Instance {
    /// Whether PostgreSQL may run.
    pub(crate) fn fence(&self) -> Fence {
        Fence::of(&self.inputs, &self.environment)
    }

    /// One look while it is fenced and not wanted to lead.
    pub(crate) async fn stay_fenced(&mut self, want: &Want, running: &mut Option<Running>) -> Turn {
        if running.is_some() {
            tracing::info!("fenced: PostgreSQL is stopped until that is lifted");
            // Only while it runs can a standby tell where its log ends; it stays there, because nothing writes to it any more.
            let end = self.end_of_standby(running).await.unwrap_or_else(|error| {
                tracing::warn!(%error, "where the log ends is not known: this instance answers for nothing while it is fenced");
                None
            });
            // One that led has no tenure any more, or it would be wanted to lead.
            let led = running.as_ref().is_some_and(|now| matches!(now.runs_as, As::Primary(_)));
            self.stop(want.number, running, if led { Manner::AtOnce } else { Manner::Gently }).await;
            self.fenced_end = end;
        }
        if want.role == Role::Stand {
            let _ = self.news.send(News::Standing(want.number, self.fenced_position().await));
        }
        self.report_fenced();
        Turn::Wait(LOOK_AGAIN_REFUSED)
    }

    /// Where the log of a running standby ends, once it receives from nobody.
    async fn end_of_standby(&mut self, running: &mut Option<Running>) -> Result<Option<(Timeline, Lsn)>, Trouble> {
        if !running.as_ref().is_some_and(|now| matches!(now.runs_as, As::Standby(_))) {
            return Ok(None);
        }
        self.be_standby(None, running).await?;
        self.cut(running).await
    }

    /// Where the log ends, if that is certain: a standby was asked before it was stopped, by this very agent; a primary that was shut
    /// down in order has it in its control file.
    async fn fenced_position(&self) -> Option<Position> {
        if !self.record.lock().usable() {
            return None;
        }
        let end = match self.fenced_end {
            Some(end) => Some(end),
            None => {
                let _pause = self.children.pause();
                wal::end_of_shutdown(&self.installation, &self.volume.pgdata()).await.ok().flatten()
            }
        };
        end.and_then(|end| self.positioned(end))
    }

    pub(crate) fn report_fenced(&self) {
        self.board.report(|report| {
            report.role = None;
            report.state = InstanceState::Fenced;
            report.accepts_sql = false;
            report.commits_wait = false;
            report.message = Some(format!("PostgreSQL is stopped, because {} names this instance", labels::FENCED));
        });
    }

    /// What comes next is said by whatever comes next.
    pub(crate) fn report_fence_lifted(&self) {
        self.board.report(|report| {
            if report.state == InstanceState::Fenced {
                report.state = InstanceState::Starting;
                report.message = None;
            }
        });
    }
}
