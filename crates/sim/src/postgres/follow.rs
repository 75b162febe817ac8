//! How an instance becomes a standby of a leader: start, compare, stream; rewind where the logs part; clone where that fails or there
//! is nothing to begin with.
//!
//! Assumed: who follows can tell exactly where two logs part, because each term begins with a record of its own. Timelines alone don't
//! tell: two standbys that promote apart from each other take the same number.

use bellwether_core::election::{Event, MemberId};

use super::{Pg, Work};
use crate::world::{Data, What, Who, World};

/// System identifiers count up from here.
const SYSTEM: u64 = 7_000_000_000_000_000_000;

impl World {
    /// Follow this leader.
    pub fn follow(&mut self, who: Who, leader: MemberId) {
        self.finish_stop(who);
        self.order(who);
        self.cut_receiver(who);
        let Some(container) = self.container_mut(who) else { return };
        container.follow = Some(leader);
        container.leads = None;
        if container.server.state == Pg::Primary {
            // Whoever follows has stopped; should it not have, it does now.
            self.kill(who);
        }
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
        let (state, orders, receiver) = (container.server.state, container.server.orders, container.server.receiver);
        let Some(leader) = container.follow else { return };
        if receiver.is_some() {
            return;
        }
        let upstream = self.upstream(who, leader);
        let usable = self.data(who.instance).is_some_and(|data| !data.broken);
        match (usable, upstream) {
            (false, Some(primary)) => self.clone_from(who, primary),
            (true, _) if state == Pg::Down => {
                if let Some(container) = self.container_mut(who) {
                    container.server.state = Pg::Starting;
                }
                self.within(100, 900, What::Postgres(who, orders, Work::Started));
            }
            (true, Some(primary)) if state == Pg::Standby => self.attach(who, primary),
            _ => self.within(150, 700, What::Postgres(who, orders, Work::Follow)),
        }
    }

    /// The leader's server, if it can be reached and accepts replication.
    fn upstream(&self, who: Who, leader: MemberId) -> Option<Who> {
        let primary = self.present(self.place(leader)?)?;
        let server = &self.container(primary)?.server;
        let (here, there) = (self.instances[who.instance].machine, self.instances[primary.instance].machine);
        let reached = self.net.connected(here, there) && self.postgres_frozen(primary).is_none();
        (server.state == Pg::Primary && !server.headless && reached).then_some(primary)
    }

    fn attach(&mut self, who: Who, primary: Who) {
        let own = self.data(who.instance).map_or(0, |data| data.log.len());
        if self.common(who.instance, primary.instance) == own {
            return self.connect(primary, who);
        }
        self.note(|world| format!("{} rewinds", world.instances[who.instance].name));
        self.cut_receiver(who);
        let orders = self.order(who);
        let Some(container) = self.container_mut(who) else { return };
        container.server.state = Pg::Down;
        container.server.boot += 1;
        container.server.rewinding = true;
        self.within(300, 4_000, What::Postgres(who, orders, Work::Rewound));
        self.report_soon(who);
    }

    pub(super) fn rewound(&mut self, who: Who) {
        if let Some(container) = self.container_mut(who) {
            container.server.rewinding = false;
        }
        let leader = self.container(who).and_then(|container| container.follow);
        let upstream = leader.and_then(|leader| self.upstream(who, leader));
        // It can't be proven, or the source went away in the middle: what is left is not trusted.
        let failed = upstream.is_none() || self.rng.chance(100);
        let common = upstream.map_or(0, |primary| self.common(who.instance, primary.instance));
        if let Some(data) = self.data_mut(who.instance) {
            data.broken = failed;
            data.primary = false;
            if !failed {
                data.log.truncate(common);
            }
        }
        self.follow_on(who);
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

    fn clone_from(&mut self, who: Who, primary: Who) {
        self.note(|world| format!("{} clones", world.instances[who.instance].name));
        let volume = self.instances[who.instance].volume;
        self.volumes[volume].data = None;
        let Some(orders) = self.container(who).map(|container| container.server.orders) else { return };
        self.within(1_500, 9_000, What::Postgres(who, orders, Work::Cloned(primary)));
        self.report_soon(who);
    }

    pub(super) fn cloned(&mut self, who: Who, from: Who) {
        let leader = self.container(who).and_then(|container| container.follow);
        let source = leader.and_then(|leader| self.upstream(who, leader)).filter(|source| *source == from);
        if let Some(source) = source {
            let copy = self.data(source.instance).map(|data| Data { primary: false, ..data.clone() });
            let volume = self.instances[who.instance].volume;
            self.volumes[volume].data = copy;
        }
        self.follow_on(who);
    }

    /// `initdb` ended: a database that nobody knows of yet.
    pub(super) fn initialised(&mut self, who: Who) {
        let volume = self.instances[who.instance].volume;
        if self.volumes[volume].data.is_none() {
            self.ghost.databases += 1;
            let system = SYSTEM + self.ghost.databases;
            self.volumes[volume].data =
                Some(Data { log: Vec::new(), timeline: 1, system, primary: true, broken: false });
            self.append(who.instance, 0);
        }
        self.happen(who, Event::Initialised);
    }
}
