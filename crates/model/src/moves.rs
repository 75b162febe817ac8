//! Everything that can happen next: arrivals, the clock, clients, recoveries, and faults.
//!
//! A fault has the power that an adversary would give it, and no more moments than make a difference. A crash of an instance makes a
//! difference right after something happened there: what it has sent by then may arrive at any time, or never, so a later crash
//! adds nothing. What is done *to* an instance makes a difference right before something arrives there. In between it would
//! commute with what happens elsewhere. Between two ticks everything may happen.

use std::sync::Arc;

use bellwether_core::election::{Edition, Event, Force, LeaseContent, LeaseVersion, MemberId, Plant, Sync, Whom};
use bellwether_core::wal::Term;

use crate::act::{Rules, Violation, acknowledge, arrive, connected, happen, in_force, start, stream, voters_in_force};
use crate::passing::{Pace, tick, to_instance};
use crate::world::{API, Body, Drain, NOBODY, NODES, NOW, Node, Packet, World, channel};

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Move {
    /// What was sent first arrives.
    Deliver,
    /// One tick passes.
    Tick,
    /// A packet that was held back arrives.
    Late(usize),
    /// A crashed agent starts again.
    Restart(usize),
    /// A frozen instance goes on.
    Thaw(usize),
    /// Of what one fault cut, these ways are open again.
    Heal(usize, u16),
    /// The operator makes the Lease again.
    Recreate,
    /// A client commits, and these standbys receive it at once; the others lag.
    Commit(usize, u8),
    /// These standbys lag no longer, and one tick passes. Whether one lags is asked only then, so when it ceased to since the last one makes no
    /// difference.
    CatchUp(u8),
    /// A switchover is asked for.
    Switchover(usize),
    /// A person wants this one to lead, whatever is lost by it.
    Force(usize),
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
    /// What was sent first is lost.
    Lose,
    /// What was sent first is held back: others overtake it.
    Delay,
    /// Packets no longer pass these ways.
    Cut(u16),
    /// An instance stops in time.
    Freeze(usize),
    /// A tick passes, and one clock gains or misses it.
    Drift(Pace),
    /// A read is answered from the past.
    StaleRead(usize),
    /// The Lease is deleted.
    DeleteLease,
    /// The Lease is put back to what it was.
    RestoreLease(usize),
    /// Every pod is deleted at once, or all machines lose their power; the volumes stay.
    CrashAll,
    /// A pod and its volume are lost; a new one joins under its name.
    Replace(usize),
    /// A standby gives its copy up, to clone it anew.
    GiveUpCopy(usize),
}

/// Every move that is possible now.
pub fn moves(world: &World, rules: &Rules) -> Vec<Move> {
    let mut all = Vec::with_capacity(48);
    let head = world.net.queue.front();
    let over = rules.horizon.is_some_and(|horizon| world.env.time >= horizon);
    if world.shared.reigned >= rules.terms {
        return all;
    }
    if head.is_some() {
        all.push(Move::Deliver);
    }
    for (which, packet) in world.net.late.iter().enumerate() {
        if head.is_none_or(|head| head.to == packet.to) {
            all.push(Move::Late(which));
        }
    }
    if head.is_none() {
        between_ticks(world, over, rules, &mut all);
    }
    if world.env.faults > 0 && !over {
        faults(world, rules, &mut all);
    }
    all
}

fn between_ticks(world: &World, over: bool, rules: &Rules, all: &mut Vec<Move>) {
    if !over {
        all.push(Move::Tick);
        let lagging = (0..NODES).filter(|node| world.nodes[*node].lagging).fold(0, |set, node| set | 1 << node);
        all.extend((1..1_u8 << NODES).filter(|set| set & !lagging == 0).map(Move::CatchUp));
    }
    for node in 0..NODES {
        let it = &world.nodes[node];
        if it.agent.is_none() && it.lives > 0 {
            all.push(Move::Restart(node));
        }
        if it.frozen {
            all.push(Move::Thaw(node));
        }
        if world.env.switchovers > 0 && it.awake() && it.primary.is_some() {
            all.push(Move::Switchover(node));
        }
        if world.env.forces > 0 && it.awake() && world.shared.lease.is_some() {
            all.push(Move::Force(node));
        }
        if world.env.commits > 0 && it.writable(rules.guarded()) {
            commits(world, node, rules, all);
        }
    }
    // All at once, or first what joins instances and then the way to the API, or the other way round.
    for (which, cut) in world.env.cuts.into_iter().enumerate() {
        let parts = [cut, cut & TO_API, cut & !TO_API];
        let some = if parts[1] == 0 || parts[2] == 0 || !rules.faults.one_way { 1 } else { 3 };
        all.extend(parts.iter().take(some).filter(|part| **part != 0).map(|part| Move::Heal(which, *part)));
    }
    if world.shared.lease.is_none() {
        all.push(Move::Recreate);
    }
}

/// A commit may have reached any of those that stream.
fn commits(world: &World, node: usize, rules: &Rules, all: &mut Vec<Move>) {
    let streaming = (0..NODES).filter(|to| connected(world, node, *to, rules)).fold(0, |set, to| set | 1 << to);
    let subsets = (0..1_u8 << NODES).filter(|set| set & !streaming == 0);
    all.extend(subsets.map(|set| Move::Commit(node, set)));
}

fn faults(world: &World, rules: &Rules, all: &mut Vec<Move>) {
    let mut add = |fault| all.push(Move::Fault(fault));
    let head = world.net.queue.front();
    // Right before something arrives there, or between two ticks.
    let before = |end: usize| head.is_none_or(|head| usize::from(head.to) == end);
    if rules.faults.packets
        && let Some(packet) = head
    {
        add(Fault::Lose);
        if matches!(packet.body, Body::Read { .. }) {
            (0..world.shared.history.len()).for_each(|which| add(Fault::StaleRead(which)));
        } else {
            add(Fault::Delay);
        }
    }
    if rules.faults.crashes {
        for node in (0..NODES).filter(|node| world.nodes[*node].awake()) {
            if head.is_none() || usize::from(world.env.last) == node {
                add(Fault::Crash(node));
            }
            if before(node) {
                add(Fault::Freeze(node));
                if world.nodes[node].primary.is_some() {
                    add(Fault::PostgresCrash(node));
                }
            }
        }
    }
    if rules.faults.lease && world.shared.lease.is_some() && before(API) {
        add(Fault::DeleteLease);
        (0..world.shared.history.len()).for_each(|which| add(Fault::RestoreLease(which)));
    }
    if rules.faults.cuts && world.env.cuts.contains(&0) {
        let here: Vec<usize> = (0..NODES).filter(|node| world.nodes[*node].lives > 0).collect();
        let way = head.map_or(u16::MAX, |head| channel(usize::from(head.from), usize::from(head.to)));
        // Right before something would pass there: from then on nothing does.
        cut_sets(&here, rules.faults.one_way)
            .into_iter()
            .filter(|cut| cut & way != 0)
            .for_each(|cut| add(Fault::Cut(cut)));
    }
    if head.is_none() {
        slow_faults(world, rules, &mut add);
    }
}

/// What begins between two ticks: in the middle of one, losing or delaying what is on its way says the same.
fn slow_faults(world: &World, rules: &Rules, add: &mut impl FnMut(Fault)) {
    for node in 0..NODES {
        let it = &world.nodes[node];
        if rules.faults.drift && !world.env.drifted && it.awake() {
            add(Fault::Drift(Pace::Slow(node)));
            add(Fault::Drift(Pace::Fast(node)));
        }
        if rules.faults.replace && it.lives > 0 {
            add(Fault::Replace(node));
            if it.awake() && it.receiver.is_some() && !it.log.is_empty() {
                add(Fault::GiveUpCopy(node));
            }
        }
    }
    if rules.faults.crashes {
        add(Fault::CrashAll);
    }
}

/// Every way to and from the API.
const TO_API: u16 = {
    let mut all = 0;
    let mut node = 0;
    while node < NODES {
        all |= 1 << (node * (NODES + 1) + API) | 1 << (API * (NODES + 1) + node);
        node += 1;
    }
    all
};

/// Partitions: every way to divide instances and API in two; besides, one way between two alone, and an instance from its peers or
/// from the API alone.
fn cut_sets(here: &[usize], one_way: bool) -> Vec<u16> {
    let both = |one: usize, other: usize| channel(one, other) | channel(other, one);
    let mut all = vec![];
    for &node in here {
        let others = here.iter().copied().filter(|other| *other != node);
        if one_way {
            all.extend(others.clone().map(|other| channel(node, other)));
        }
        let peers = others.fold(0, |cut, other| cut | both(node, other));
        all.extend([peers, both(node, API), peers | both(node, API)]);
    }
    // Those on the API's side, and those on the other.
    for side in 0..1_u16 << here.len() {
        let apart = |node: usize| side & (1 << node) != 0;
        let mut cut = 0;
        for (one, &node) in here.iter().enumerate().filter(|(one, _)| apart(*one)) {
            debug_assert_eq!(one, node);
            cut |= both(node, API);
            cut |= here.iter().filter(|other| !apart(**other)).fold(0, |cut, other| cut | both(node, *other));
        }
        all.push(cut);
    }
    all.retain(|cut| *cut != 0);
    all.sort_unstable();
    all.dedup();
    all
}

/// The world after a move.
pub fn apply(world: &World, which: Move, rules: &Rules) -> Result<World, (World, Violation)> {
    let mut next = world.clone();
    let mut result = checked(&mut next, which, rules);
    // Where nothing else can happen, what is on its way arrives.
    while result.is_ok() && next.env.faults == 0 && alone(&next) {
        result = checked(&mut next, Move::Deliver, rules);
    }
    match result {
        Ok(()) => {
            if next.env.faults == 0 || next.quiet() {
                next.env.last = NOBODY;
            }
            Ok(next)
        }
        Err(violation) => Err((next, violation)),
    }
}

/// Whether the next arrival is the only thing that can happen.
fn alone(world: &World) -> bool {
    world.net.queue.front().is_some_and(|head| world.net.late.iter().all(|late| late.to != head.to))
}

fn checked(world: &mut World, which: Move, rules: &Rules) -> Result<(), Violation> {
    perform(world, which, rules)?;
    if world.quiet() && rules.planted(Plant::FlushNotAwaited) {
        for node in (0..NODES).filter(|node| in_force(world, *node, rules)).collect::<Vec<_>>() {
            voters_in_force(world, node, rules)?;
        }
    }
    crate::invariants::check(world, rules)
}

fn perform(world: &mut World, which: Move, rules: &Rules) -> Result<(), Violation> {
    match which {
        Move::Deliver => {
            let Some(packet) = Arc::make_mut(&mut world.net).queue.pop_front() else { return Ok(()) };
            let open = world.open(usize::from(packet.from), usize::from(packet.to));
            let there = to_instance(&packet).is_none_or(|to| world.nodes[to].agent.is_some());
            if open && there { arrive(world, packet, rules) } else { Ok(()) }
        }
        Move::Tick => tick(world, Pace::Even, rules),
        Move::Late(which) => {
            let packet = Arc::make_mut(&mut world.net).late.remove(which);
            arrive(world, packet, rules)
        }
        Move::Restart(node) => start(world, node, rules),
        Move::Thaw(node) => {
            thaw(world, node, rules);
            Ok(())
        }
        Move::Heal(which, healed) => {
            world.env.cuts[which] &= !healed;
            world.env.cuts.sort_unstable();
            // A watch that was interrupted begins again with what is there.
            let back = |to: &usize| healed & channel(API, *to) != 0 && world.open(API, *to);
            let back: Vec<usize> = (0..NODES).filter(back).collect();
            back.into_iter().for_each(|to| world.notify(to));
            Ok(())
        }
        Move::Recreate => {
            let members = world.nodes.iter().filter(|node| node.lives > 0).map(|node| node.id).collect();
            let duration = rules.settings.lease;
            let content = LeaseContent {
                holder: None,
                term: None,
                members,
                sync: Sync::default(),
                duration,
                edition: Edition(0),
            };
            world.set_lease(Some(content));
            Ok(())
        }
        Move::Commit(node, reached) => {
            world.env.commits -= 1;
            let it = Arc::make_mut(&mut world.nodes[node]);
            if let Some(term) = it.log.last().copied() {
                it.log.push(term);
            }
            acknowledge(world, node);
            for to in (0..NODES).filter(|to| *to != node) {
                if reached & (1 << to) != 0 {
                    stream(world, node, to);
                } else {
                    Arc::make_mut(&mut world.nodes[to]).lagging = world.nodes[to].receiver.is_some();
                }
            }
            Ok(())
        }
        Move::CatchUp(those) => {
            for node in (0..NODES).filter(|node| those & (1 << node) != 0) {
                Arc::make_mut(&mut world.nodes[node]).lagging = false;
            }
            tick(world, Pace::Even, rules)
        }
        Move::Switchover(node) => {
            world.env.switchovers -= 1;
            Arc::make_mut(&mut world.nodes[node]).drain = Drain::Wanted;
            happen(world, node, Event::Switchover { target: None }, rules)
        }
        Move::Force(node) => {
            world.env.forces -= 1;
            force(world, node, rules)
        }
        Move::Fault(fault) => {
            world.env.faults -= 1;
            fail(world, fault, rules)
        }
    }
}

/// The wish is written on the Lease, which makes another version of it. Each agent is told of it before it sees that version; one that restarts
/// forgets, which is less than what it would read.
fn force(world: &mut World, node: usize, rules: &Rules) -> Result<(), Violation> {
    let content = world.shared.lease.as_ref().map(|lease| lease.content.clone());
    let term = content.as_ref().and_then(|content| content.term).max(Some(Term(world.shared.reigned)));
    world.set_lease(content);
    world.env.wished = true;
    let version = LeaseVersion(world.shared.version);
    for to in (0..NODES).filter(|to| world.nodes[*to].awake()).collect::<Vec<_>>() {
        let whom = if to == node { Whom::Me } else { Whom::Another };
        happen(world, to, Event::Forced(Force { version, term, whom }), rules)?;
    }
    Ok(())
}

fn thaw(world: &mut World, node: usize, rules: &Rules) {
    let it = Arc::make_mut(&mut world.nodes[node]);
    it.frozen = false;
    // The watchdog goes first; the instant before it does is the documented exception of INV-3.
    if rules.guarded() && it.primary.as_ref().is_some_and(|primary| primary.guard.passed(NOW)) {
        it.primary = None;
    }
    let held = std::mem::take(&mut it.inbox);
    Arc::make_mut(&mut world.net).queue.extend(held);
}

fn fail(world: &mut World, fault: Fault, rules: &Rules) -> Result<(), Violation> {
    match fault {
        Fault::Crash(node) => {
            if rules.planted(Plant::VolumeTakenTwice) && world.nodes[NODES - 1].lives == 0 {
                // The process that was thought to be dead runs on elsewhere.
                world.nodes[NODES - 1] = world.nodes[node].clone();
            }
            crash(world, node, rules);
        }
        Fault::CrashAll => {
            for node in 0..NODES {
                crash(world, node, rules);
            }
            // Nobody is left whom a packet between instances could reach.
            Arc::make_mut(&mut world.net).late.retain(|packet| usize::from(packet.to) == API);
        }
        Fault::PostgresCrash(node) => {
            Arc::make_mut(&mut world.nodes[node]).primary = None;
            return happen(world, node, Event::PostgresCrashed, rules);
        }
        Fault::Lose => {
            let lost = Arc::make_mut(&mut world.net).queue.pop_front();
            if rules.planted(Plant::WritesRetried) {
                retry(world, lost.as_ref(), rules);
            }
        }
        Fault::Delay => {
            let net = Arc::make_mut(&mut world.net);
            net.late.extend(net.queue.pop_front());
            net.late.sort_unstable();
        }
        Fault::Cut(cut) => {
            world.env.cuts[0] = cut;
            world.env.cuts.sort_unstable();
        }
        Fault::Freeze(node) => Arc::make_mut(&mut world.nodes[node]).frozen = true,
        Fault::Drift(pace) => {
            world.env.drifted = true;
            return tick(world, pace, rules);
        }
        Fault::StaleRead(which) => {
            let packet = Arc::make_mut(&mut world.net).queue.pop_front();
            let view = world.shared.history[which].clone();
            if let Some(packet) = packet
                && let Body::Read { life, request } = packet.body
            {
                let body = Body::Sight { life, request: Some(request), view: Some(view) };
                world.send(API, usize::from(packet.from), body);
            }
        }
        Fault::DeleteLease => world.set_lease(None),
        Fault::RestoreLease(which) => {
            let content = world.shared.history[which].content.clone();
            world.set_lease(Some(content));
        }
        Fault::Replace(node) => {
            crash(world, node, rules);
            let Node { id, lives, log, .. } = &*world.nodes[node];
            let (id, log) = if rules.planted(Plant::IdentityByName) {
                // All but the last record was in the backup.
                (*id, log[..log.len().saturating_sub(1).max(1).min(log.len())].to_vec())
            } else {
                (MemberId(id.0 + 0x10), vec![])
            };
            world.nodes[node] = Arc::new(Node { lives: *lives, ..Node::new(id, log) });
        }
        Fault::GiveUpCopy(node) => {
            let it = Arc::make_mut(&mut world.nodes[node]);
            it.log.clear();
            it.lagging = true;
        }
    }
    Ok(())
}

/// A client that retries sends again what had no answer, and takes the second answer for the first one's.
fn retry(world: &mut World, lost: Option<&Packet>, rules: &Rules) {
    let Some(Packet { to, body: Body::Written { life, request, .. }, .. }) = lost else { return };
    let (at, life, request) = (usize::from(*to), *life, *request);
    let call = world.nodes[at].calls.iter().find(|call| call.request == request);
    if let Some(write) = call.and_then(|call| call.write.clone()) {
        crate::act::answer(world, at, life, request, write, rules);
        // Its version is gone, so it changed nothing, and its answer is all that is new.
        if let Some(answer) = Arc::make_mut(&mut world.net).queue.pop_back() {
            Arc::make_mut(&mut world.net).queue.push_front(answer);
        }
    }
}

/// What it had sent may still arrive, at any time. Its connections are gone, so what was sent to it is lost.
fn crash(world: &mut World, node: usize, rules: &Rules) {
    let it = Arc::make_mut(&mut world.nodes[node]);
    it.agent = None;
    it.frozen = false;
    it.inbox.clear();
    it.primary = None;
    it.drain = Drain::No;
    it.receiver = None;
    it.lagging = false;
    it.calls.clear();
    let net = Arc::make_mut(&mut world.net);
    let (sent, rest) = net.queue.drain(..).partition::<Vec<_>, _>(|packet| usize::from(packet.from) == node);
    net.queue = rest.into_iter().filter(|packet| usize::from(packet.to) != node).collect();
    net.late.extend(sent.into_iter().filter(|packet| !matches!(packet.body, Body::Read { .. })));
    if !rules.planted(Plant::OksOfEarlierLives) {
        net.late.retain(|packet| !(usize::from(packet.to) == node && usize::from(packet.from) == API));
    }
    net.late.sort_unstable();
}
