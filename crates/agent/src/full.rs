//! What an instance does whose volume is full. A primary refuses writes at once, and hands over to a standby that streams and has room, if
//! there is one; a standby receives nothing more (`settings` writes both into the configuration). All of it ends when there is room.
//!
//! Never: hands over to one that may be full itself, or again and again to one that does not take over; ends a session; stops reads.

use std::time::Duration;

use bellwether_core::election::MemberId;
use bellwether_core::instance::space::{Space, VolumeKind};
use bellwether_core::instance::switchover::{self, Candidate};
use tokio::time::Instant;

use crate::election::driver::Wish;
use crate::instance::{Instance, Running};
use crate::primary::Primary;
use crate::synchronous;
use crate::trouble::Trouble;

/// How long a primary is full before another leads. Agents hear of each other once a second: whoever fills up at the same time is known to
/// be full by then.
const SETTLED: Duration = Duration::from_secs(2);
/// How long a hand-over that came to nothing is not tried again: each one stops PostgreSQL.
const AGAIN: Duration = Duration::from_secs(60);
/// How long it takes until every session has read that it is to write nothing.
const READ: Duration = Duration::from_secs(1);

impl Instance {
    /// How much room there is.
    pub(crate) fn space(&self) -> Space {
        self.spaces.borrow().least()
    }

    /// PostgreSQL can be started, as one that writes or not, or there is no room for that.
    pub(crate) fn make_room_to_start(&self, writes: bool) -> Result<(), Trouble> {
        self.volumes.make_room_to_start(writes).map_err(|kind| Trouble::NoRoom { volume: self.named(kind) })
    }

    /// The volumes that are full, by their claims' names.
    pub(crate) fn full_volumes(&self) -> Option<String> {
        let full: Vec<_> = self.spaces.borrow().full().into_iter().map(|kind| self.named(kind)).collect();
        (!full.is_empty()).then(|| full.join(" and "))
    }

    fn named(&self, kind: VolumeKind) -> String {
        let (names, instance) = (&self.environment.names, &self.environment.instance);
        match kind {
            VolumeKind::Data => format!("{kind} {}", names.data_volume(instance)),
            VolumeKind::Wal => format!("{kind} {}", names.wal_volume(instance)),
        }
    }

    /// Lets a primary refuse writes while its volume is full, and another lead if one can.
    pub(crate) async fn mind_space(&mut self, primary: &mut Primary, running: &mut Option<Running>) {
        if self.space() > Space::Full {
            if primary.refuses_since.take().is_some() {
                tracing::info!("there is room again: writes are accepted");
                self.configure(primary, running).await;
            }
            return;
        }
        let since = match primary.refuses_since {
            Some(since) => since,
            None => {
                tracing::warn!(full = self.full_volumes(), "writes are refused");
                self.configure(primary, running).await;
                *primary.refuses_since.insert(Instant::now())
            }
        };
        // Who had begun to write would go on, up to the panic that ends everybody's session. Who says explicitly that it writes, to make
        // room, began later.
        match primary.session.cancel_writers(since.elapsed().saturating_sub(READ)).await {
            Ok(0) => {}
            Ok(cancelled) => tracing::warn!(cancelled, "statements that wrote were cancelled"),
            Err(error) => tracing::debug!(%error, "can't look who writes"),
        }
        if since.elapsed() >= SETTLED && Instant::now() >= self.hand_over_after {
            self.hand_over_for_room(primary).await;
        }
    }

    async fn hand_over_for_room(&mut self, primary: &Primary) {
        let target = match self.candidates(primary).await {
            Ok(standbys) => switchover::with_room(&standbys),
            Err(error) => {
                tracing::debug!(%error, "can't look who could lead");
                None
            }
        };
        if let Some(target) = target {
            tracing::warn!(full = self.full_volumes(), %target, "another leads, which has room");
            self.hand_over_after = Instant::now() + AGAIN;
            let _ = self.wishes.send(Wish::Switchover(Some(target)));
        }
    }

    /// The standbys, as this primary sees them.
    pub(crate) async fn candidates(&self, primary: &Primary) -> Result<Vec<Candidate>, Trouble> {
        let lags = primary.session.lags().await?;
        let lag = |id: MemberId| {
            lags.iter().find(|(name, _)| synchronous::follower(name, primary.term) == Some(id)).map(|(_, lag)| *lag)
        };
        let others = self.others.borrow();
        let space = |id: MemberId| others.get(&id).and_then(|known| known.space);
        let standby = |(id, name, _)| Candidate { name, id, lag: lag(id), space: space(id) };
        Ok(self.peers.who().into_iter().map(standby).collect())
    }
}
