//! Does what the election wants done: carries out effects, answers for the API and for PostgreSQL.

use std::sync::Arc;

use bellwether_core::election::{
    Ages, Deadline, Effect, Event, Incarnation, LeaseWrite, Message, Outcome, Plant, RequestId, Settings, State, step,
};
use bellwether_core::fact::Fact;

use crate::world::{API, Body, Call, Drain, NODES, NOW, Packet, Primary, World};

/// A broken promise: which, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

/// Ticks after which a call to the API is given up.
pub const TIMEOUT: u8 = 2;

/// What the exploration is given.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The agents' settings, in ticks.
    pub settings: Settings,
    /// How many ticks it goes; none: as many as there are states.
    pub horizon: Option<u8>,
    /// Which faults there are.
    pub faults: Faults,
    /// Commits of clients that some volume may lack at the same time.
    pub commits: u8,
    /// Nothing is explored beyond this term.
    pub terms: u64,
    /// In which order instances wake in a tick.
    pub order: [usize; NODES],
    /// Whether states that behave alike are merged.
    pub ages: Ages,
}

/// Which faults a run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// Crashes and freezes.
    pub crashes: bool,
    /// What the network and the API do to single packets.
    pub packets: bool,
    /// Partitions: instances and API divided in two, and an instance without its peers, or without the API.
    pub cuts: bool,
    /// Partitions besides of one way alone, and such as heal one way before the other.
    pub one_way: bool,
    /// The Lease deleted, or put back.
    pub lease: bool,
    /// A clock that runs fast or slow.
    pub drift: bool,
    /// A pod lost with its volume and made again.
    pub replace: bool,
}

impl Rules {
    /// Whether this bug is planted.
    pub fn planted(&self, plant: Plant) -> bool {
        self.settings.planted == Some(plant)
    }
    /// Whether the guard works.
    pub fn guarded(&self) -> bool {
        !self.planted(Plant::LapseIgnored)
    }
}

/// An event happens to an instance; its effects are carried out in order.
pub fn happen(world: &mut World, at: usize, event: Event, rules: &Rules) -> Result<(), Violation> {
    if !world.nodes[at].awake() {
        return Ok(());
    }
    let node = Arc::make_mut(&mut world.nodes[at]);
    let Some(agent) = &mut node.agent else { return Ok(()) };
    let effects = step(agent, event, NOW);
    for effect in effects {
        carry_out(world, at, effect, rules)?;
    }
    Ok(())
}

fn carry_out(world: &mut World, at: usize, effect: Effect, rules: &Rules) -> Result<(), Violation> {
    let node = Arc::make_mut(&mut world.nodes[at]);
    let from = node.id;
    let life = node.lives;
    match effect {
        Effect::Remember(memory) => node.memory = memory,
        Effect::Send { to, message } => {
            if let Some(place) = world.place(to) {
                world.send(at, place, Body::Peer { from, to, message });
            }
        }
        Effect::CutAndAnswer { to, mut answer } => {
            node.receiver = None;
            answer.position = node.position();
            if let Some(place) = world.place(to) {
                world.send(at, place, Body::Peer { from, to, message: Message::Answer(answer) });
            }
        }
        Effect::CutReceiver => {
            node.receiver = None;
            let position = node.position();
            happen(world, at, Event::ReceiverCut { position }, rules)?;
        }
        Effect::ReadLease { request } => {
            node.calls.push(Call { request, write: None, age: 0 });
            world.send(at, API, Body::Read { life, request });
        }
        Effect::WriteLease { request, write } => {
            node.calls.push(Call { request, write: Some(write.clone()), age: 0 });
            world.send(at, API, Body::Write { life, request, write });
        }
        Effect::Guard { until } => {
            if let Some(primary) = &mut node.primary {
                primary.guard = until;
            }
        }
        Effect::StopPostgres => {
            node.primary = None;
            let position = node.position();
            if node.drain == Drain::Wanted {
                node.drain = Drain::Done;
                happen(world, at, Event::PostgresDrained { position }, rules)?;
            } else {
                happen(world, at, Event::PostgresStopped { position }, rules)?;
            }
        }
        Effect::Lead { term, voters } => {
            let until = node.agent.as_ref().and_then(|agent| agent.tenure(NOW)).map_or(Deadline::At(NOW), |t| t.until);
            node.receiver = None;
            node.lagging = false;
            node.primary = Some(Primary { voters, guard: until, awaited: true });
            let term = term.0 as u8;
            if node.log.last() != Some(&term) {
                node.log.push(term);
            }
            complete_log(world, at)?;
        }
        Effect::SetVoters { voters } => {
            if let Some(primary) = &mut node.primary {
                primary.voters = voters;
                primary.awaited = true;
            }
            acknowledge(world, at);
        }
        Effect::Follow { leader, .. } => {
            node.primary = None;
            node.receiver = Some(leader);
            happen(world, at, Event::Streaming { from: Some(leader) }, rules)?;
        }
        Effect::PublishEndpoint { .. } | Effect::Became { .. } => {}
    }
    Ok(())
}

/// INV-2: whoever begins to lead has everything that was acknowledged.
fn complete_log(world: &World, at: usize) -> Result<(), Violation> {
    let log = &world.nodes[at].log;
    let lost = world.shared.acknowledged.iter().find(|(place, term)| log.get(usize::from(*place)) != Some(term));
    match lost {
        Some((place, term)) => Err(Violation(format!(
            "INV-2: {} leads without record {place} of term {term}, which was acknowledged",
            crate::world::name(at)
        ))),
        None => Ok(()),
    }
}

/// A commit of the primary is acknowledged once enough of its voters have it.
pub fn acknowledge(world: &mut World, at: usize) {
    let node = &world.nodes[at];
    let Some(primary) = &node.primary else { return };
    let has = |place: usize| {
        let Some(voters) = &primary.voters else { return true };
        let holders = voters.members().iter().filter(|id| {
            world.place(*id).is_some_and(|other| {
                let standby = &world.nodes[other];
                standby.receiver == Some(node.id) && standby.log.get(..=place) == node.log.get(..=place)
            })
        });
        holders.count() >= voters.needed()
    };
    // A commit is a record like the one before it; the first record of a term is its promotion. What an earlier leader left
    // without acknowledgement has nobody to be acknowledged to.
    let term = node.log.last().copied();
    let commit = |place: &usize| node.log.get(*place).copied() == term && node.log[place - 1] == node.log[*place];
    let news: Vec<_> = (1..node.log.len())
        .filter(commit)
        .map(|place| (place as u8, node.log[place]))
        .filter(|record| !world.shared.acknowledged.contains(record) && has(usize::from(record.0)))
        .collect();
    if !news.is_empty() {
        Arc::make_mut(&mut world.shared).acknowledged.extend(news);
    }
}

/// A packet arrives.
pub fn arrive(world: &mut World, packet: Packet, rules: &Rules) -> Result<(), Violation> {
    let (from, to) = (usize::from(packet.from), usize::from(packet.to));
    world.env.last = packet.to;
    if to != API && world.nodes[to].frozen {
        hold(world, to, packet);
        return Ok(());
    }
    match packet.body {
        Body::Peer { from, to: id, message } if world.nodes[to].id == id => {
            happen(world, to, Event::Received { from, message }, rules)
        }
        Body::Peer { .. } => Ok(()),
        Body::Read { life, request } => {
            let view = world.shared.lease.clone();
            world.send(API, from, Body::Sight { life, request: Some(request), view });
            Ok(())
        }
        Body::Write { life, request, write } => {
            answer(world, from, life, request, write, rules);
            Ok(())
        }
        Body::Written { life, .. } if life != world.nodes[to].lives && rules.planted(Plant::OksOfEarlierLives) => {
            let pending = world.nodes[to].calls.iter().find(|call| call.write.is_some()).map(|call| call.request);
            match (pending, packet.body) {
                (Some(request), Body::Written { outcome, .. }) if end_call(world, to, request) => {
                    happen(world, to, Event::Written { request, outcome }, rules)
                }
                _ => Ok(()),
            }
        }
        Body::Sight { life, .. } | Body::Written { life, .. } if life != world.nodes[to].lives => Ok(()),
        Body::Sight { request, view, .. } => {
            if let Some(request) = request
                && !end_call(world, to, request)
            {
                return Ok(());
            }
            happen(world, to, Event::Lease { read: request, sight: Fact::looked_up(view) }, rules)
        }
        Body::Written { request, outcome, .. } => {
            if !end_call(world, to, request) {
                return Ok(());
            }
            happen(world, to, Event::Written { request, outcome }, rules)
        }
    }
}

/// What arrives at a frozen instance waits for it. Of two requests of one kind from one sender only the newer is kept: it does
/// what the older would have done, later. So it is with two sights of the Lease that differ in nothing but their version: a leader
/// renews for as long as the other is frozen, and each renewal would be one more state.
fn hold(world: &mut World, at: usize, packet: Packet) {
    let node = Arc::make_mut(&mut world.nodes[at]);
    node.inbox.retain(|held| !outdone(&held.body, &packet.body));
    node.inbox.push(packet);
}

/// Whether the newer says all that the older said.
fn outdone(older: &Body, newer: &Body) -> bool {
    match (older, newer) {
        (Body::Peer { from, message, .. }, Body::Peer { from: who, message: newer, .. }) => {
            from == who && std::mem::discriminant(message) == std::mem::discriminant(newer)
        }
        (
            Body::Sight { life, request: None, view: Some(view) },
            Body::Sight { life: same, request: None, view: Some(newer) },
        ) => life == same && view.uid == newer.uid && view.content == newer.content,
        _ => false,
    }
}

/// Whether the call still waited for its answer.
fn end_call(world: &mut World, at: usize, request: RequestId) -> bool {
    let node = Arc::make_mut(&mut world.nodes[at]);
    let before = node.calls.len();
    node.calls.retain(|call| call.request != request);
    node.calls.len() < before
}

/// The API answers a write. Its writer hears of it before any watcher does: so it leads while others still believe in the old.
pub fn answer(world: &mut World, to: usize, life: u8, request: RequestId, write: LeaseWrite, rules: &Rules) {
    let before = world.net.queue.len();
    let outcome = commit(world, write, rules);
    world.send(API, to, Body::Written { life, request, outcome });
    let queue = &mut Arc::make_mut(&mut world.net).queue;
    if let Some(answer) = queue.pop_back() {
        queue.insert(before, answer);
    }
}

/// The API commits a write, or refuses it: compare-and-swap on uid and version (E1).
fn commit(world: &mut World, write: LeaseWrite, rules: &Rules) -> Outcome {
    let Some(lease) = &world.shared.lease else { return Outcome::Conflict };
    let same = lease.uid == write.uid && lease.version == write.base;
    if !same && !rules.planted(Plant::WritesWithoutVersion) {
        return Outcome::Conflict;
    }
    if world.env.wished && write.forced.is_some() {
        // A person said of this very version that what others may have acknowledged is given up.
        Arc::make_mut(&mut world.shared).acknowledged.clear();
    }
    world.set_lease(Some(write.content));
    world.shared.lease.clone().map_or(Outcome::Conflict, Outcome::Committed)
}

/// Calls that were given up, and the agent's own tick.
pub fn wake(world: &mut World, at: usize, rules: &Rules) -> Result<(), Violation> {
    if !world.nodes[at].awake() {
        return Ok(());
    }
    let node = Arc::make_mut(&mut world.nodes[at]);
    if rules.guarded() && node.primary.as_ref().is_some_and(|primary| primary.guard.passed(NOW)) {
        node.primary = None;
    }
    let drained = std::mem::replace(&mut node.drain, Drain::No) == Drain::Done;
    let (over, waiting) = std::mem::take(&mut node.calls).into_iter().partition(|call| call.age >= TIMEOUT);
    node.calls = waiting;
    let over: Vec<Call> = over;
    if drained {
        let position = world.nodes[at].position();
        happen(world, at, Event::PostgresStopped { position }, rules)?;
    }
    for call in over {
        let request = call.request;
        let event = match call.write {
            None => Event::Lease { read: Some(request), sight: Fact::Unknown },
            Some(_) => Event::Written { request, outcome: Outcome::Ambiguous },
        };
        happen(world, at, event, rules)?;
    }
    happen(world, at, Event::Tick, rules)
}

/// An agent starts.
pub fn start(world: &mut World, at: usize, rules: &Rules) -> Result<(), Violation> {
    let node = Arc::make_mut(&mut world.nodes[at]);
    node.lives += 1;
    let incarnation = Incarnation(u64::from(node.lives));
    node.agent = Some(State::new(rules.settings, node.id, incarnation, node.memory.clone()));
    happen(world, at, Event::Tick, rules)
}

/// Once a tick PostgreSQL does what it can do: standbys that don't lag receive, and voters come into force.
pub fn replicate(world: &mut World, rules: &Rules) -> Result<(), Violation> {
    for node in 0..NODES {
        for other in 0..NODES {
            let behind = world.nodes[other].log != world.nodes[node].log && !world.nodes[other].lagging;
            if behind && connected(world, node, other, rules) {
                stream(world, node, other);
            }
        }
        if in_force(world, node, rules) {
            voters_in_force(world, node, rules)?;
        }
    }
    Ok(())
}

/// Whether a standby receives from this primary.
pub fn connected(world: &World, from: usize, to: usize, rules: &Rules) -> bool {
    let (primary, standby) = (&world.nodes[from], &world.nodes[to]);
    primary.writable(rules.guarded())
        && standby.receiver == Some(primary.id)
        && standby.awake()
        && world.open(from, to)
        && world.open(to, from)
}

/// A standby receives everything that its primary has.
pub fn stream(world: &mut World, from: usize, to: usize) {
    let log = world.nodes[from].log.clone();
    let standby = Arc::make_mut(&mut world.nodes[to]);
    standby.log = log;
    standby.lagging = false;
    acknowledge(world, from);
}

/// Whether the voters that were set are in force, and hold what was acknowledged.
pub fn in_force(world: &World, at: usize, rules: &Rules) -> bool {
    let node = &world.nodes[at];
    let Some(primary) = &node.primary else { return false };
    let same = |other: usize| world.nodes[other].log == node.log;
    let held = primary.voters.as_ref().is_none_or(|voters| {
        let holders = voters.members().iter().filter(|id| world.place(*id).is_some_and(same));
        holders.count() >= voters.needed()
    });
    primary.awaited && node.writable(rules.guarded()) && (held || rules.planted(Plant::FlushNotAwaited))
}

/// The agent hears that the voters are in force.
pub fn voters_in_force(world: &mut World, at: usize, rules: &Rules) -> Result<(), Violation> {
    let it = Arc::make_mut(&mut world.nodes[at]);
    let Some(primary) = &mut it.primary else { return Ok(()) };
    primary.awaited = false;
    let voters = primary.voters.clone();
    happen(world, at, Event::VotersInForce { voters }, rules)
}
