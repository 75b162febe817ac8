//! One seed, one run: sets the world up, lets it go, stops the faults, and asks for readiness and silence at the end.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::json;

use crate::api::Api;
use crate::client::Client;
use crate::fault::{Coverage, Faults};
use crate::ghost::{Ghost, Violation};
use crate::network::Network;
use crate::operator::Operator;
use crate::options::{Options, Scenario};
use crate::postgres::Records;
use crate::queue::{Queue, Time};
use crate::rng::Rng;
use crate::trace::Trace;
use crate::world::{Machine, What, World};

/// How long before the end the faults stop: the longest a silent member stays one (60 s), the longest fault that is on its way then
/// (45 s), a clone and what follows, and the quiet time.
const CALM: Time = 200_000;
/// Ready within this after the faults stopped. A pod that was frozen thaws up to 45 s later, stands back 15 s, clones 9 s.
const READY_WITHIN: Time = 110_000;
/// The time at the end in which nothing may be written.
const QUIET: Time = 30_000;
/// The bound of drift: two clocks disagree by at most δ less a timer's lateness over L.
const DRIFT: u64 = 7_500;

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// The first broken promise.
    pub violation: Option<Violation>,
    /// What fired.
    pub coverage: Coverage,
    /// What fired inside the API.
    pub inside: std::collections::BTreeMap<&'static str, u64>,
    /// Commits acknowledged.
    pub commits: u64,
    /// Commits lost where that is allowed.
    pub lost: u64,
    /// How often somebody began to lead.
    pub reigns: u64,
    /// Events.
    pub events: u64,
    /// Writes of ours.
    pub writes: u64,
    /// Passes of the operator.
    pub passes: u64,
    /// From the end of the faults to readiness.
    pub ready_after: Option<Time>,
    /// What happened, if lines were asked for.
    pub lines: Vec<String>,
    /// Equal for equal runs.
    pub digest: u64,
}

/// Runs a seed. A panic is a broken promise too.
pub fn run(options: &Options) -> Outcome {
    let options = *options;
    catch_unwind(AssertUnwindSafe(|| World::new(options).run())).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let how = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default();
        Outcome { violation: Some(Violation { property: "PANIC", how }), ..Outcome::none(options.seed) }
    })
}

impl Outcome {
    fn none(seed: u64) -> Self {
        Self {
            seed,
            violation: None,
            coverage: Coverage::new(),
            inside: Default::default(),
            commits: 0,
            lost: 0,
            reigns: 0,
            events: 0,
            writes: 0,
            passes: 0,
            ready_after: None,
            lines: Vec::new(),
            digest: 0,
        }
    }
}

impl World {
    fn new(options: Options) -> Self {
        let mut rng = Rng::new(options.seed);
        let scenario = Scenario::draw(&mut rng);
        let at_bound = rng.chance(500);
        let machines: Vec<Machine> = (0..scenario.machines)
            .map(|_| {
                let drift = if at_bound { DRIFT } else { rng.below(500) };
                let drift = i64::try_from(drift).unwrap_or(0);
                Machine {
                    up: true,
                    offset: rng.between(1_000_000, 100_000_000),
                    drift: if rng.chance(500) { drift } else { -drift },
                }
            })
            .collect();
        let mut world = Self {
            settings: scenario.settings(options.plant),
            now: 0,
            queue: Queue::default(),
            outages: vec![0; machines.len()],
            net: Network::new(machines.len()),
            machines,
            api: Api::new(&mut rng),
            instances: Vec::new(),
            places: Default::default(),
            volumes: Vec::new(),
            records: Records::default(),
            connections: Vec::new(),
            operator: Operator::start(rng.draw()),
            operator_lag: scenario.operator_lag,
            proxy: None,
            proxy_hears: 0,
            clients: vec![Client::default(); scenario.clients],
            faults: Faults::new(rng.fork()),
            ghost: Ghost::default(),
            trace: Trace::new(options.trace),
            rng,
            options,
        };
        world.note(|_| format!("{scenario:?}"));
        let on_delete = if scenario.delete_volumes { "Delete" } else { "Retain" };
        world.create_cluster(&json!({
            "replicas": scenario.replicas,
            "durability": {"mode": scenario.mode()},
            "storage": {"onDelete": on_delete},
        }));
        for client in 0..world.clients.len() {
            world.within(0, 1_000, What::Client(client, 0));
        }
        let first = if world.rng.chance(300) { 500 } else { 25_000 };
        world.within(first / 2, first * 2, What::Fault);
        let end = options.minutes * 60_000;
        world.queue.push(end.saturating_sub(CALM), What::Calm);
        world
    }

    fn run(mut self) -> Outcome {
        let end = self.options.minutes * 60_000;
        while self.ghost.violation.is_none()
            && let Some((at, what)) = self.queue.pop()
        {
            if at > end {
                break;
            }
            self.now = at;
            self.dispatch(what);
        }
        if self.ghost.violation.is_none() {
            self.judge_end();
        }
        if let Some(violation) = self.ghost.violation.clone() {
            self.note(|_| format!("VIOLATED {}: {}", violation.property, violation.how));
        }
        self.trace.mix(self.queue.count());
        Outcome {
            seed: self.options.seed,
            violation: self.ghost.violation,
            coverage: self.faults.coverage,
            inside: self.faults.inside,
            commits: self.ghost.commits,
            lost: self.ghost.lost,
            reigns: self.ghost.reigns,
            events: self.queue.count(),
            writes: self.api.writes,
            passes: self.operator.passes,
            ready_after: self.ghost.ready.zip(self.ghost.calm).map(|(ready, calm)| ready - calm),
            digest: self.trace.digest(),
            lines: self.trace.into_lines(),
        }
    }

    fn dispatch(&mut self, what: What) {
        match what {
            What::Tick(who) => self.tick(who),
            What::Message(packet) => self.message(*packet),
            What::Watch(who, object) => self.watch(who, *object),
            What::Call(call) => self.call_arrives(&call),
            What::Reply(who, reply) => self.reply(who, *reply),
            What::Timeout(who, number) => self.timeout(who, number),
            What::Postgres(who, orders, work) => self.worked(who, orders, work),
            What::Drained(who, orders) => self.drained(who, orders),
            What::LoseVolume(instance) => self.lose_volume(instance),
            What::Stopped(who) => self.stopped(who),
            What::Polled(who, to, answer) => self.polled(who, to, *answer),
            What::Guard(who, order) => self.guard_fires(who, order),
            What::FoundDead(who, boot) => self.found_dead(who, boot),
            What::Wal(connection) => self.wal(connection),
            What::WalAck(connection, flushed) => self.wal_ack(connection, flushed),
            What::Silence(connection) => self.silence(connection),
            What::ReceiverLost(connection) => self.receiver_lost(connection),
            What::SenderLost(connection) => self.sender_lost(connection),
            What::Reload(who, process, number) => self.reload(who, process, number),
            What::Report(who) => self.write_report_now(who),
            What::Endpoint(who) => self.publish(who),
            What::Probe(instance) => self.probe(instance),
            What::Bind(name) => self.bind(&name),
            What::StartContainer(instance) => self.start_container(instance),
            What::Stop(who) => self.stop_container(who),
            What::Operator(life, turn) => self.operate(life, turn),
            What::Client(client, statement) => self.client(client, statement),
            What::Statement(client, statement) => self.statement(client, statement),
            What::Answered(client, statement, committed) => self.client_answered(client, statement, committed),
            What::Proxy(address) => self.proxy = address,
            What::Fault => self.next_fault(),
            What::Heal(number) => self.heal(number),
            What::Calm => self.calm(),
            What::NodeLost(machine, outage) => self.node_lost(machine, outage),
            What::PowerOn(machine) => self.power_on(machine),
            What::Inspect => self.inspect(),
        }
    }

    /// The faults stop.
    fn calm(&mut self) {
        self.note(|_| "the faults stop".to_owned());
        self.heal_all();
        self.ghost.calm = Some(self.now);
        self.after(1_000, What::Inspect);
        self.after(CALM - QUIET, What::Inspect);
    }

    /// Whether the cluster is ready, and when the quiet time begins.
    fn inspect(&mut self) {
        let end = self.options.minutes * 60_000;
        if self.ghost.ready.is_none() && self.is_ready() {
            self.ghost.ready = Some(self.now);
        }
        if self.now >= end - QUIET {
            self.ghost.writes.get_or_insert(self.api.writes);
            self.ghost.commits_before.get_or_insert(self.ghost.commits);
        }
        let late = self.ghost.calm.is_some_and(|calm| self.now > calm + READY_WITHIN);
        if late && !self.is_ready() {
            let why = self.why_not_ready();
            self.ghost.violated("READY", || format!("not within {} s of the last fault: {why}", READY_WITHIN / 1_000));
        }
        self.after(1_000, What::Inspect);
    }

    fn judge_end(&mut self) {
        if self.ghost.commits_before == Some(self.ghost.commits) {
            let why = self.why_not_ready();
            self.ghost.violated("READY", || format!("no commit is acknowledged in the quiet time: {why}"));
        }
        let before = self.ghost.writes.unwrap_or(0);
        if self.api.writes > before {
            let (count, last) = (self.api.writes - before, self.api.last_write.clone());
            let why = self.why_not_ready();
            self.ghost.violated("ZERO-WRITES", || format!("{count} writes in the quiet time, the last: {last}; {why}"));
        }
    }
}
