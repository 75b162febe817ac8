//! Does what the election wants done: carries out effects, answers for the API and for PostgreSQL.

use std::sync::Arc;

use bellwether_core::election::{
    Deadline, Effect, Event, Incarnation, LeaseWrite, Message, Outcome, Plant, RequestId, Settings, State, step,
};
use bellwether_core::fact::Fact;

use crate::world::{API, Call, NODES, Packet, Primary, World};

/// A broken promise: which, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

/// What the exploration is given.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The agents' settings, in ticks.
    pub settings: Settings,
    /// In which order packets of different senders arrive at one end.
    pub arrival: Arrival,
}

/// In which order packets of different senders arrive at one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// In every order.
    Free,
    /// In the order of the senders; to overtake is a fault (the packet overtaken is held back).
    Fixed,
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
    let now = world.clock(at);
    let node = Arc::make_mut(&mut world.nodes[at]);
    let Some(agent) = &mut node.agent else { return Ok(()) };
    let effects = step(agent, event, now);
    for effect in effects {
        carry_out(world, at, effect, rules)?;
    }
    Ok(())
}

fn carry_out(world: &mut World, at: usize, effect: Effect, rules: &Rules) -> Result<(), Violation> {
    let clock = world.clock(at);
    let node = Arc::make_mut(&mut world.nodes[at]);
    let from = node.id;
    let life = node.lives;
    match effect {
        Effect::Remember(memory) => node.memory = memory,
        Effect::Send { to, message } => {
            if let Some(place) = world.place(to) {
                world.send(at, place, Packet::Peer { from, to, message });
            }
        }
        Effect::CutAndAnswer { to, mut answer } => {
            node.receiver = None;
            answer.position = node.position();
            if let Some(place) = world.place(to) {
                world.send(at, place, Packet::Peer { from, to, message: Message::Answer(answer) });
            }
        }
        Effect::CutReceiver => {
            node.receiver = None;
            let position = node.position();
            happen(world, at, Event::ReceiverCut { position }, rules)?;
        }
        Effect::ReadLease { request } => {
            node.calls.push(Call { request, write: None });
            world.send(at, API, Packet::Read { life, request });
        }
        Effect::WriteLease { request, write } => {
            node.calls.push(Call { request, write: Some(write.clone()) });
            world.send(at, API, Packet::Write { life, request, write });
        }
        Effect::Guard { until } => {
            if let Some(primary) = &mut node.primary {
                primary.guard = until;
            }
        }
        Effect::StopPostgres => {
            node.primary = None;
            let position = node.position();
            happen(world, at, Event::PostgresStopped { position }, rules)?;
        }
        Effect::Lead { term, voters } => {
            let until =
                node.agent.as_ref().and_then(|agent| agent.tenure(clock)).map_or(Deadline::At(clock), |t| t.until);
            node.receiver = None;
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
        Effect::Follow { leader } => {
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
            world.place(*id).is_some_and(|other| world.nodes[other].log.get(..=place) == node.log.get(..=place))
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
pub fn arrive(world: &mut World, to: usize, from: usize, packet: Packet, rules: &Rules) -> Result<(), Violation> {
    match packet {
        Packet::Peer { from, to: id, message } if world.nodes[to].id == id => {
            happen(world, to, Event::Received { from, message }, rules)
        }
        Packet::Peer { .. } => Ok(()),
        Packet::Read { life, request } => {
            let view = world.shared.lease.clone();
            world.send(API, from, Packet::Sight { life, request: Some(request), view });
            Ok(())
        }
        Packet::Write { life, request, write } => {
            let outcome = commit(world, write, rules);
            world.send(API, from, Packet::Written { life, request, outcome });
            Ok(())
        }
        Packet::Sight { life, .. } | Packet::Written { life, .. } if life != world.nodes[to].lives => Ok(()),
        Packet::Sight { request, view, .. } => {
            if let Some(request) = request
                && !end_call(world, to, request)
            {
                return Ok(());
            }
            happen(world, to, Event::Lease { read: request, sight: World::sight(view) }, rules)
        }
        Packet::Written { request, outcome, .. } => {
            if !end_call(world, to, request) {
                return Ok(());
            }
            happen(world, to, Event::Written { request, outcome }, rules)
        }
    }
}

/// Whether the call still waited for its answer.
fn end_call(world: &mut World, at: usize, request: RequestId) -> bool {
    let node = Arc::make_mut(&mut world.nodes[at]);
    let before = node.calls.len();
    node.calls.retain(|call| call.request != request);
    node.calls.len() < before
}

/// The API commits a write, or refuses it: compare-and-swap on uid and version (E1).
fn commit(world: &mut World, write: LeaseWrite, rules: &Rules) -> Outcome {
    let Some(lease) = &world.shared.lease else { return Outcome::Conflict };
    let same = lease.uid == write.uid && lease.version == write.base;
    if !same && !rules.planted(Plant::WritesWithoutVersion) {
        return Outcome::Conflict;
    }
    world.set_lease(Some(write.content));
    world.shared.lease.clone().map_or(Outcome::Conflict, Outcome::Committed)
}

/// One tick passes: clocks, timeouts of calls, and each agent's own tick.
pub fn tick(world: &mut World, rules: &Rules) -> Result<(), Violation> {
    world.env.time += 1;
    for at in 0..NODES {
        if !world.nodes[at].awake() {
            continue;
        }
        let clock = world.clock(at);
        let node = Arc::make_mut(&mut world.nodes[at]);
        if rules.guarded() && node.primary.as_ref().is_some_and(|primary| primary.guard.passed(clock)) {
            node.primary = None;
        }
        for call in std::mem::take(&mut node.calls) {
            let request = call.request;
            let event = match call.write {
                None => Event::Lease { read: Some(request), sight: Fact::Unknown },
                Some(write) => Event::Written { request, outcome: timed_out(world, write, rules) },
            };
            happen(world, at, event, rules)?;
        }
        happen(world, at, Event::Tick, rules)?;
    }
    Ok(())
}

/// No answer came. A client that retried would ask again, and take the second answer for the first one's.
fn timed_out(world: &mut World, write: LeaseWrite, rules: &Rules) -> Outcome {
    if rules.planted(Plant::WritesRetried) { commit(world, write, rules) } else { Outcome::Ambiguous }
}

/// An agent starts.
pub fn start(world: &mut World, at: usize, rules: &Rules) -> Result<(), Violation> {
    let node = Arc::make_mut(&mut world.nodes[at]);
    node.lives += 1;
    let incarnation = Incarnation(u64::from(node.lives));
    node.agent = Some(State::new(rules.settings, node.id, incarnation, node.memory.clone()));
    happen(world, at, Event::Tick, rules)
}
