//! Streaming: one connection from a primary's walsender to a standby's walreceiver, with lag, loss of sight, and an end that each side
//! notices for itself.
//!
//! Never: a record in a standby's log that is not at the same place in its primary's. That is judged at every delivery.

use std::sync::Arc;

use bellwether_core::election::{Event, MemberId, Voters};
use bellwether_core::wal::{Lsn, Term, Timeline};

use super::{Pg, SILENCE};
use crate::world::{What, Who, World};

/// A connection of replication. A standby has at most one; the slot of its name sees to that.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Whose walsender.
    pub primary: Who,
    /// Of which boot.
    pub boot: u32,
    /// Whose walreceiver.
    pub standby: Who,
    /// By which name it is counted: the identity of its volume, so that a pod made again under its name is somebody else (E13) …
    pub standby_id: MemberId,
    /// … and the term in which it follows, as its agent knows it.
    pub term: Term,
    /// How much was sent.
    pub sent: usize,
    /// The batch that is on its way. It was read from the log when it was sent, whatever becomes of that log.
    batch: Vec<u32>,
    /// The timeline it was read from, and the history of that.
    timeline: Timeline,
    forks: Arc<Vec<(Timeline, Lsn)>>,
    /// How much the standby is known to have flushed.
    pub flushed: usize,
    /// A batch is on its way; the next one waits for its acknowledgement.
    pub busy: bool,
    /// The rule that the walsender has read.
    pub rule: Option<Voters>,
    /// Which change of it.
    pub rule_number: u32,
}

impl Connection {
    /// The newest record of the batch that is on its way.
    pub(super) fn newest(&self) -> Option<u32> {
        self.batch.last().copied()
    }
}

impl World {
    /// Whether the walreceiver still reads from this connection.
    fn receives(&self, connection: usize) -> bool {
        let standby = self.connections[connection].standby;
        self.container(standby).is_some_and(|container| container.server.receiver == Some(connection))
    }

    /// Whether the walsender still serves it.
    fn sends(&self, connection: usize) -> bool {
        let Connection { primary, boot, .. } = self.connections[connection];
        self.container(primary)
            .is_some_and(|container| container.server.boot == boot && container.server.senders.contains(&connection))
    }

    fn ends(&self, connection: usize) -> (usize, usize) {
        let Connection { primary, standby, .. } = self.connections[connection];
        (self.instances[primary.instance].machine, self.instances[standby.instance].machine)
    }

    /// Connects a standby to a server whose log begins with its own.
    pub(super) fn connect(&mut self, primary: Who, standby: Who, term: Term) {
        self.judge_connection(primary, standby);
        let Some(server) = self.container(primary).map(|container| &container.server) else { return };
        let flushed = self.data(standby.instance).map_or(0, |data| data.log.len());
        let standby_id = self.instances[standby.instance].id;
        let connection = Connection {
            primary,
            boot: server.boot,
            standby,
            standby_id,
            term,
            sent: flushed,
            batch: Vec::new(),
            timeline: Timeline(0),
            forks: Arc::default(),
            flushed,
            busy: false,
            rule: server.rule.clone(),
            rule_number: server.rule_number,
        };
        let number = self.connections.len();
        self.connections.push(connection);
        let others = &self.connections;
        if let Some(container) = self.instances[primary.instance].container.as_mut() {
            // The slot is taken over from a connection that died.
            container.server.senders.retain(|sender| others[*sender].standby_id != standby_id);
            container.server.senders.push(number);
        }
        if let Some(container) = self.container_mut(standby) {
            container.server.receiver = Some(number);
        }
        let from = self.instances[primary.instance].id;
        self.happen(standby, Event::Streaming { from: Some(from) });
        self.release_by(primary, number);
        self.pump(number);
        self.report_soon(standby);
    }

    fn release_by(&mut self, primary: Who, connection: usize) {
        let rule = self.connections[connection].rule.clone();
        self.release(primary, rule.as_ref());
        self.look_in_force(primary);
    }

    /// Sends what there is to each standby.
    pub(super) fn pump_all(&mut self, who: Who) {
        let Some(senders) = self.container(who).map(|container| container.server.senders.len()) else { return };
        for at in 0..senders {
            let sender = self.container(who).and_then(|container| container.server.senders.get(at).copied());
            if let Some(sender) = sender {
                self.pump(sender);
            }
        }
    }

    fn pump(&mut self, number: usize) {
        let connection = &mut self.connections[number];
        let volume = self.instances[connection.primary.instance].volume;
        let Some(data) = self.volumes[volume].data.as_ref() else { return };
        let end = data.log.len();
        if connection.busy || connection.sent >= end {
            return;
        }
        connection.batch.clear();
        connection.batch.extend_from_slice(&data.log[connection.sent..]);
        connection.timeline = data.timeline;
        connection.forks = data.forks.clone();
        connection.busy = true;
        connection.sent = end;
        let (primary, standby) = self.ends(number);
        let mut delay = self.net.delay(primary, standby, &mut self.rng);
        if self.rng.chance(20) {
            // A standby that is busy elsewhere.
            delay += self.rng.below(400);
        }
        self.after(delay, What::Wal(number));
    }

    /// WAL arrives.
    pub fn wal(&mut self, number: usize) {
        if !self.receives(number) {
            return;
        }
        let standby = self.connections[number].standby;
        if let Some(until) = self.postgres_frozen(standby) {
            return self.queue.push(until, What::Wal(number));
        }
        let (from, to) = self.ends(number);
        if self.net.blocked(from, to) {
            return self.after(300, What::Wal(number));
        }
        self.judge_delivery(number);
        self.judge_rank(number);
        let volume = self.instances[standby.instance].volume;
        let Some(data) = self.volumes[volume].data.as_mut() else { return };
        let connection = &self.connections[number];
        data.log.extend_from_slice(&connection.batch);
        data.timeline = connection.timeline;
        data.forks = connection.forks.clone();
        let have = data.log.len();
        let delay = self.net.delay(to, from, &mut self.rng);
        self.after(delay, What::WalAck(number, have));
        self.pump_all(standby);
    }

    /// Where a batch begins in the log.
    pub fn batch_begins(&self, number: usize) -> usize {
        self.connections[number].sent - self.connections[number].batch.len()
    }

    /// The standby's acknowledgement arrives.
    pub fn wal_ack(&mut self, number: usize, flushed: usize) {
        if !self.sends(number) {
            return;
        }
        let primary = self.connections[number].primary;
        if let Some(until) = self.postgres_frozen(primary) {
            return self.queue.push(until, What::WalAck(number, flushed));
        }
        let (to, from) = self.ends(number);
        if self.net.blocked(from, to) {
            return self.after(300, What::WalAck(number, flushed));
        }
        let connection = &mut self.connections[number];
        connection.flushed = connection.flushed.max(flushed);
        connection.busy = false;
        self.release_by(primary, number);
        self.pump(number);
    }

    /// The standby lets go: its receiver is killed, and nothing more of that connection reaches its log.
    pub(super) fn cut_receiver(&mut self, who: Who) {
        let Some(container) = self.container_mut(who) else { return };
        if let Some(connection) = container.server.receiver.take() {
            let (primary, standby) = self.ends(connection);
            let delay = self.net.delay(standby, primary, &mut self.rng);
            let noticed = if self.net.blocked(standby, primary) { SILENCE } else { delay };
            self.after(noticed, What::SenderLost(connection));
        }
    }

    /// The primary's processes are gone; its standbys notice by a reset, or by silence.
    pub(super) fn drop_senders(&mut self, instance: usize, senders: &[usize]) {
        for connection in senders.iter().copied() {
            let machine = self.instances[instance].machine;
            let (_, standby) = self.ends(connection);
            let delay = self.net.delay(machine, standby, &mut self.rng);
            let silent = self.net.blocked(machine, standby) || !self.machines[machine].up;
            self.after(if silent { SILENCE } else { delay }, What::ReceiverLost(connection));
        }
    }

    /// The standby finds its connection gone.
    pub fn receiver_lost(&mut self, number: usize) {
        if !self.receives(number) {
            return;
        }
        let standby = self.connections[number].standby;
        if let Some(until) = self.postgres_frozen(standby) {
            return self.queue.push(until, What::ReceiverLost(number));
        }
        if let Some(container) = self.container_mut(standby) {
            container.server.receiver = None;
        }
        self.happen(standby, Event::Streaming { from: None });
        self.follow_on(standby);
        self.report_soon(standby);
    }

    /// The primary finds its connection gone.
    pub fn sender_lost(&mut self, number: usize) {
        if self.sends(number) && !self.receives(number) {
            let primary = self.connections[number].primary;
            if let Some(container) = self.container_mut(primary) {
                container.server.senders.retain(|sender| *sender != number);
            }
            self.look_in_force(primary);
        }
    }

    /// Nothing was heard for long: if that is still so, both ends give up.
    pub fn silence(&mut self, number: usize) {
        let Connection { primary, standby, .. } = self.connections[number];
        let (from, to) = self.ends(number);
        let frozen = self.postgres_frozen(primary).is_some() || self.postgres_frozen(standby).is_some();
        if self.net.connected(from, to) && !frozen {
            return;
        }
        self.receiver_lost(number);
        if self.postgres_frozen(primary).is_none()
            && let Some(container) = self.container_mut(primary)
        {
            container.server.senders.retain(|sender| *sender != number);
            self.look_in_force(primary);
        }
    }

    /// Links or processes were cut: connections across them are given up in a while, if they still are then.
    pub fn watch_silence(&mut self) {
        let open: Vec<usize> = self.running().filter_map(|(_, container)| container.server.receiver).collect();
        for connection in open {
            let Connection { primary, standby, .. } = self.connections[connection];
            let (from, to) = self.ends(connection);
            let frozen = self.postgres_frozen(primary).is_some() || self.postgres_frozen(standby).is_some();
            if !self.net.connected(from, to) || frozen {
                self.after(SILENCE, What::Silence(connection));
            }
        }
    }

    /// Whether this instance streams, and from whom.
    pub fn streams_from(&self, who: Who) -> Option<MemberId> {
        let container = self.container(who).filter(|container| container.server.state == Pg::Standby)?;
        let connection = &self.connections[container.server.receiver?];
        Some(self.instances[connection.primary.instance].id)
    }
}
