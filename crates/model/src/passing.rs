//! A tick passes: what everybody remembers grows older, and what is only ever compared gets new names.
//!
//! States that differ in nothing but how late it is, how many requests were numbered, or how often the Lease was written, become one
//! state here. Never: two that would behave differently; `tests/renaming.rs` compares what follows from both.

use std::sync::Arc;

use bellwether_core::election::{
    Ages, Edition, LeaseVersion, LeaseView, LeaseWrite, Message, Names, Outcome, Phase, Plant, RequestId, Span,
};

use crate::act::{Rules, TIMEOUT, Violation, replicate, wake};
use crate::world::{API, Body, NOBODY, NODES, NOW, Node, Packet, World};

/// How fast the clocks run for one tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pace {
    /// Together.
    Even,
    /// This one stands still.
    Slow(usize),
    /// This one gains a tick.
    Fast(usize),
}

/// One tick passes.
pub fn tick(world: &mut World, pace: Pace, rules: &Rules) -> Result<(), Violation> {
    for at in 0..NODES {
        let by = match pace {
            Pace::Slow(node) if node == at => 0,
            Pace::Fast(node) if node == at => 2,
            _ => 1,
        };
        age(Arc::make_mut(&mut world.nodes[at]), Span(by), rules.ages);
    }
    forget(world, rules);
    if !rules.faults.lease && !rules.faults.packets && !world.shared.history.is_empty() {
        // Nobody will ask what the Lease once was.
        Arc::make_mut(&mut world.shared).history.clear();
    }
    if rules.ages == Ages::Merged {
        shorten(world);
        rename(world, rules);
    }
    if !outstanding(world) && !positions_told(world) {
        // What every volume holds is as if it had always been there: a client may commit again. Not while somebody remembers where a
        // log ended: it would grow for as long as they do.
        world.env.commits = rules.commits;
    }
    world.env.last = NOBODY;
    if let Some(horizon) = rules.horizon {
        world.env.time = (world.env.time + 1).min(horizon);
    }
    for at in rules.order {
        wake(world, at, rules)?;
    }
    replicate(world, rules)
}

fn age(node: &mut Node, by: Span, ages: Ages) {
    if let Some(agent) = &mut node.agent {
        agent.age(by, NOW, ages);
    }
    if let Some(primary) = &mut node.primary {
        primary.guard = primary.guard.aged(by, NOW, ages);
    }
    for call in &mut node.calls {
        call.age = (call.age + 1).min(TIMEOUT);
    }
}

/// The state that stands for this one and for all that behave alike.
pub fn merged(world: &World, rules: &Rules) -> World {
    let mut world = world.clone();
    for node in &mut world.nodes {
        let node = Arc::make_mut(node);
        if let Some(agent) = &mut node.agent {
            agent.age(Span(0), NOW, Ages::Merged);
        }
        if let Some(primary) = &mut node.primary {
            primary.guard = primary.guard.aged(Span(0), NOW, Ages::Merged);
        }
    }
    shorten(&mut world);
    rename(&mut world, rules);
    world
}

/// Whether somebody remembers a position of some log, or one is on its way.
pub fn positions_told(world: &World) -> bool {
    let agents = world.nodes.iter().filter_map(|node| node.agent.as_ref());
    let inboxes = world.nodes.iter().flat_map(|node| &node.inbox);
    let told =
        |packet: &Packet| matches!(&packet.body, Body::Peer { message: Message::Answer(_) | Message::Consent(_), .. });
    agents.map(|agent| agent.phase()).any(|phase| !matches!(phase, Phase::Member | Phase::Leader))
        || world.net.queue.iter().chain(&world.net.late).chain(inboxes).any(told)
}

/// How many records every volume that has a log begins with.
fn shared_records(world: &World) -> usize {
    let mut logs = world.nodes.iter().map(|node| &node.log).filter(|log| !log.is_empty());
    let Some(first) = logs.next() else { return 0 };
    logs.fold(first.len(), |many, log| {
        let same = first.iter().zip(log).take_while(|(one, other)| one == other).count();
        many.min(same)
    })
}

/// Whether some volume lacks a record that another has.
fn outstanding(world: &World) -> bool {
    let shared = shared_records(world);
    world.nodes.iter().any(|node| node.log.len() > shared)
}

/// Drops what every volume holds from all of them, but for one record. Nobody can lead without it any more, and positions are only
/// ever compared; so this waits until nobody remembers one, and none is on its way.
fn shorten(world: &mut World) {
    let dropped = shared_records(world).saturating_sub(1);
    if dropped == 0 || positions_told(world) {
        return;
    }
    for node in &mut world.nodes {
        if !node.log.is_empty() {
            Arc::make_mut(node).log.drain(..dropped);
        }
    }
    let acknowledged = &mut Arc::make_mut(&mut world.shared).acknowledged;
    acknowledged.retain(|(place, _)| usize::from(*place) > dropped);
    acknowledged.iter_mut().for_each(|(place, _)| *place -= dropped as u8);
}

/// Gives requests, versions and editions the smallest names that keep their order. A Lease that is never put back has no use for editions.
fn rename(world: &mut World, rules: &Rules) {
    let editions = if rules.faults.lease { editions(world) } else { vec![] };
    let edition = |old: Edition| Edition(editions.partition_point(|known| *known < old) as u64);
    let versions = versions(world);
    let version = |old: LeaseVersion| LeaseVersion(versions.partition_point(|known| *known < old) as u64 + 1);
    let numbers: [Vec<RequestId>; NODES] = std::array::from_fn(|at| requests(&world.nodes[at]));
    let number = |at: usize, old: RequestId| match numbers[at].binary_search(&old) {
        Ok(rank) => RequestId(rank as u64 + 1),
        Err(_) => RequestId(0),
    };
    let lives: [u64; NODES] = std::array::from_fn(|at| u64::from(world.nodes[at].lives));
    let rename_packet = |packet: &mut Packet| {
        let owner = |body: &Body| match body {
            Body::Peer { message: Message::Grant(grant), .. } => (usize::from(packet.to), grant.incarnation.0),
            Body::Peer { message: Message::Answer(answer), .. } => (usize::from(packet.to), answer.incarnation.0),
            Body::Peer { message: Message::Ask(ask), .. } => (usize::from(packet.from), ask.incarnation.0),
            Body::Peer { message: Message::Poll(poll), .. } => (usize::from(packet.from), poll.incarnation.0),
            Body::Peer { .. } => (usize::from(packet.to), 0),
            Body::Read { life, .. } | Body::Write { life, .. } => (usize::from(packet.from), u64::from(*life)),
            Body::Sight { life, .. } | Body::Written { life, .. } => (usize::from(packet.to), u64::from(*life)),
        };
        let (owner, life) = owner(&packet.body);
        let current = owner < NODES && lives[owner] == life;
        let request = |old| if current { number(owner, old) } else { RequestId(0) };
        let names = Names { version: &version, request: &request, edition: &edition };
        match &mut packet.body {
            Body::Peer { message, .. } => message.rename(&names),
            Body::Read { request: old, .. } => *old = request(*old),
            Body::Write { request: old, write, .. } => {
                *old = request(*old);
                write.base = version(write.base);
                write.content.edition = edition(write.content.edition);
            }
            Body::Sight { request: old, view, .. } => {
                *old = old.map(request);
                view.iter_mut().for_each(|view| view.rename(&names));
            }
            Body::Written { request: old, outcome, .. } => {
                *old = request(*old);
                if let Outcome::Committed(view) = outcome {
                    view.rename(&names);
                }
            }
        }
    };
    let mut nodes = world.nodes.clone();
    for (at, node) in nodes.iter_mut().enumerate() {
        let request = |old| number(at, old);
        let names = Names { version: &version, request: &request, edition: &edition };
        let node = Arc::make_mut(node);
        node.memory.edition = edition(node.memory.edition);
        if let Some(agent) = &mut node.agent {
            agent.rename(&names);
        }
        for call in &mut node.calls {
            call.request = number(at, call.request);
            if let Some(write) = &mut call.write {
                write.base = version(write.base);
                write.content.edition = edition(write.content.edition);
            }
        }
        node.inbox.iter_mut().for_each(rename_packet);
    }
    let mut net = (*world.net).clone();
    net.queue.iter_mut().for_each(rename_packet);
    net.late.iter_mut().for_each(rename_packet);
    net.late.sort_unstable();
    let mut shared = (*world.shared).clone();
    let none = |old| old;
    let names = Names { version: &version, request: &none, edition: &edition };
    shared.lease.iter_mut().for_each(|view| view.rename(&names));
    shared.history.iter_mut().for_each(|view| view.rename(&names));
    shared.version = versions.len() as u64;
    world.nodes = nodes;
    world.net = Arc::new(net);
    world.shared = Arc::new(shared);
}

/// Drops packets that were held back and can do nothing any more: a write on a version that is gone, whose caller no longer waits.
fn forget(world: &mut World, rules: &Rules) {
    if world.net.late.is_empty() {
        return;
    }
    let lease = world.shared.lease.as_ref().map(|view| (view.uid, view.version));
    let fits = |write: &LeaseWrite| lease == Some((write.uid, write.base));
    let nodes = world.nodes.clone();
    let awaited = |at: u8, life: u8, request: RequestId| {
        let node = &nodes[usize::from(at)];
        node.lives == life && node.agent.is_some() && node.calls.iter().any(|call| call.request == request)
    };
    Arc::make_mut(&mut world.net).late.retain(|packet| match &packet.body {
        Body::Write { life, request, write } => {
            fits(write) || awaited(packet.from, *life, *request) || rules.planted(Plant::WritesWithoutVersion)
        }
        Body::Written { life, request, .. } => {
            awaited(packet.to, *life, *request) || rules.planted(Plant::OksOfEarlierLives)
        }
        Body::Read { life, request } => awaited(packet.from, *life, *request),
        Body::Sight { life, request, .. } => match request {
            Some(request) => awaited(packet.to, *life, *request),
            None => nodes[usize::from(packet.to)].lives == *life && nodes[usize::from(packet.to)].agent.is_some(),
        },
        Body::Peer { to, message, .. } => {
            let node = &nodes[usize::from(packet.to)];
            let incarnation = match message {
                Message::Grant(grant) => Some(grant.incarnation.0),
                Message::Answer(answer) => Some(answer.incarnation.0),
                _ => None,
            };
            node.id == *to && incarnation.is_none_or(|incarnation| incarnation == u64::from(node.lives))
        }
    });
}

fn requests(node: &Node) -> Vec<RequestId> {
    let mut all = node.agent.as_ref().map(|agent| agent.requests()).unwrap_or_default();
    all.extend(node.calls.iter().map(|call| call.request));
    all.sort_unstable();
    all.dedup();
    all
}

fn versions(world: &World) -> Vec<LeaseVersion> {
    let mut all = vec![];
    let of = |view: &LeaseView| view.version;
    all.extend(world.shared.lease.iter().map(of));
    all.extend(world.shared.history.iter().map(of));
    for node in &world.nodes {
        all.extend(node.agent.iter().flat_map(|agent| agent.versions()));
        all.extend(node.calls.iter().filter_map(|call| call.write.as_ref()).map(|write| write.base));
    }
    let inboxes = world.nodes.iter().flat_map(|node| &node.inbox);
    for packet in world.net.queue.iter().chain(&world.net.late).chain(inboxes) {
        match &packet.body {
            Body::Peer { message: Message::Consent(consent), .. } => all.push(consent.version),
            Body::Write { write, .. } => all.push(write.base),
            Body::Sight { view, .. } => all.extend(view.iter().map(of)),
            Body::Written { outcome: Outcome::Committed(view), .. } => all.push(view.version),
            Body::Peer { .. } | Body::Read { .. } | Body::Written { .. } => {}
        }
    }
    // The Lease that was deleted had a version too, and the next one must be newer.
    if world.shared.lease.is_none() {
        all.push(LeaseVersion(world.shared.version));
    }
    all.sort_unstable();
    all.dedup();
    all
}

fn editions(world: &World) -> Vec<Edition> {
    let of = |view: &LeaseView| view.content.edition;
    let mut all: Vec<_> = world.shared.lease.iter().chain(&world.shared.history).map(of).collect();
    for node in &world.nodes {
        all.push(node.memory.edition);
        all.extend(node.agent.iter().flat_map(|agent| agent.editions()));
        all.extend(node.calls.iter().filter_map(|call| call.write.as_ref()).map(|write| write.content.edition));
    }
    let inboxes = world.nodes.iter().flat_map(|node| &node.inbox);
    for packet in world.net.queue.iter().chain(&world.net.late).chain(inboxes) {
        match &packet.body {
            Body::Write { write, .. } => all.push(write.content.edition),
            Body::Sight { view, .. } => all.extend(view.iter().map(of)),
            Body::Written { outcome: Outcome::Committed(view), .. } => all.push(of(view)),
            Body::Peer { .. } | Body::Read { .. } | Body::Written { .. } => {}
        }
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// The end a packet goes to is an instance, not the API.
pub fn to_instance(packet: &Packet) -> Option<usize> {
    Some(usize::from(packet.to)).filter(|to| *to != API)
}
