//! What an agent orders of its PostgreSQL: lead, stop, cut the receiver. Each order makes earlier ones void.

use bellwether_core::election::{Answer, Deadline, Event, MemberId, Phase, Plant, Voters};

use bellwether_core::wal::{Term, Timeline};

use super::{Pg, Work};
use crate::world::{What, Who, World};

impl World {
    /// A newer order. A rewind in the middle leaves a directory that nobody can use.
    pub(super) fn order(&mut self, who: Who) -> u32 {
        let Some(container) = self.container_mut(who) else { return 0 };
        container.server.orders += 1;
        let orders = container.server.orders;
        // What was coming up is not waited for: it comes up anew, as the new orders want it.
        if container.server.state == Pg::Starting {
            container.server.state = Pg::Down;
        }
        if std::mem::take(&mut container.server.rewinding)
            && let Some(data) = self.data_mut(who.instance)
        {
            data.broken = true;
        }
        orders
    }

    /// Become the primary, or start as the one that this instance was.
    pub fn lead(&mut self, who: Who, term: u64, voters: Option<Voters>) {
        self.finish_stop(who);
        let orders = self.order(who);
        self.cut_receiver(who);
        let Some(container) = self.container_mut(who) else { return };
        container.follow = None;
        container.leads = Some(term);
        container.published = false;
        let server = &mut container.server;
        if server.state == Pg::Primary {
            return self.set_voters(who, voters);
        }
        server.rule = voters;
        server.rule_number += 1;
        // A promotion is quick; a start first replays what the crash left.
        let (low, high) = if server.state == Pg::Standby { (20, 300) } else { (100, 1_200) };
        match server.state {
            Pg::Standby => {
                if let Some(timeline) = self.data(who.instance).map(|data| data.timeline) {
                    self.will_write(who.instance, Term(term), timeline);
                }
                self.tell_promotion(who);
            }
            Pg::Down => server.state = Pg::Starting,
            Pg::Starting | Pg::Primary => {}
        }
        self.within(low, high, What::Postgres(who, orders, Work::Leads(term)));
    }

    fn leads(&mut self, who: Who, term: u64) {
        if self.data(who.instance).is_none_or(|data| data.broken || data.mixed) {
            let name = self.instances[who.instance].name.clone();
            return self.ghost.violated("COPY", || format!("{name} leads term {term} without a usable copy"));
        }
        self.begin_to_write(who.instance, Term(term));
        self.append(who.instance);
        let Some(container) = self.container_mut(who) else { return };
        let server = &mut container.server;
        // Whoever follows one that is promoted stays connected; whoever followed one that was down is not.
        if server.state != Pg::Standby {
            server.boot += 1;
            server.senders.clear();
        }
        server.state = Pg::Primary;
        server.headless = false;
        server.waiting.clear();
        // In force before the first client: it is read at the start.
        server.defined = server.rule.is_some();
        server.defined_number = server.rule_number;
        server.in_force = false;
        server.in_force_from = None;
        let kept = server.senders.clone();
        let number = server.rule_number;
        for sender in kept {
            self.within(1, 100, What::Reload(who, Some(sender), number));
        }
        self.judge_leader(who, term);
        self.tell_log(who);
        self.pump_all(who);
        self.look_in_force(who);
        self.publish_soon(who);
        self.report_soon(who);
    }

    /// A primary that goes on in its term writes on; anybody else is promoted, which begins a new timeline.
    fn begin_to_write(&mut self, instance: usize, term: Term) {
        let newest = self.written_by(instance).last().map(|entry| entry.term);
        let Some(data) = self.data_mut(instance) else { return };
        let (timeline, goes_on) = (data.timeline, data.primary && newest.is_none_or(|newest| newest == term));
        data.primary = true;
        if !goes_on {
            self.will_write(instance, term, timeline);
            self.begin_timeline(instance);
        } else if newest.is_none() {
            self.will_write(instance, term, Timeline(0));
        }
    }

    /// Stop at once, and reap every descendant. Until the last is gone, sessions go on.
    pub fn stop(&mut self, who: Who) {
        self.order(who);
        let Some(container) = self.container_mut(who) else { return };
        container.follow = None;
        container.server.stopping = true;
        let (low, high) = if container.server.state == Pg::Down { (1, 5) } else { (5, 300) };
        // A switchover drains its primary first, where that can be had.
        let drains = container.state.phase() == Phase::HandingOver && !container.server.headless;
        let orders = container.server.orders;
        if drains && self.rng.chance(700) {
            self.within(1, 60, What::Drained(who, orders));
        }
        self.within(low, high, What::Stopped(who));
    }

    /// Nobody can write any more; once every standby that is connected has everything, the agent is told.
    pub fn drained(&mut self, who: Who, orders: u32) {
        if let Some(until) = self.postgres_frozen(who).max(self.agent_frozen(who)) {
            return self.queue.push(until, What::Drained(who, orders));
        }
        let end = self.data(who.instance).map_or(0, |data| data.log.len());
        let Some(container) = self.container(who) else { return };
        let server = &container.server;
        if !server.stopping || server.orders != orders || server.state != Pg::Primary || server.headless {
            return;
        }
        let all = !server.senders.is_empty() && server.senders.iter().all(|at| self.connections[*at].flushed >= end);
        if let Some(container) = self.container_mut(who) {
            container.server.drained = true;
        }
        if all {
            let position = self.said_position(who.instance);
            self.happen(who, Event::PostgresDrained { position });
        } else {
            self.within(2, 10, What::Drained(who, orders));
        }
    }

    /// The last process is reaped, by whomever: the guard may have been quicker.
    pub fn stopped(&mut self, who: Who) {
        if let Some(until) = self.postgres_frozen(who).max(self.agent_frozen(who)) {
            return self.queue.push(until, What::Stopped(who));
        }
        self.finish_stop(who);
        let position = self.said_position(who.instance);
        self.happen(who, Event::PostgresStopped { position });
    }

    /// Orders are carried out one after the other: what was to stop has stopped before anything else begins.
    pub(super) fn finish_stop(&mut self, who: Who) {
        let stopping = self.container_mut(who).map(|container| std::mem::take(&mut container.server.stopping));
        if stopping == Some(true) {
            self.kill(who);
            self.tell_no_log(who);
        }
    }

    /// Every process is gone, now.
    pub fn kill(&mut self, who: Who) {
        self.cut_receiver(who);
        let Some(container) = self.container_mut(who) else { return };
        container.leads = None;
        let server = &mut container.server;
        server.state = Pg::Down;
        server.drained = false;
        server.boot += 1;
        server.headless = false;
        server.waiting.clear();
        let senders = std::mem::take(&mut server.senders);
        self.drop_senders(who.instance, &senders);
        self.report_soon(who);
    }

    /// Cut the own receiver; the log ends where it ends, until somebody is followed again.
    pub fn cut(&mut self, who: Who) {
        self.order(who);
        self.cut_receiver(who);
        if let Some(container) = self.container_mut(who) {
            container.follow = None;
        }
        self.tell_no_log(who);
        self.report_soon(who);
    }

    /// The same, and the answer to a poll.
    pub fn cut_and_answer(&mut self, who: Who, to: MemberId, mut answer: Answer) {
        self.cut(who);
        answer.position = self.said_position(who.instance);
        self.within(1, 30, What::Polled(who, to, Box::new(answer)));
    }

    /// The guard has this deadline from now on.
    pub fn guard(&mut self, who: Who, until: Deadline) {
        let machine = self.instances[who.instance].machine;
        let Some(container) = self.container_mut(who) else { return };
        container.guard = until;
        container.guard_order += 1;
        let order = container.guard_order;
        if let Deadline::At(moment) = until {
            let at = self.machines[machine].when(moment).max(self.now);
            // A timer that fires late; δ pays for it.
            let late = self.rng.below(4);
            self.queue.push(at + late, What::Guard(who, order));
        }
    }

    /// The guard's deadline is there: it kills PostgreSQL alone, whatever the agent does.
    pub fn guard_fires(&mut self, who: Who, order: u32) {
        if let Some(until) = self.postgres_frozen(who) {
            // After a thaw everybody runs again, and the guard not necessarily first.
            let late = self.rng.below(50);
            return self.queue.push(until + late, What::Guard(who, order));
        }
        if self.settings.planted == Some(Plant::LapseIgnored) {
            return;
        }
        let Some(container) = self.container(who).filter(|container| container.guard_order == order) else { return };
        if container.leads.is_some() && container.server.state != Pg::Down {
            self.note(|world| format!("{} guard kills PostgreSQL", world.instances[who.instance].name));
            self.order(who);
            self.kill(who);
        }
    }

    /// PostgreSQL dies by itself: the postmaster first; its children until they are reaped.
    pub fn crash_postgres(&mut self, who: Who) {
        let Some(container) = self.container_mut(who) else { return };
        match container.server.state {
            Pg::Primary => {
                container.server.headless = true;
                let boot = container.server.boot;
                self.within(5, 60, What::FoundDead(who, boot));
            }
            Pg::Standby | Pg::Starting if container.leads.is_some() => {
                // It was about to accept writes.
                self.order(who);
                self.kill(who);
                let Some(container) = self.container_mut(who) else { return };
                container.server.headless = true;
                let boot = container.server.boot;
                self.within(5, 60, What::FoundDead(who, boot));
            }
            Pg::Standby | Pg::Starting => {
                self.order(who);
                self.kill(who);
                self.happen(who, Event::Streaming { from: None });
                self.follow_on(who);
            }
            Pg::Down => {}
        }
    }

    /// The agent finds it.
    pub fn found_dead(&mut self, who: Who, boot: u32) {
        if let Some(until) = self.agent_frozen(who) {
            return self.queue.push(until, What::FoundDead(who, boot));
        }
        if self.container(who).is_some_and(|container| container.server.headless && container.server.boot == boot) {
            self.happen(who, Event::PostgresCrashed);
        }
    }

    /// Work is done, if nobody ordered otherwise since.
    pub fn worked(&mut self, who: Who, orders: u32, work: Work) {
        if let Some(until) = self.postgres_frozen(who).max(self.agent_frozen(who)) {
            return self.queue.push(until, What::Postgres(who, orders, work));
        }
        if self.container(who).is_none_or(|container| container.server.orders != orders) {
            return;
        }
        match work {
            Work::Leads(term) => self.leads(who, term),
            Work::Started => self.started(who),
            Work::Follow => self.follow_step(who),
            Work::Rewound => self.rewound(who),
            Work::Cloned(from) => self.cloned(who, from),
            Work::Initialised => self.initialised(who),
        }
    }
}
