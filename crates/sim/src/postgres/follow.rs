//! How an instance becomes a standby of a leader: start, compare, stream; rewind where the logs part; clone where that fails or there
//! is nothing to begin with.
//!
//! Whether two logs part is the agent's own decision (`core::instance::rejoin`), by what the leader told of its log; whether a server sends
//! anything is PostgreSQL's, which goes by the numbers of timelines. Two that promote apart from each other take the same number.

use std::sync::Arc;

use bellwether_core::election::{Event, Incarnation, MemberId, Message, Plant, Poll, Question, RequestId};
use bellwether_core::instance::history::Told;
use bellwether_core::instance::rejoin::{Own, Rejoin, rejoin};
use bellwether_core::wal::{Lsn, Term, Timeline};

use super::{Pg, Work};
use crate::world::{Data, Following, What, Who, World};

/// System identifiers count up from here.
const SYSTEM: u64 = 7_000_000_000_000_000_000;

impl World {
    /// Follow this leader of this term.
    pub fn follow(&mut self, who: Who, leader: MemberId, term: Term) {
        self.finish_stop(who);
        self.order(who);
        self.cut_receiver(who);
        let Some(container) = self.container_mut(who) else { return };
        container.follow = Some(Following { leader, term, compared: false });
        container.leads = None;
        if container.server.state == Pg::Primary {
            // Whoever follows has stopped; should it not have, it does now.
            self.kill(who);
        }
        self.tell_no_log(who);
        self.follow_on(who);
    }

    /// Go on with whatever following takes next.
    pub(super) fn follow_on(&mut self, who: Who) {
        let Some(container) = self.container(who).filter(|container| container.follow.is_some()) else { return };
        let orders = container.server.orders;
        self.within(20, 400, What::Postgres(who, orders, Work::Follow));
    }

    pub(super) fn follow_step(&mut self, who: Who) {
        let Some(container) = self.container(who) else { return };
        let (state, orders) = (container.server.state, container.server.orders);
        let Some(following) = container.follow.filter(|_| container.server.receiver.is_none()) else { return };
        let usable = self.data(who.instance).is_some_and(|data| !data.broken);
        let acted = match state {
            _ if !usable => self.clone_from(who, following),
            Pg::Down => {
                if let Some(container) = self.container_mut(who) {
                    container.server.state = Pg::Starting;
                }
                self.within(100, 900, What::Postgres(who, orders, Work::Started));
                true
            }
            Pg::Standby => self.attach(who, following),
            Pg::Starting | Pg::Primary => false,
        };
        if !acted {
            self.within(150, 700, What::Postgres(who, orders, Work::Follow));
        }
    }

    /// The leader's server, if it runs, can be reached and accepts replication.
    fn upstream(&self, who: Who, leader: MemberId) -> Option<Who> {
        let primary = self.present(self.place(leader)?)?;
        let server = &self.container(primary)?.server;
        let (here, there) = (self.instances[who.instance].machine, self.instances[primary.instance].machine);
        let reached = self.net.connected(here, there) && self.postgres_frozen(primary).is_none();
        let runs = matches!(server.state, Pg::Standby | Pg::Primary) && !server.headless;
        (runs && reached).then_some(primary)
    }

    /// The same, if it accepts writes.
    fn primary_of(&self, who: Who, leader: MemberId) -> Option<Who> {
        let writable = |primary: &Who| self.container(*primary).is_some_and(|there| there.server.writable());
        self.upstream(who, leader).filter(writable)
    }

    /// What the leader told of its log. A late packet may have brought back what it told in an earlier term.
    fn told_by(&self, who: Who, leader: MemberId) -> Option<Arc<Told>> {
        let told = self.container(who)?.told.get(&leader)?.clone();
        if self.planted(Plant::HistoryOfEarlierTerm) && told.timeline.is_some() {
            let told = (*told).clone();
            return Some(Arc::new(Told { term: Some(Term(u64::MAX)), ..told }));
        }
        Some(told)
    }

    /// Compares the logs, once; then PostgreSQL tries to connect for as long as it is told to. False: not yet.
    fn attach(&mut self, who: Who, following: Following) -> bool {
        if !following.compared {
            let told = self.told_by(who, following.leader);
            let Some(data) = self.data(who.instance) else { return false };
            let timeline = data.log.last().map_or(data.timeline, |last| self.timeline_of(*last));
            let own = Own { timeline, end: Lsn(data.log.len() as u64), log: self.written_by(who.instance) };
            match rejoin(&own, following.term, told.as_deref()) {
                Rejoin::Wait => return false,
                Rejoin::Parted { .. } => return self.rewind(who, following),
                Rejoin::Stream(log) => {
                    let log = log.to_vec();
                    self.judge_going_on(who.instance);
                    self.adopt(who.instance, &log);
                }
            }
            if let Some(container) = self.container_mut(who) {
                container.follow = Some(Following { compared: true, ..following });
            }
        }
        match self.upstream(who, following.leader).filter(|primary| self.serves(*primary, who)) {
            Some(primary) if self.is_of_another_branch(primary, who, following.term) => {
                // At worst some of it is replayed: records of the same length follow each other. At best PostgreSQL tries for ever.
                if let Some(data) = self.data_mut(who.instance) {
                    data.mixed = true;
                }
                false
            }
            Some(primary) => {
                self.connect(primary, who, following.term);
                true
            }
            None => false,
        }
    }

    /// Whether a server sends WAL from where the standby's log ends: as PostgreSQL decides it, by the numbers of timelines.
    fn serves(&self, primary: Who, standby: Who) -> bool {
        let (Some(theirs), Some(ours)) = (self.data(primary.instance), self.data(standby.instance)) else {
            return false;
        };
        let end = Lsn(ours.log.len() as u64);
        if ours.timeline == theirs.timeline {
            return end <= Lsn(theirs.log.len() as u64);
        }
        theirs.forks.iter().any(|(timeline, at)| *timeline == ours.timeline && end <= *at)
    }

    /// Whether a server that no longer leads in the term in which it is followed has a branch of its own by the same number. Whoever follows it
    /// has not heard of that, and it does not count: but PostgreSQL connects.
    fn is_of_another_branch(&self, server: Who, standby: Who, term: Term) -> bool {
        let leads = self.container(server).and_then(|container| container.leads);
        let own = self.data(standby.instance).map_or(0, |data| data.log.len());
        leads != Some(term.0) && self.common(server.instance, standby.instance) < own
    }

    /// False: the leader's history is not known, or it can't be asked.
    fn rewind(&mut self, who: Who, following: Following) -> bool {
        let told = self.told_by(who, following.leader);
        let known = told.filter(|told| told.leads(following.term).is_some());
        let Some((told, _)) = known.zip(self.primary_of(who, following.leader)) else { return false };
        self.note(|world| format!("{} rewinds", world.instances[who.instance].name));
        self.cut_receiver(who);
        let orders = self.order(who);
        let Some(container) = self.container_mut(who) else { return true };
        container.server.state = Pg::Down;
        container.server.boot += 1;
        container.server.rewinding = true;
        let senders = std::mem::take(&mut container.server.senders);
        self.drop_senders(who.instance, &senders);
        self.adopt(who.instance, &told.log);
        self.within(300, 4_000, What::Postgres(who, orders, Work::Rewound));
        self.report_soon(who);
        true
    }

    /// A rewind ended, and with it the replay that makes it whole: it has what the leader had then.
    pub(super) fn rewound(&mut self, who: Who) {
        if let Some(container) = self.container_mut(who) {
            container.server.rewinding = false;
        }
        let leader = self.container(who).and_then(|container| container.follow);
        let source = leader.and_then(|following| self.primary_of(who, following.leader));
        // It can't be proven, or the source went away in the middle: what is left is not trusted.
        let failed = self.rng.chance(100);
        match source.filter(|_| !failed) {
            Some(source) => self.copy_data(who, source),
            None => {
                if let Some(data) = self.data_mut(who.instance) {
                    data.broken = true;
                    data.primary = false;
                }
            }
        }
        self.follow_on(who);
    }

    fn copy_data(&mut self, who: Who, source: Who) {
        let copy = self.data(source.instance).map(|data| Data { primary: false, ..data.clone() });
        let volume = self.instances[who.instance].volume;
        self.volumes[volume].data = copy;
    }

    pub(super) fn started(&mut self, who: Who) {
        if let Some(container) = self.container_mut(who) {
            container.server.state = Pg::Standby;
            container.server.boot += 1;
        }
        if let Some(data) = self.data_mut(who.instance) {
            data.primary = false;
        }
        self.follow_on(who);
        self.report_soon(who);
    }

    /// False: whose WAL the copy would hold is not known yet, or the leader can't be reached.
    fn clone_from(&mut self, who: Who, following: Following) -> bool {
        let told = self.told_by(who, following.leader);
        let known = told.filter(|told| told.leads(following.term).is_some());
        let Some(told) = known else {
            self.ask_for_history(who, following.leader);
            return false;
        };
        let Some(primary) = self.primary_of(who, following.leader) else { return false };
        self.note(|world| format!("{} clones", world.instances[who.instance].name));
        let volume = self.instances[who.instance].volume;
        self.volumes[volume].data = None;
        self.adopt(who.instance, &told.log);
        let Some(orders) = self.container(who).map(|container| container.server.orders) else { return true };
        self.within(1_500, 9_000, What::Postgres(who, orders, Work::Cloned(primary)));
        self.report_soon(who);
        true
    }

    /// Whoever is no member is told nothing unasked; a leader answers whoever polls it, and what it writes goes along. No ballot has this number.
    fn ask_for_history(&mut self, who: Who, leader: MemberId) {
        let term = self.container(who).and_then(|container| container.state.term());
        let (request, incarnation) = (RequestId(0), Incarnation(0));
        let poll = Poll { request, incarnation, question: Question::Position, term };
        self.send(who, leader, Some(Message::Poll(poll)));
    }

    pub(super) fn cloned(&mut self, who: Who, from: Who) {
        let leader = self.container(who).and_then(|container| container.follow);
        let source = leader.and_then(|following| self.primary_of(who, following.leader));
        if let Some(source) = source.filter(|source| *source == from) {
            self.copy_data(who, source);
        }
        self.follow_on(who);
    }

    /// `initdb` ended: a database that nobody knows of yet.
    pub(super) fn initialised(&mut self, who: Who) {
        let volume = self.instances[who.instance].volume;
        if self.volumes[volume].data.is_none() {
            self.ghost.databases += 1;
            let system = SYSTEM + self.ghost.databases;
            self.volumes[volume].data = Some(Data {
                log: Vec::new(),
                timeline: Timeline(1),
                forks: Arc::default(),
                system,
                primary: true,
                broken: false,
                mixed: false,
            });
            self.append(who.instance);
        }
        self.happen(who, Event::Initialised);
    }
}
