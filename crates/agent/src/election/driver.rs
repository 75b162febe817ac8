//! Runs the election: tells `step` what happens, and carries out what it wants done, in order.
//!
//! Never: an effect when one before it failed; anything said that depends on a memory which is not durable; a write of the Lease sent
//! twice; an answer to a poll while the receiver may still receive.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;
use std::time::Duration;

use bellwether_core::contract::Leader;
use bellwether_core::election::{
    Answer, Deadline, Effect, Event, Force, Incarnation, LeaseVersion, MemberId, Members, Message, Outcome, Phase,
    Poll, Question, RequestId, Settings, Span, State, step,
};
use bellwether_core::fact::Fact;
use bellwether_core::force;
use bellwether_core::instance::leaving;
use bellwether_core::lease_object;
use bellwether_core::wal::{Lsn, SystemIdentifier, Term};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::MissedTickBehavior;

use super::margin::Margin;
use super::memory::MemoryError;
use super::peers::{About, Incoming, Peers};
use super::record::Record;
use super::{Known, Log, Manner, News, Role, Want};
use crate::clock;
use crate::environment::Environment;
use crate::inputs::Inputs;
use crate::kubernetes::lease::{self, Leases, Put};
use crate::kubernetes::pod;
use crate::space::Spaces;

/// How often time passes for the election. What a tick comes late is taken from the stop budget.
const TICK: Duration = Duration::from_millis(25);

/// How often the API is asked where those are who can't be reached.
const SEARCH: Duration = Duration::from_secs(3);

/// Why an election can't go on. It ends the agent, and PostgreSQL with it: without memory or a clock nothing may be promised.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// What must be remembered can't be.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// There is no time.
    #[error("CLOCK_BOOTTIME: {0}")]
    Clock(#[from] std::io::Error),
}

/// What the driver shares with the rest of the agent.
#[derive(Debug)]
pub struct Links {
    /// What PostgreSQL is wanted as.
    pub want: watch::Sender<Want>,
    /// Until when it may accept writes.
    pub guard: watch::Sender<Deadline>,
    /// The Lease as last seen.
    pub lease: watch::Sender<Fact<Value>>,
    /// What the instance's loop tells.
    pub news: mpsc::UnboundedReceiver<News>,
    /// What a person or the operator wants.
    pub wishes: mpsc::UnboundedReceiver<Wish>,
    /// The own log.
    pub log: watch::Receiver<Log>,
    /// How far it is written, of one that leads.
    pub written: watch::Receiver<Option<Lsn>>,
    /// What is known of the others.
    pub others: watch::Sender<BTreeMap<MemberId, Known>>,
    /// Whose database is on the volume, once there is one that may be counted on.
    pub copy: watch::Receiver<Option<SystemIdentifier>>,
    /// How much room the volumes have.
    pub spaces: watch::Receiver<Spaces>,
    /// For people: what it is doing, and why.
    pub phase: watch::Sender<(Phase, &'static str)>,
}

/// Whether PostgreSQL here may run, as a person wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// It is to be stopped.
    Up,
    /// It may run.
    Down,
}

impl Fence {
    /// As the mounted configuration has it.
    pub fn of(inputs: &Inputs, environment: &Environment) -> Self {
        if inputs.config.fenced.contains(&environment.instance) { Self::Up } else { Self::Down }
    }
}

/// What somebody wants of the election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Another primary: this one, or whoever is best.
    Switchover(Option<MemberId>),
    /// Another primary, whoever is best, and no time to shut PostgreSQL down: it is killed.
    Release,
    /// Other settings.
    Settings(Settings),
    /// PostgreSQL here stopped, or no longer.
    Fence(Fence),
    /// These are on their way out, and nobody else.
    Leaving(BTreeSet<String>),
    /// What this leader writes: whoever is no member yet is told nothing unasked.
    AskForHistory(MemberId),
}

/// What comes back from tasks of the driver's own.
#[derive(Debug)]
enum Back {
    Found(String, IpAddr),
    Read(RequestId, Fact<Value>),
    Written(RequestId, Put),
}

/// An answer that waits until the receiver is cut.
#[derive(Debug)]
enum Waiting {
    Own,
    Poll(MemberId, Answer),
}

/// One agent's election.
#[derive(Debug)]
pub struct Driver {
    state: State,
    record: Record,
    peers: Peers,
    leases: Leases,
    pods: Api<Pod>,
    me: Leader,
    links: Links,
    /// The newest Lease: what the next write is made from.
    seen: Option<Value>,
    waiting: Vec<(u64, Waiting)>,
    back: mpsc::UnboundedSender<Back>,
    returned: mpsc::UnboundedReceiver<Back>,
    lease_span: Span,
    margin: Margin,
    /// What is left of tenure while everybody answers.
    enough: Span,
    /// How PostgreSQL is stopped, should what happens now ask for that.
    manner: Manner,
    fence: Fence,
    leaving: BTreeSet<String>,
    addresses: BTreeMap<String, IpAddr>,
}

impl Driver {
    /// A process that has just started.
    pub fn new(
        wish: (Settings, Fence, BTreeSet<String>),
        record: Record,
        peers: Peers,
        api: (Leases, Api<Pod>),
        me: Leader,
        links: Links,
    ) -> Self {
        let (leases, pods) = api;
        let (settings, fence, leaving) = wish;
        let (back, returned) = mpsc::unbounded_channel();
        let state = {
            let record = record.lock();
            State::new(settings, record.identity(), incarnation(), record.memory().clone())
        };
        let lease_span = settings.lease;
        Self {
            state,
            record,
            peers,
            leases,
            pods,
            me,
            links,
            seen: None,
            waiting: vec![],
            back,
            returned,
            lease_span,
            margin: Margin::default(),
            enough: enough(&settings),
            manner: Manner::AtOnce,
            fence,
            leaving,
            addresses: BTreeMap::new(),
        }
    }

    /// Runs until it can't go on.
    pub async fn run(mut self, mut incoming: mpsc::Receiver<Incoming>) -> DriverError {
        let (sights, mut seen) = mpsc::unbounded_channel();
        // Before anything else: whoever is fenced from the start never tries to lead.
        if let Err(error) = self.wished(Wish::Fence(self.fence)) {
            return error;
        }
        let follow = tokio::spawn(self.leases.clone().follow(sights));
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut search = tokio::time::interval(SEARCH);
        search.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let error = loop {
            let carried = tokio::select! {
                biased;
                _ = tick.tick() => self.happen(Event::Tick),
                _ = search.tick() => {
                    self.search();
                    Ok(())
                }
                Some(letter) = incoming.recv() => self.received(letter),
                Some(back) = self.returned.recv() => self.came_back(back),
                Some(news) = self.links.news.recv() => self.told(news),
                Some(sight) = seen.recv() => self.saw(None, &sight),
                Some(wish) = self.links.wishes.recv() => self.wished(wish),
                Ok(()) = self.links.spaces.changed() => {
                    let space = self.links.spaces.borrow_and_update().least();
                    self.happen(Event::Space(space))
                }
                Ok(()) = self.links.log.changed() => {
                    self.tell();
                    Ok(())
                }
            };
            if let Err(error) = carried {
                break error;
            }
        };
        follow.abort();
        error
    }

    /// Asks the API where those are whom nobody has reached yet.
    fn search(&self) {
        let reached = self.peers.who();
        for instance in self.peers.instances() {
            if reached.iter().any(|(_, name, _)| *name == instance) {
                continue;
            }
            let (pods, back) = (self.pods.clone(), self.back.clone());
            tokio::spawn(async move {
                if let Some(address) = pod::address(&pods, &instance).await {
                    let _ = back.send(Back::Found(instance, address));
                }
            });
        }
    }

    fn happen(&mut self, event: Event) -> Result<(), DriverError> {
        let effects = step(&mut self.state, event, clock::now()?);
        for effect in effects {
            self.carry_out(effect)?;
        }
        Ok(())
    }

    fn wished(&mut self, wish: Wish) -> Result<(), DriverError> {
        match wish {
            Wish::Settings(settings) => {
                self.lease_span = settings.lease;
                self.enough = enough(&settings);
                self.state.set(settings);
                Ok(())
            }
            Wish::AskForHistory(leader) => {
                // A leader answers no poll, but it answers; and what it writes goes along with whatever it says. No ballot has this number.
                let poll = Poll {
                    request: RequestId(0),
                    incarnation: Incarnation(0),
                    question: Question::Position,
                    term: self.state.term(),
                };
                self.send(leader, &Message::Poll(poll));
                Ok(())
            }
            Wish::Switchover(target) => self.happen_by(Manner::Drained, Event::Switchover { target }),
            Wish::Release => self.happen(Event::Switchover { target: None }),
            Wish::Leaving(leaving) => {
                self.leaving = leaving;
                Ok(())
            }
            Wish::Fence(Fence::Up) => self.happen_by(Manner::Gently, Event::Fenced),
            Wish::Fence(Fence::Down) => self.happen(Event::FenceLifted),
        }
    }

    /// If PostgreSQL is stopped for this, then in order, so that standbys get everything.
    fn happen_by(&mut self, manner: Manner, event: Event) -> Result<(), DriverError> {
        self.manner = manner;
        let carried = self.happen(event);
        self.manner = Manner::AtOnce;
        carried
    }

    fn told(&mut self, news: News) -> Result<(), DriverError> {
        match news {
            News::Initialised => self.happen(Event::Initialised),
            News::Standing(number, position) => {
                let (due, later) = std::mem::take(&mut self.waiting).into_iter().partition(|(for_, _)| *for_ <= number);
                self.waiting = later;
                for (_, waiting) in due {
                    match waiting {
                        Waiting::Own => self.happen(Event::ReceiverCut { position })?,
                        Waiting::Poll(to, answer) => self.send(to, &Message::Answer(Answer { position, ..answer })),
                    }
                }
                Ok(())
            }
            News::Drained(number, position) if number == self.links.want.borrow().number => {
                self.happen(Event::PostgresDrained { position })
            }
            News::Drained(..) => Ok(()),
            News::Stopped(number, position) if number == self.links.want.borrow().number => {
                self.happen(Event::PostgresStopped { position })
            }
            News::Stopped(..) => Ok(()),
            News::Streaming(from) => self.happen(Event::Streaming { from }),
            News::Crashed => self.happen(Event::PostgresCrashed),
            News::InForce(voters) => self.happen(Event::VotersInForce { voters }),
        }
    }

    fn saw(&mut self, read: Option<RequestId>, sight: &Fact<Value>) -> Result<(), DriverError> {
        let view = match sight {
            Fact::Known(object) => match lease_object::read(object, self.lease_span) {
                Ok(view) => Fact::Known(view),
                Err(error) => {
                    tracing::error!(%error, "the Lease can't be understood");
                    Fact::Unknown
                }
            },
            Fact::Absent => Fact::Absent,
            Fact::Unknown => Fact::Unknown,
        };
        self.keep(sight);
        if let (Fact::Known(object), Fact::Known(view)) = (sight, &view)
            && let Some(wish) = force::Wish::on(object)
        {
            let force = Force { version: view.version, term: wish.term, whom: wish.whom(&self.me.instance) };
            tracing::warn!(to = wish.to, term = wish.term.map(|term| term.0), "a failover by force is asked for");
            self.happen(Event::Forced(force))?;
        }
        self.happen(Event::Lease { read, sight: view })
    }

    /// Keeps the newest object, and shows it to the rest of the agent.
    fn keep(&mut self, sight: &Fact<Value>) {
        match sight {
            Fact::Known(object) if self.seen.as_ref().and_then(version) <= version(object) => {
                self.seen = Some(object.clone());
                let leader = lease::view(object).ok().and_then(|view| view.leader);
                let place = leader.and_then(|leader| Some((leader.instance, leader.address.parse().ok()?)));
                self.learn(place);
                self.links.lease.send_replace(sight.clone());
            }
            Fact::Absent => drop(self.links.lease.send_replace(Fact::Absent)),
            Fact::Known(_) | Fact::Unknown => {}
        }
    }

    fn came_back(&mut self, back: Back) -> Result<(), DriverError> {
        match back {
            Back::Found(instance, address) => {
                self.learn([(instance, address)]);
                Ok(())
            }
            Back::Read(request, sight) => self.saw(Some(request), &sight),
            Back::Written(request, put) => {
                let outcome = match put {
                    Put::Refused => Outcome::Conflict,
                    Put::Ambiguous => Outcome::Ambiguous,
                    Put::Committed(object) => match lease_object::read(&object, self.lease_span) {
                        Ok(view) => {
                            self.keep(&Fact::Known(object));
                            Outcome::Committed(view)
                        }
                        Err(error) => {
                            tracing::error!(%error, "what was written can't be understood");
                            Outcome::Ambiguous
                        }
                    },
                };
                self.happen(Event::Written { request, outcome })
            }
        }
    }

    fn carry_out(&mut self, effect: Effect) -> Result<(), DriverError> {
        match effect {
            Effect::Remember(memory) => self.record.lock().remember(&memory)?,
            Effect::Send { to, message } => self.send(to, &message),
            Effect::CutAndAnswer { to, answer } => self.stand(Waiting::Poll(to, answer)),
            Effect::CutReceiver => self.stand(Waiting::Own),
            Effect::ReadLease { request } => {
                let (leases, back) = (self.leases.clone(), self.back.clone());
                tokio::spawn(async move { back.send(Back::Read(request, leases.read().await)) });
            }
            Effect::WriteLease { request, write } => {
                let object = self.object(&write);
                let (leases, back) = (self.leases.clone(), self.back.clone());
                tokio::spawn(async move {
                    let put = match object {
                        Some(object) => leases.put(object).await,
                        None => Put::Refused,
                    };
                    back.send(Back::Written(request, put))
                });
            }
            Effect::Guard { until } => {
                let before = self.links.guard.send_replace(until);
                if let Some(left) = self.margin.extended(before, until, clock::now()?, self.enough) {
                    tracing::info!(millis = left.0, "of tenure was left when it was extended");
                }
            }
            Effect::StopPostgres => self.want(Role::Stop(self.manner)),
            Effect::Lead { term, voters } => {
                self.margin.begin();
                self.want(Role::Lead { term, voters });
            }
            Effect::PublishEndpoint { term } => self.new_term(term),
            Effect::SetVoters { voters } => {
                if let Some(term) = self.leading() {
                    self.want(Role::Lead { term, voters });
                }
            }
            Effect::Follow { leader, term } => self.want(Role::Follow { leader, term }),
            Effect::Became { phase, because } => {
                tracing::info!(?phase, term = self.state.term().map(|term| term.0), because, "election");
                self.links.phase.send_replace((phase, because));
            }
        }
        Ok(())
    }

    fn leading(&self) -> Option<Term> {
        match &self.links.want.borrow().role {
            Role::Lead { term, .. } => Some(*term),
            _ => None,
        }
    }

    /// A leader that wrote a damaged Lease anew leads another term, with the PostgreSQL that it has.
    fn new_term(&mut self, term: Term) {
        let role = self.links.want.borrow().role.clone();
        if let Role::Lead { term: before, voters } = role
            && before != term
        {
            self.want(Role::Lead { term, voters });
        }
    }

    fn want(&mut self, role: Role) {
        // What waited for a cut is void: the receiver may receive again.
        if role != Role::Stand {
            self.waiting.clear();
        }
        self.links.want.send_modify(|want| *want = Want { number: want.number + 1, role });
    }

    fn stand(&mut self, waiting: Waiting) {
        self.want(Role::Stand);
        let number = self.links.want.borrow().number;
        self.waiting.push((number, waiting));
    }

    fn send(&self, to: MemberId, message: &Message) {
        // Only one with a copy asks to be admitted.
        if *message == Message::Knock && self.links.copy.borrow().is_none() {
            return;
        }
        self.peers.send(to, message, self.about());
    }

    /// Whoever is to follow waits for the history that a new primary writes.
    fn tell(&self) {
        for (to, ..) in self.peers.who() {
            self.peers.tell(to, self.about());
        }
    }

    fn about(&self) -> About {
        let Log { told, slots } = self.links.log.borrow().clone();
        let space = Some(self.links.spaces.borrow().least());
        About { told, written: *self.links.written.borrow(), slots, addresses: self.addresses.clone(), space }
    }

    fn received(&mut self, letter: Incoming) -> Result<(), DriverError> {
        let Incoming { from, instance, address, message, about } = letter;
        let leaves = self.leaving.contains(&instance);
        let message = message.filter(|message| !(leaves && leaving::is_unheard(message)));
        self.learn(about.addresses.clone().into_iter().chain([(instance, address)]));
        self.links.others.send_if_modified(|others| {
            let About { told, written, slots, space, .. } = about;
            let known = Known { told, written, slots, space };
            // How far it has written is new each time, and nobody waits for it.
            let before = others.insert(from, known.clone());
            before.map(|before| Known { written, ..before }) != Some(known)
        });
        match message {
            Some(message) => self.happen(Event::Received { from, message }),
            None => Ok(()),
        }
    }

    /// Where instances are. What they say themselves, or the Lease says of its holder, counts where no name is found.
    fn learn(&mut self, places: impl IntoIterator<Item = (String, IpAddr)>) {
        let before = self.addresses.clone();
        self.addresses.extend(places.into_iter().filter(|(instance, _)| *instance != self.me.instance));
        if self.addresses != before {
            self.peers.set_addresses(self.addresses.clone());
        }
    }

    /// The object to PUT. Without a database of the cluster's there is nothing to lead with.
    fn object(&self, write: &bellwether_core::election::LeaseWrite) -> Option<Value> {
        let seen = self.seen.as_ref()?;
        let system = (*self.links.copy.borrow())?;
        let mut object = lease_object::written(seen, write.base, &write.content, Timestamp::now());
        object["metadata"]["uid"] = uid(write).into();
        lease::announce(&mut object, &self.me, system);
        if let (Some(unheard), Some(term)) = (&write.forced, write.content.term) {
            let record = self.by_force(unheard, term, force::Wish::on(seen));
            object["metadata"]["annotations"][force::RECORD] = serde_json::to_string(&record).ok()?.into();
        }
        Some(object)
    }

    /// What is kept of a failover by force.
    fn by_force(&self, unheard: &Members, term: Term, wish: Option<force::Wish>) -> force::Record {
        let who = self.peers.who();
        let name = |id: MemberId| {
            let known = who.iter().find(|(other, ..)| *other == id).map(|(_, name, _)| name.clone());
            known.unwrap_or_else(|| id.to_string())
        };
        force::Record {
            instance: self.me.instance.clone(),
            term,
            at: Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            asked: wish.and_then(|wish| wish.at),
            unheard: unheard.iter().map(name).collect(),
        }
    }
}

fn uid(write: &bellwether_core::election::LeaseWrite) -> String {
    MemberId(write.uid.0).to_string()
}

fn version(object: &Value) -> Option<LeaseVersion> {
    object["metadata"]["resourceVersion"].as_str()?.parse().ok().map(LeaseVersion)
}

/// A promise that is asked for in each round, and comes within half of one.
fn enough(settings: &Settings) -> Span {
    Span(settings.promise.0.saturating_sub(settings.drift.0 + settings.ask_every.0 * 3 / 2))
}

/// It only has to differ from the lives before.
fn incarnation() -> Incarnation {
    Incarnation(RandomState::new().build_hasher().finish())
}
