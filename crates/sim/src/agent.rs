//! An agent's shell, simulated: carries out what the election wants done, in order, and tells it what happened.
//!
//! The election itself is the real one. What this shell does is what the real shell must do: keep memory before anything else, send a
//! write once, answer a poll only with the receiver cut, never knock without a copy, and see to it that the endpoint leads here while
//! this instance leads.

use std::collections::BTreeMap;
use std::sync::Arc;

use bellwether_api::labels;
use bellwether_api::v1::{InstanceRole, InstanceState};
use bellwether_core::contract::Report;
use bellwether_core::election::{Answer, Effect, Event, Incarnation, MemberId, Memory, Message, Phase, State, step};
use bellwether_core::fact::Fact;
use bellwether_core::instance::leaving;
use bellwether_core::instance::start::{LeaseView, Start, VolumeState, start};
use bellwether_core::wal::SystemIdentifier;

use crate::api::{Body, CLUSTER, Request};
use crate::postgres::{Pg, Server, Work};
use crate::world::{Container, Packet, What, Who, World};
use bellwether_core::object::Kind;

impl World {
    /// An event happens to an agent.
    pub fn happen(&mut self, who: Who, event: Event) {
        let now = self.clock(who.instance);
        let Some(container) = self.container_mut(who) else { return };
        let effects = step(&mut container.state, event, now);
        if effects.is_empty() {
            return;
        }
        for effect in effects {
            self.carry_out(who, effect);
        }
        self.judge_tenure();
    }

    fn carry_out(&mut self, who: Who, effect: Effect) {
        match effect {
            Effect::Remember(memory) => self.remember(who, memory),
            Effect::Send { to, message } => self.send(who, to, Some(message)),
            Effect::CutAndAnswer { to, answer } => self.cut_and_answer(who, to, answer),
            Effect::CutReceiver => {
                self.cut(who);
                let position = self.said_position(who.instance);
                self.happen(who, Event::ReceiverCut { position });
            }
            Effect::ReadLease { request } => self.call(who, Request::ReadLease(request)),
            Effect::WriteLease { request, write } => {
                let seen = self.container(who).and_then(|container| container.lease.clone()).unwrap_or_default();
                if self.ghost.lease.as_ref().is_none_or(|lease| lease.content != write.content) {
                    self.note(|world| {
                        let (name, content) =
                            (&world.instances[who.instance].name, world.lease_in_names(&write.content));
                        format!("{name} writes the Lease: {content}")
                    });
                }
                self.call(who, Request::WriteLease(request, Box::new(write), seen));
            }
            Effect::Guard { until } => self.guard(who, until),
            Effect::StopPostgres => self.stop(who),
            Effect::Lead { term, voters } => self.lead(who, term.0, voters),
            Effect::PublishEndpoint { term } => {
                if let Some(container) = self.container_mut(who) {
                    container.leads = container.leads.map(|_| term.0);
                    container.published = false;
                }
                self.tell_log(who);
                self.publish_soon(who);
            }
            Effect::SetVoters { voters } => self.set_voters(who, voters),
            Effect::Follow { leader, term } => self.follow(who, leader, term),
            Effect::Became { phase, because } => self.became(who, phase, because),
        }
    }

    fn remember(&mut self, who: Who, memory: Memory) {
        let volume = self.instances[who.instance].volume;
        self.volumes[volume].memory = memory;
    }

    fn became(&mut self, who: Who, phase: Phase, because: &str) {
        let term = self.container(who).and_then(|container| container.state.term()).map_or(0, |term| term.0);
        self.trace.mix(self.now << 8 | who.instance as u64);
        self.note(|world| format!("{} becomes {phase:?} (term {term}): {because}", world.instances[who.instance].name));
        self.report_soon(who);
    }

    /// Sends a message to whoever has that identity.
    pub fn send(&mut self, who: Who, to: MemberId, message: Option<Message>) {
        // Only one with a copy asks to be admitted.
        if matches!(message, Some(Message::Knock)) && self.position(who.instance).is_none() {
            return;
        }
        let Some(target) = self.place(to) else { return };
        let Some(told) = self.container(who).map(|container| container.tells.clone()) else { return };
        let (from, there) = (self.instances[who.instance].machine, self.instances[target].machine);
        let packet = Packet { from: self.instances[who.instance].id, origin: from, to, message, told };
        if self.net.doubled(from, there, &mut self.rng)
            && let Some(delay) = self.net.transit(from, there, &mut self.rng)
        {
            self.after(delay + 5, What::Message(Box::new(packet.clone())));
        }
        if let Some(delay) = self.net.transit(from, there, &mut self.rng) {
            self.after(delay, What::Message(Box::new(packet)));
        }
    }

    /// The receiver is cut and the answer is ready.
    pub fn polled(&mut self, who: Who, to: MemberId, answer: Answer) {
        if let Some(until) = self.agent_frozen(who) {
            return self.queue.push(until, What::Polled(who, to, Box::new(answer)));
        }
        if self.container(who).is_some() {
            self.send(who, to, Some(Message::Answer(answer)));
        }
    }

    /// A message arrives.
    pub fn message(&mut self, packet: Packet) {
        let Some(who) = self.place(packet.to).and_then(|target| self.present(target)) else { return };
        if let Some(until) = self.agent_frozen(who) {
            return self.queue.push(until, What::Message(Box::new(packet)));
        }
        if self.net.blocked(packet.origin, self.instances[who.instance].machine) {
            return;
        }
        if let Some(container) = self.container_mut(who) {
            container.told.insert(packet.from, packet.told);
        }
        let sender = self.place(packet.from).map(|from| self.instances[from].name.clone());
        let leaves = |name: String| self.container(who).is_some_and(|container| container.leaving.contains(&name));
        let leaves = sender.is_some_and(leaves);
        if let Some(message) = packet.message.filter(|message| !(leaves && leaving::is_unheard(message))) {
            self.happen(who, Event::Received { from: packet.from, message });
        }
    }

    /// Time passes for an agent.
    pub fn tick(&mut self, who: Who) {
        if let Some(until) = self.agent_frozen(who) {
            return self.queue.push(until, What::Tick(who));
        }
        let Some(every) = self.container(who).map(|container| container.tick) else { return };
        self.happen(who, Event::Tick);
        self.after(every, What::Tick(who));
    }

    /// The Lease's watch shows something.
    pub fn watch(&mut self, who: Who, object: crate::api::Sighting) {
        if let Some(until) = self.agent_frozen(who) {
            return self.queue.push(until, What::Watch(who, Box::new(object)));
        }
        let machine = self.instances[who.instance].machine;
        if self.api.down > 0 || !self.net.connected(machine, self.net.api()) {
            // The watch breaks; once it can be opened again it begins with the present.
            let retry = self.rng.between(700, 1_500);
            let now = self.now;
            let Some(container) = self.container_mut(who) else { return };
            if container.watched > now {
                return;
            }
            container.watched = now + retry;
            let present = self.api.get(Kind::Lease, CLUSTER);
            return self.after(retry, What::Watch(who, Box::new(present)));
        }
        let sight = match &object {
            Some(object) => self.view(object),
            None => Fact::Absent,
        };
        self.saw_lease(who, object);
        self.happen(who, Event::Lease { read: None, sight });
    }

    /// Keeps the newest object: what the next write is made from.
    fn saw_lease(&mut self, who: Who, object: crate::api::Sighting) {
        let version = |object: &serde_json::Value| {
            object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse::<u64>().ok())
        };
        let Some(container) = self.container_mut(who) else { return };
        if let Some(object) = object
            && container.lease.as_deref().and_then(version) <= version(&object)
        {
            container.lease = Some(object);
        }
    }

    /// A call ended, or nobody waits for it any longer.
    pub fn answered(&mut self, who: Who, request: Request, body: Option<Body>) {
        match request {
            Request::ReadLease(request) => {
                let object = match body {
                    Some(Body::Lease(fact)) => fact,
                    _ => Fact::Unknown,
                };
                let sight = match &object {
                    Fact::Known(object) => self.view(object),
                    Fact::Absent => Fact::Absent,
                    Fact::Unknown => Fact::Unknown,
                };
                self.saw_lease(who, object.known().cloned());
                self.happen(who, Event::Lease { read: Some(request), sight });
            }
            Request::WriteLease(request, ..) => {
                if let Some(Body::Written(Some(object))) = &body {
                    self.saw_lease(who, Some(object.clone()));
                }
                let outcome = self.outcome(body);
                if !matches!(outcome, bellwether_core::election::Outcome::Committed(_)) {
                    self.note(|world| {
                        format!("{}'s write of the Lease: {outcome:?}", world.instances[who.instance].name)
                    });
                }
                self.happen(who, Event::Written { request, outcome });
            }
            Request::Report(text, _) => {
                let done = matches!(body, Some(Body::Done(true)));
                // A late write of an earlier report may have come in between: the pod's watch told of it while the answer was on its way.
                let said = self.said_on_pod(who.instance).as_deref() == Some(&text);
                let Some(container) = self.container_mut(who) else { return };
                container.reported = Some(text).filter(|_| done && said);
                container.report_due = false;
                self.report_soon(who);
            }
            Request::Endpoint => {
                // As with a report: a former leader's late write may have come in between.
                let done = matches!(body, Some(Body::Done(true))) && self.rw_leads_to(who.instance);
                if let Some(container) = self.container_mut(who) {
                    container.published = done;
                }
                if !done {
                    self.publish_soon(who);
                }
            }
        }
    }

    /// The endpoint should lead here, as soon as PostgreSQL accepts writes.
    pub fn publish_soon(&mut self, who: Who) {
        self.within(1, 40, What::Endpoint(who));
    }

    /// Writes the endpoint, if this instance leads and it is not known to lead here.
    pub fn publish(&mut self, who: Who) {
        if let Some(until) = self.agent_frozen(who) {
            return self.queue.push(until, What::Endpoint(who));
        }
        let Some(container) = self.container(who) else { return };
        let asked = container.calls.iter().any(|pending| matches!(pending.request, Request::Endpoint));
        let leads = container.leads.is_some() && container.state.tenure(self.clock(who.instance)).is_some();
        if container.server.writable() && leads && !container.published && !asked {
            self.call(who, Request::Endpoint);
        }
    }

    fn rw_leads_to(&self, instance: usize) -> bool {
        let slice = self.api.get(Kind::EndpointSlice, &self.api.names.rw());
        slice.is_some_and(|slice| slice["endpoints"][0]["addresses"][0] == self.instances[instance].address.as_str())
    }

    /// The slice's watch shows where `rw` leads. A late write of a former leader's would lead clients away for ever.
    pub fn endpoint_seen(&mut self, address: Option<&str>) {
        for instance in 0..self.instances.len() {
            let here = Some(self.instances[instance].address.as_str()) == address;
            let Some(who) = self.present(instance) else { continue };
            let Some(container) = self.container_mut(who) else { continue };
            if container.leads.is_some() && !here {
                container.published = false;
                self.within(50, 500, What::Endpoint(who));
            }
        }
    }

    /// What the instance is doing has changed, perhaps: it is said soon, and the kubelet probes soon.
    pub fn report_soon(&mut self, who: Who) {
        let Some(container) = self.container_mut(who) else { return };
        if !container.report_due {
            container.report_due = true;
            self.within(200, 3_000, What::Report(who));
        }
        let Some(container) = self.container_mut(who) else { return };
        if !container.probe_due {
            container.probe_due = true;
            self.within(300, 2_000, What::Probe(who.instance));
        }
    }

    /// Writes the report, if it changed.
    pub fn write_report_now(&mut self, who: Who) {
        if let Some(until) = self.agent_frozen(who) {
            return self.queue.push(until, What::Report(who));
        }
        let (report, role) = self.report(who);
        let text = serde_json::to_string(&report).unwrap_or_default();
        let Some(container) = self.container_mut(who) else { return };
        if container.reported.as_deref() == Some(&text) {
            container.report_due = false;
            return;
        }
        self.call(who, Request::Report(text, role));
    }

    /// The own pod's watch shows what is said there. A late write of an earlier report would say it for ever.
    pub fn report_seen(&mut self, who: Who, said: Option<&str>) {
        let Some(container) = self.container_mut(who) else { return };
        if container.reported.is_some() && container.reported.as_deref() != said {
            container.reported = None;
            self.report_soon(who);
        }
    }

    /// The report as it is on the pod.
    pub fn said_on_pod(&self, instance: usize) -> Option<String> {
        let pod = self.api.get(Kind::Pod, &self.instances[instance].name)?;
        pod["metadata"]["annotations"][labels::REPORT].as_str().map(str::to_owned)
    }

    fn report(&self, who: Who) -> (Report, &'static str) {
        let Some(container) = self.container(who) else { return (Report::default(), "") };
        let data = self.data(who.instance).filter(|data| !data.broken);
        let streaming = container.server.receiver.is_some();
        let (state, role, accepts) = match container.server.state {
            Pg::Primary => (InstanceState::Leading, Some(InstanceRole::Primary), true),
            Pg::Standby if streaming => (InstanceState::Streaming, Some(InstanceRole::Standby), true),
            Pg::Standby => (InstanceState::NotStreaming, Some(InstanceRole::Standby), true),
            Pg::Starting => (InstanceState::Starting, None, false),
            Pg::Down if data.is_none() => (InstanceState::Joining, None, false),
            Pg::Down => (InstanceState::Down, None, false),
        };
        let label = match role {
            Some(InstanceRole::Primary) => "primary",
            Some(InstanceRole::Standby) => "standby",
            None => "",
        };
        let report = Report {
            role,
            state,
            term: container.state.term().map(|term| term.0),
            timeline: data.map(|data| data.timeline),
            system_identifier: data.map(|data| SystemIdentifier(data.system)),
            accepts_sql: accepts,
            identity: Some(self.instances[who.instance].id.to_string()),
            ..Report::default()
        };
        (report, label)
    }

    /// What is mounted says who leaves.
    pub fn configuration_seen(&mut self, who: Who) {
        let Some(config) = self.instance_config() else { return };
        let (usual, leaves) = (self.settings, leaving::leaving(&config));
        let Some(container) = self.container_mut(who).filter(|container| container.leaving != leaves) else { return };
        container.state.set(leaving::settings(usual, &leaves));
        container.leaving = leaves;
    }

    /// An agent starts in a new container.
    pub fn start_agent(&mut self, instance: usize) {
        self.instances[instance].lives += 1;
        let life = self.instances[instance].lives;
        let who = Who { instance, life };
        let volume = self.instances[instance].volume;
        let incarnation = Incarnation(self.rng.draw());
        let state =
            State::new(self.settings, self.instances[instance].id, incarnation, self.volumes[volume].memory.clone());
        let tick = self.rng.between(40, 100);
        self.instances[instance].container = Some(Container {
            life,
            state,
            server: Server::down(),
            guard: bellwether_core::election::Deadline::At(self.clock(instance)),
            guard_order: 0,
            follow: None,
            tells: Arc::default(),
            told: BTreeMap::new(),
            leads: None,
            frozen: None,
            frozen_whole: None,
            thawed: None,
            tick,
            lease: None,
            watched: self.now,
            calls: Vec::new(),
            reported: None,
            report_due: false,
            published: false,
            crash_at_write: None,
            probe_due: false,
            stopping: None,
            leaving: Default::default(),
        });
        self.configuration_seen(who);
        self.note(|world| format!("{} starts", world.instances[instance].name));
        let present = self.api.get(Kind::Lease, CLUSTER);
        self.show_lease(who, present);
        self.within(1, 50, What::Tick(who));
        self.initialise(who);
        self.report_soon(who);
    }

    /// The one instance that the operator chose initialises the database, if nobody ever has; or has done so in an earlier life and goes on
    /// from there. That is the agent's own decision. Once somebody has led, the rest is the election's.
    fn initialise(&mut self, who: Who) {
        let Some(config) = self.instance_config() else { return };
        let lease = self.api.get(Kind::Lease, CLUSTER);
        let taken = lease.is_none_or(|lease| {
            !lease["spec"]["holderIdentity"].is_null() || !lease["spec"]["leaseTransitions"].is_null()
        });
        if taken {
            return;
        }
        let nobody_led = Fact::Known(LeaseView::default());
        let decision =
            start(&self.volume_state(who.instance), &nobody_led, &config, &self.instances[who.instance].name);
        if matches!(decision, Start::Initialise | Start::Run { first: true }) {
            let orders = self.container(who).map_or(0, |container| container.server.orders);
            self.within(400, 2_000, What::Postgres(who, orders, Work::Initialised));
        }
    }

    /// A database is announced by the first record that a leader writes to it.
    fn volume_state(&self, instance: usize) -> VolumeState {
        match self.data(instance) {
            None => VolumeState::Empty,
            Some(data) if data.broken => VolumeState::UnfinishedRewind,
            Some(data) if data.log.len() <= 1 => VolumeState::Unannounced(SystemIdentifier(data.system)),
            Some(data) => VolumeState::Data(SystemIdentifier(data.system)),
        }
    }

    /// The container dies: with it the agent, its guard, and every process of PostgreSQL.
    pub fn crash_container(&mut self, who: Who, why: &str) {
        if self.container(who).is_none() {
            return;
        }
        self.note(|world| format!("{} crashes: {why}", world.instances[who.instance].name));
        self.order_and_kill(who);
        self.instances[who.instance].container = None;
        self.container_ended(who.instance);
    }

    fn order_and_kill(&mut self, who: Who) {
        self.cut(who);
        self.kill(who);
    }
}
