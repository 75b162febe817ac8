//! Everything there is in one run: machines, instances, volumes, the API, clients, and the events to come.
//!
//! One struct on purpose: whatever happens may touch any of it, and a run is a plain loop over one queue. The parts that act on it are
//! in files of their own. Never: iterates over something without an order, reads a real clock, or draws from anything but the seed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bellwether_core::election::{Answer, Deadline, MemberId, Memory, Message, Moment, Settings, State};
use bellwether_core::instance::history::{Told, WrittenBy};
use bellwether_core::wal::{Lsn, Term, Timeline};

use crate::api::{Api, Call, Reply, Sighting};
use crate::client::Client;
use crate::fault::Faults;
use crate::ghost::Ghost;
use crate::network::Network;
use crate::operator::{Operator, Turn};
use crate::options::Options;
use crate::postgres::{Connection, Records, Server, Work};
use crate::queue::{Queue, Time};
use crate::rng::Rng;
use crate::trace::Trace;

/// One life of an instance's container. What was meant for an earlier life means nothing to a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who {
    /// Which instance.
    pub instance: usize,
    /// Which life of it.
    pub life: u32,
}

/// A machine with a clock of its own.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Whether it runs.
    pub up: bool,
    /// What its clock showed when the run began.
    pub offset: u64,
    /// How much faster than the world its clock runs, in millionths.
    pub drift: i64,
}

impl Machine {
    /// What its clock shows.
    pub fn clock(&self, now: Time) -> Moment {
        // Ten hours have 36 million milliseconds, and a drift is less than a million.
        let now = i64::try_from(now).unwrap_or(i64::MAX / 1_000_000);
        let gained = now * self.drift / 1_000_000;
        Moment(self.offset + u64::try_from(now + gained).unwrap_or(0))
    }
    /// When its clock shows `moment`, or a later one for the first time.
    pub fn when(&self, moment: Moment) -> Time {
        let shown = i128::from(moment.0) - i128::from(self.offset);
        let guess = shown * 1_000_000 / (1_000_000 + i128::from(self.drift)) - 2;
        let mut at = u64::try_from(guess).unwrap_or(0);
        while self.clock(at) < moment {
            at += 1;
        }
        at
    }
}

/// A pod, on one volume, which has an identity.
pub struct Instance {
    /// The pod's name.
    pub name: String,
    /// The pod's UID.
    pub uid: String,
    /// The identity of its volume, under which it takes part in the election.
    pub id: MemberId,
    /// Where it runs.
    pub machine: usize,
    /// Its address.
    pub address: String,
    /// Its volume.
    pub volume: usize,
    /// Its container, while it runs.
    pub container: Option<Container>,
    /// How many containers it had.
    pub lives: u32,
    /// It is being deleted.
    pub terminating: bool,
    /// Its object is gone.
    pub gone: bool,
    /// What the kubelet last said of its readiness.
    pub said_ready: bool,
}

/// What survives a container: the contents of a claim.
#[derive(Clone, Debug, Default)]
pub struct Volume {
    /// The claim's UID.
    pub claim: String,
    /// The machine it is on, once it was used.
    pub machine: Option<usize>,
    /// The UID of the pod that first filled it.
    pub identity: Option<MemberId>,
    /// The database.
    pub data: Option<Data>,
    /// What the election keeps.
    pub memory: Memory,
    /// Who wrote which timelines, beside it.
    pub written_by: Vec<WrittenBy>,
}

/// A data directory.
#[derive(Clone, Debug)]
pub struct Data {
    /// The write-ahead log: numbers of records, each written once in the world.
    pub log: Vec<u32>,
    /// The timeline.
    pub timeline: Timeline,
    /// Where the timelines before it ended: its history file.
    pub forks: Arc<Vec<(Timeline, Lsn)>>,
    /// What `initdb` called it.
    pub system: u64,
    /// It was last run as a primary.
    pub primary: bool,
    /// A rewind did not finish: nothing of it can be used.
    pub broken: bool,
    /// Another branch was written over it, of a timeline with the same number: it is good for nothing but to be made anew.
    pub mixed: bool,
}

/// An agent, its guard, and its PostgreSQL.
pub struct Container {
    /// Which life.
    pub life: u32,
    /// The election.
    pub state: State,
    /// PostgreSQL.
    pub server: Server,
    /// The deadline that the guard has.
    pub guard: Deadline,
    /// Which order of the guard is the newest.
    pub guard_order: u32,
    /// Whom it was told to follow.
    pub follow: Option<Following>,
    /// What it tells of its log, along with whatever it says.
    pub tells: Arc<Told>,
    /// What others told of theirs.
    pub told: BTreeMap<MemberId, Arc<Told>>,
    /// The term that it leads, while it does.
    pub leads: Option<u64>,
    /// Until when the agent's process is frozen.
    pub frozen: Option<Time>,
    /// Until when PostgreSQL and the guard are frozen with it.
    pub frozen_whole: Option<Time>,
    /// When they last thawed.
    pub thawed: Option<Time>,
    /// Between two ticks.
    pub tick: Time,
    /// The Lease object as last seen: what a write is made from.
    pub lease: Option<Arc<serde_json::Value>>,
    /// When the newest event of the Lease's watch arrives; a watch never overtakes itself.
    pub watched: Time,
    /// Calls of the API that wait for their answer.
    pub calls: Vec<crate::api::Pending>,
    /// The report as last written.
    pub reported: Option<String>,
    /// Whether an event to write it is due.
    pub report_due: bool,
    /// Whether the endpoint is known to lead here.
    pub published: bool,
    /// The API's write before, during or after which it is to crash.
    pub crash_at_write: Option<CrashAt>,
    /// Whether a probe of the kubelet is due.
    pub probe_due: bool,
    /// Asked to stop: up to when a leader tries to hand over.
    pub stopping: Option<Time>,
    /// Who leaves, by the configuration as last mounted.
    pub leaving: BTreeSet<String>,
}

/// When a process dies, relative to a write of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashAt {
    /// Before it is sent.
    Before,
    /// After it is sent and before it is answered.
    During,
    /// When its answer arrives, before anything is done with it.
    After,
}

/// Something that happens.
pub enum What {
    /// Time for an agent to look.
    Tick(Who),
    /// An agent's message arrives.
    Message(Box<Packet>),
    /// A watch shows the Lease.
    Watch(Who, Box<Sighting>),
    /// A call arrives at the API.
    Call(Box<Call>),
    /// The API's answer arrives.
    Reply(Who, Box<Reply>),
    /// Nobody waits for that answer any longer.
    Timeout(Who, u64),
    /// Work on PostgreSQL is done, unless it was overtaken by newer orders.
    Postgres(Who, u32, Work),
    /// A primary that is being stopped has nobody left who could write, by these orders.
    Drained(Who, u32),
    /// The volume of a pod that is gone is lost.
    LoseVolume(usize),
    /// Every process of PostgreSQL is gone, as was ordered.
    Stopped(Who),
    /// An answer to a poll is ready.
    Polled(Who, MemberId, Box<Answer>),
    /// The guard's timer fires, for this order.
    Guard(Who, u32),
    /// The agent finds PostgreSQL dead.
    FoundDead(Who, u32),
    /// WAL arrives at a standby.
    Wal(usize),
    /// Its acknowledgement arrives at the primary.
    WalAck(usize, usize),
    /// A connection that was cut in between is given up by both ends, if it still is.
    Silence(usize),
    /// The standby notices that its connection is gone.
    ReceiverLost(usize),
    /// The primary notices that its connection is gone.
    SenderLost(usize),
    /// A process of PostgreSQL reads its configuration: a walsender's, or the checkpointer's.
    Reload(Who, Option<usize>, u32),
    /// Time to write the report.
    Report(Who),
    /// Time to see that the endpoint leads here.
    Endpoint(Who),
    /// The kubelet probes.
    Probe(usize),
    /// The scheduler places a pod.
    Bind(String),
    /// A kubelet starts a container.
    StartContainer(usize),
    /// A container that was asked to stop looks whether it can.
    Stop(Who),
    /// Something happens to this life of the operator.
    Operator(u32, Turn),
    /// A client goes on.
    Client(usize, u32),
    /// A client's statement arrives.
    Statement(usize, u32),
    /// The answer arrives at the client.
    Answered(usize, u32, bool),
    /// The Services' proxy has a new `rw` endpoint.
    Proxy(Option<String>),
    /// The next fault begins.
    Fault,
    /// A fault ends.
    Heal(usize),
    /// The faults are over.
    Calm,
    /// A machine's silence is noticed by the control plane.
    NodeLost(usize, u32),
    /// A machine comes back.
    PowerOn(usize),
    /// The run's conditions are looked at.
    Inspect,
}

/// A message between agents.
#[derive(Clone, Debug)]
pub struct Packet {
    /// Who sent it.
    pub from: MemberId,
    /// From where.
    pub origin: usize,
    /// For whom.
    pub to: MemberId,
    /// What. Nothing: only what goes along.
    pub message: Option<Message>,
    /// What the sender tells of its log.
    pub told: Arc<Told>,
}

/// Whom a standby is to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Following {
    /// The leader.
    pub leader: MemberId,
    /// Of this term.
    pub term: Term,
    /// Their logs were compared, and PostgreSQL is configured to stream from there.
    pub compared: bool,
}

/// Everything there is.
pub struct World {
    /// How the run was asked for.
    pub options: Options,
    /// The agents' settings.
    pub settings: Settings,
    /// What time it is.
    pub now: Time,
    /// What is to come.
    pub queue: Queue<What>,
    /// Where chance comes from.
    pub rng: Rng,
    /// Machines.
    pub machines: Vec<Machine>,
    /// How often each machine went down.
    pub outages: Vec<u32>,
    /// The network.
    pub net: Network,
    /// The API.
    pub api: Api,
    /// Instances, gone ones included.
    pub instances: Vec<Instance>,
    /// Those that are not gone, by identity.
    pub places: BTreeMap<MemberId, usize>,
    /// Volumes, lost ones included.
    pub volumes: Vec<Volume>,
    /// Every record of WAL.
    pub records: Records,
    /// Connections of replication, closed ones included.
    pub connections: Vec<Connection>,
    /// The operator.
    pub operator: Operator,
    /// How long news take to reach it, at most.
    pub operator_lag: Time,
    /// Where the `rw` Service leads, as its proxy has it.
    pub proxy: Option<String>,
    /// When it hears of the newest change.
    pub proxy_hears: Time,
    /// The clients.
    pub clients: Vec<Client>,
    /// The faults.
    pub faults: Faults,
    /// What must hold, and what it is judged by.
    pub ghost: Ghost,
    /// What happened, for people.
    pub trace: Trace,
}

impl World {
    /// Notes what happened, where somebody wants to know.
    pub fn note(&mut self, line: impl FnOnce(&Self) -> String) {
        if self.trace.keeps() {
            let line = line(self);
            self.trace.keep(self.now, &line);
        }
    }

    /// `what` happens in `delay`.
    pub fn after(&mut self, delay: Time, what: What) {
        self.queue.push(self.now + delay, what);
    }

    /// `what` happens after `low` to `high`.
    pub fn within(&mut self, low: Time, high: Time, what: What) {
        let delay = self.rng.between(low, high);
        self.after(delay, what);
    }

    /// The container, if it still is this one.
    pub fn container(&self, who: Who) -> Option<&Container> {
        self.instances[who.instance].container.as_ref().filter(|container| container.life == who.life)
    }

    /// The same, to change it.
    pub fn container_mut(&mut self, who: Who) -> Option<&mut Container> {
        self.instances[who.instance].container.as_mut().filter(|container| container.life == who.life)
    }

    /// The present life of an instance.
    pub fn present(&self, instance: usize) -> Option<Who> {
        self.instances[instance].container.as_ref().map(|container| Who { instance, life: container.life })
    }

    /// Every container that runs.
    pub fn running(&self) -> impl Iterator<Item = (usize, &Container)> {
        self.instances.iter().enumerate().filter_map(|(at, instance)| Some((at, instance.container.as_ref()?)))
    }

    /// The instance with this identity.
    pub fn place(&self, id: MemberId) -> Option<usize> {
        self.places.get(&id).copied()
    }

    /// What the clock of an instance's machine shows.
    pub fn clock(&self, instance: usize) -> Moment {
        self.machines[self.instances[instance].machine].clock(self.now)
    }

    /// Whether the agent's process is frozen, and until when.
    pub fn agent_frozen(&self, who: Who) -> Option<Time> {
        self.container(who).and_then(|container| container.frozen).filter(|until| *until > self.now)
    }

    /// Whether PostgreSQL and the guard are frozen, and until when.
    pub fn postgres_frozen(&self, who: Who) -> Option<Time> {
        self.container(who).and_then(|container| container.frozen_whole).filter(|until| *until > self.now)
    }

    /// Who leads in fact: the container whose PostgreSQL accepts writes, the newest term's where there were two.
    pub fn primary(&self) -> Option<usize> {
        self.running().filter(|(_, c)| c.server.writable()).max_by_key(|(_, c)| c.leads).map(|(at, _)| at)
    }
}
