//! Everything that can happen next: deliveries, the clock, clients, recoveries, and faults.

use std::fmt;
use std::sync::Arc;

use bellwether_core::election::{Event, LeaseContent, MemberId, Plant, Sync};

use crate::act::{Arrival, Rules, Violation, acknowledge, arrive, happen, start, tick};
use crate::world::{API, NODES, Node, Packet, World, channel, ends, name};

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Move {
    /// The first packet of this channel arrives.
    Deliver(usize),
    /// One tick passes.
    Tick,
    /// A packet that was held back arrives.
    Late(usize),
    /// A crashed agent starts again.
    Restart(usize),
    /// A frozen instance goes on.
    Thaw(usize),
    /// What was cut is whole again.
    Heal,
    /// The operator makes the Lease again.
    Recreate,
    /// A client commits.
    Commit(usize),
    /// A standby receives everything its primary has.
    Stream(usize, usize),
    /// The voters are in force.
    Voters(usize),
    /// One of the faults.
    Fault(Fault),
}

/// What can go wrong; each costs one of the run's faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// An instance crashes.
    Crash(usize),
    /// PostgreSQL crashes under a living agent.
    PostgresCrash(usize),
    /// The first packet of this channel is lost.
    Lose(usize),
    /// The first packet of this channel is held back.
    Delay(usize),
    /// Packets no longer pass this way.
    Cut(usize),
    /// No packets between this instance and its peers.
    Isolate(usize),
    /// This instance can't reach the API.
    NoApi(usize),
    /// Nobody can reach the API.
    ApiDown,
    /// An instance stops in time.
    Freeze(usize),
    /// A clock gains a tick.
    Fast(usize),
    /// A clock loses a tick.
    Slow(usize),
    /// A read is answered from the past.
    StaleRead(usize),
    /// The Lease is deleted.
    DeleteLease,
    /// The Lease is put back to what it was two versions ago.
    RestoreLease,
    /// A pod and its volume are lost; a new one joins under its name.
    Replace(usize),
    /// A switchover is asked for.
    Switchover(usize),
}

/// Every move that is possible now.
pub fn moves(world: &World, horizon: u8, rules: &Rules) -> Vec<Move> {
    let mut all = Vec::with_capacity(32);
    let turn = usize::from(world.env.turn);
    let settled = !world.expects(turn);
    for from in 0..=NODES {
        let at = channel(from, turn);
        if !settled && !world.net.channels[at].is_empty() {
            all.push(Move::Deliver(at));
            if rules.arrival == Arrival::Fixed {
                break;
            }
        }
    }
    for (which, (at, _)) in world.net.late.iter().enumerate() {
        if settled || ends(usize::from(*at)).1 == turn {
            all.push(Move::Late(which));
        }
    }
    if settled {
        between_ticks(world, horizon, rules, &mut all);
    }
    if world.env.faults > 0 && world.env.time < horizon {
        faults(world, turn, settled, rules, &mut all);
    }
    all
}

fn between_ticks(world: &World, horizon: u8, rules: &Rules, all: &mut Vec<Move>) {
    if world.env.time < horizon {
        all.push(Move::Tick);
    }
    for node in 0..NODES {
        if world.nodes[node].agent.is_none() {
            all.push(Move::Restart(node));
        }
        if world.nodes[node].frozen {
            all.push(Move::Thaw(node));
        }
        database(world, node, rules, all);
    }
    if world.env.cut != 0 {
        all.push(Move::Heal);
    }
    if world.shared.lease.is_none() {
        all.push(Move::Recreate);
    }
}

fn database(world: &World, node: usize, rules: &Rules, all: &mut Vec<Move>) {
    if !world.writable(node, rules.guarded()) {
        return;
    }
    let it = &world.nodes[node];
    let Some(primary) = &it.primary else { return };
    if world.env.commits > 0 {
        all.push(Move::Commit(node));
    }
    let same = |other: usize| world.nodes[other].log == it.log;
    for other in 0..NODES {
        let standby = &world.nodes[other];
        if standby.receiver == Some(it.id)
            && standby.awake()
            && !same(other)
            && world.open(node, other)
            && world.open(other, node)
        {
            all.push(Move::Stream(node, other));
        }
    }
    let holders = |needed: usize, voters: &bellwether_core::election::Members| {
        voters.iter().filter(|id| world.place(*id).is_some_and(same)).count() >= needed
    };
    let held = primary.voters.as_ref().is_none_or(|voters| holders(voters.needed(), voters.members()));
    if primary.awaited && (held || rules.planted(Plant::FlushNotAwaited)) {
        all.push(Move::Voters(node));
    }
}

fn faults(world: &World, turn: usize, settled: bool, rules: &Rules, all: &mut Vec<Move>) {
    let mut add = |fault| all.push(Move::Fault(fault));
    for from in (0..=NODES).filter(|_| !settled) {
        let channel = channel(from, turn);
        if let Some(packet) = world.net.channels[channel].front() {
            add(Fault::Lose(channel));
            if !matches!(packet, Packet::Written { .. } | Packet::Read { .. }) {
                add(Fault::Delay(channel));
            }
            if matches!(packet, Packet::Read { .. }) && !world.shared.history.is_empty() {
                add(Fault::StaleRead(channel));
            }
            if rules.arrival == Arrival::Fixed {
                break;
            }
        }
    }
    for node in 0..NODES {
        let it = &world.nodes[node];
        if !settled && node != turn {
            continue;
        }
        if it.awake() {
            add(Fault::Crash(node));
            add(Fault::Freeze(node));
        }
        if it.awake() && it.primary.is_some() {
            add(Fault::PostgresCrash(node));
            add(Fault::Switchover(node));
        }
    }
    // Where packets are on their way, losing or delaying them says the same; so these begin between two ticks.
    if !settled {
        return;
    }
    add(Fault::DeleteLease);
    if !world.shared.history.is_empty() {
        add(Fault::RestoreLease);
    }
    for node in 0..NODES {
        if !world.env.drifted {
            add(Fault::Fast(node));
            add(Fault::Slow(node));
        }
        add(Fault::Replace(node));
        if world.env.cut != 0 {
            continue;
        }
        add(Fault::Isolate(node));
        add(Fault::NoApi(node));
        for other in (0..NODES).filter(|other| *other != node) {
            add(Fault::Cut(channel(node, other)));
        }
    }
    if world.env.cut == 0 {
        add(Fault::ApiDown);
    }
}

/// The world after a move.
pub fn apply(world: &World, which: Move, rules: &Rules) -> Result<World, (World, Violation)> {
    let mut next = world.clone();
    match perform(&mut next, which, rules).and_then(|()| crate::invariants::check(&mut next, rules)) {
        Ok(()) => {
            next.pass_turn();
            Ok(next)
        }
        Err(violation) => Err((next, violation)),
    }
}

fn perform(world: &mut World, which: Move, rules: &Rules) -> Result<(), Violation> {
    match which {
        Move::Deliver(channel) => {
            let (from, to) = ends(channel);
            match Arc::make_mut(&mut world.net).channels[channel].pop_front() {
                Some(packet) => arrive(world, to, from, packet, rules),
                None => Ok(()),
            }
        }
        Move::Tick => tick(world, rules),
        Move::Late(which) => {
            let (at, packet) = Arc::make_mut(&mut world.net).late.remove(which);
            let (from, to) = ends(usize::from(at));
            arrive(world, to, from, packet, rules)
        }
        Move::Restart(node) => start(world, node, rules),
        Move::Thaw(node) => {
            Arc::make_mut(&mut world.nodes[node]).frozen = false;
            let clock = world.clock(node);
            let it = Arc::make_mut(&mut world.nodes[node]);
            // The watchdog goes first; the instant before it does is the documented exception of INV-3.
            if rules.guarded() && it.primary.as_ref().is_some_and(|primary| primary.guard.passed(clock)) {
                it.primary = None;
            }
            Ok(())
        }
        Move::Heal => {
            world.env.cut = 0;
            for to in 0..NODES {
                resync(world, to);
            }
            Ok(())
        }
        Move::Recreate => {
            let members = world.nodes.iter().map(|node| node.id).collect();
            let content = LeaseContent {
                holder: None,
                term: None,
                members,
                sync: Sync::default(),
                duration: rules.settings.lease,
            };
            world.set_lease(Some(content));
            Ok(())
        }
        Move::Commit(node) => {
            world.env.commits -= 1;
            let it = Arc::make_mut(&mut world.nodes[node]);
            if let Some(term) = it.log.last().copied() {
                it.log.push(term);
            }
            acknowledge(world, node);
            Ok(())
        }
        Move::Stream(node, other) => {
            let log = world.nodes[node].log.clone();
            Arc::make_mut(&mut world.nodes[other]).log = log;
            acknowledge(world, node);
            Ok(())
        }
        Move::Voters(node) => {
            let it = Arc::make_mut(&mut world.nodes[node]);
            let Some(primary) = &mut it.primary else { return Ok(()) };
            primary.awaited = false;
            let voters = primary.voters.clone();
            happen(world, node, Event::VotersInForce { voters }, rules)
        }
        Move::Fault(fault) => {
            world.env.faults -= 1;
            fail(world, fault, rules)
        }
    }
}

/// A watch that was interrupted begins again with what is there.
fn resync(world: &mut World, to: usize) {
    let view = world.shared.lease.clone();
    let life = world.nodes[to].lives;
    world.send(API, to, Packet::Sight { life, request: None, view });
}

fn fail(world: &mut World, fault: Fault, rules: &Rules) -> Result<(), Violation> {
    match fault {
        Fault::Crash(node) => crash(world, node),
        Fault::PostgresCrash(node) => {
            Arc::make_mut(&mut world.nodes[node]).primary = None;
            return happen(world, node, Event::PostgresCrashed, rules);
        }
        Fault::Switchover(node) => return happen(world, node, Event::Switchover { target: None }, rules),
        Fault::Lose(channel) => {
            Arc::make_mut(&mut world.net).channels[channel].pop_front();
        }
        Fault::Delay(channel) => {
            let net = Arc::make_mut(&mut world.net);
            if let Some(packet) = net.channels[channel].pop_front() {
                net.late.push((channel as u8, packet));
                net.late.sort_unstable();
            }
        }
        Fault::Cut(channel) => cut(world, &[channel]),
        Fault::Isolate(node) => {
            let peers = (0..NODES).filter(|other| *other != node);
            let both: Vec<_> = peers.flat_map(|other| [channel(node, other), channel(other, node)]).collect();
            cut(world, &both);
        }
        Fault::NoApi(node) => cut(world, &[channel(node, API), channel(API, node)]),
        Fault::ApiDown => {
            let all: Vec<_> = (0..NODES).flat_map(|node| [channel(node, API), channel(API, node)]).collect();
            cut(world, &all);
        }
        Fault::Freeze(node) => Arc::make_mut(&mut world.nodes[node]).frozen = true,
        Fault::Fast(node) => {
            world.env.drifted = true;
            Arc::make_mut(&mut world.nodes[node]).drift += 1;
        }
        Fault::Slow(node) => {
            world.env.drifted = true;
            Arc::make_mut(&mut world.nodes[node]).drift -= 1;
        }
        Fault::StaleRead(channel) => {
            let (from, _) = ends(channel);
            if let Some(Packet::Read { life, request }) = Arc::make_mut(&mut world.net).channels[channel].pop_front() {
                let view = world.shared.history.last().cloned();
                world.send(API, from, Packet::Sight { life, request: Some(request), view });
            }
        }
        Fault::DeleteLease => world.set_lease(None),
        Fault::RestoreLease => {
            let content = world.shared.history.first().map(|view| view.content.clone());
            world.set_lease(content);
        }
        Fault::Replace(node) => {
            crash(world, node);
            let id = world.nodes[node].id;
            let id = if rules.planted(Plant::IdentityByName) { id } else { MemberId(id.0 + 0x10) };
            let lives = world.nodes[node].lives;
            world.nodes[node] = Arc::new(Node { lives, ..Node::new(id, vec![]) });
        }
    }
    Ok(())
}

fn crash(world: &mut World, node: usize) {
    let it = Arc::make_mut(&mut world.nodes[node]);
    it.agent = None;
    it.frozen = false;
    it.primary = None;
    it.receiver = None;
    it.calls.clear();
    let net = Arc::make_mut(&mut world.net);
    for from in 0..=NODES {
        net.channels[channel(from, node)].clear();
    }
}

fn cut(world: &mut World, which: &[usize]) {
    for channel in which {
        world.env.cut |= 1 << channel;
    }
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = |channel: usize| {
            let (from, to) = ends(channel);
            format!("{} → {}", name(from), name(to))
        };
        match self {
            Self::Deliver(at) => write!(f, "arrives {}", way(*at)),
            Self::Tick => write!(f, "a tick passes"),
            Self::Late(_) => write!(f, "a packet that was held back arrives"),
            Self::Restart(node) => write!(f, "{} restarts", name(*node)),
            Self::Thaw(node) => write!(f, "{} thaws", name(*node)),
            Self::Heal => write!(f, "the network heals"),
            Self::Recreate => write!(f, "the operator makes the Lease again"),
            Self::Commit(node) => write!(f, "a client commits on {}", name(*node)),
            Self::Stream(from, to) => write!(f, "{} streams from {}", name(*to), name(*from)),
            Self::Voters(node) => write!(f, "the voters are in force on {}", name(*node)),
            Self::Fault(Fault::Lose(at)) => write!(f, "FAULT: lost {}", way(*at)),
            Self::Fault(Fault::Delay(at)) => write!(f, "FAULT: held back {}", way(*at)),
            Self::Fault(Fault::Cut(at)) => write!(f, "FAULT: cut {}", way(*at)),
            Self::Fault(Fault::StaleRead(at)) => write!(f, "FAULT: stale read {}", way(*at)),
            Self::Fault(Fault::Crash(node)) => write!(f, "FAULT: {} crashes", name(*node)),
            Self::Fault(Fault::PostgresCrash(node)) => write!(f, "FAULT: PostgreSQL on {} crashes", name(*node)),
            Self::Fault(Fault::Isolate(node)) => write!(f, "FAULT: {} is cut off from its peers", name(*node)),
            Self::Fault(Fault::NoApi(node)) => write!(f, "FAULT: {} can't reach the API", name(*node)),
            Self::Fault(Fault::ApiDown) => write!(f, "FAULT: nobody can reach the API"),
            Self::Fault(Fault::Freeze(node)) => write!(f, "FAULT: {} freezes", name(*node)),
            Self::Fault(Fault::Fast(node)) => write!(f, "FAULT: the clock of {} gains a tick", name(*node)),
            Self::Fault(Fault::Slow(node)) => write!(f, "FAULT: the clock of {} loses a tick", name(*node)),
            Self::Fault(Fault::DeleteLease) => write!(f, "FAULT: the Lease is deleted"),
            Self::Fault(Fault::RestoreLease) => write!(f, "FAULT: the Lease is put back to an earlier state"),
            Self::Fault(Fault::Replace(node)) => {
                write!(f, "FAULT: {} is lost with its volume and made again", name(*node))
            }
            Self::Fault(Fault::Switchover(node)) => write!(f, "FAULT: a switchover from {} is asked for", name(*node)),
        }
    }
}
