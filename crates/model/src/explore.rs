//! Visits every state within the bounds, breadth first: the first violation found is one of the shortest.
//!
//! What was visited is kept as 128 bits of hash; with 10⁸ states the chance that two of them collide is about 10⁻²³. A state's hash is
//! made of those of its parts, and a part that a move did not touch is not hashed again. Only the states of one depth are kept
//! whole, and they share their parts with those that they came from.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::act::{Rules, Violation};
use crate::fingerprint::{Fingerprint, Through, fingerprint};
use crate::moves::{Move, apply, moves};
use crate::world::{NODES, World};

/// What an exploration came to.
#[derive(Debug, Default)]
pub struct Report {
    /// States visited.
    pub states: u64,
    /// Moves tried.
    pub moves: u64,
    /// The longest of the shortest ways to a state.
    pub depth: u32,
    /// Highest term that had tenure in any state.
    pub highest_term: u64,
    /// States in which somebody led a term above the first.
    pub failovers: u64,
    /// A shortest violation, with the way to it.
    pub violation: Option<(Violation, Vec<Step>)>,
    /// Whether every state was visited: false when a limit ended it.
    pub closed: bool,
}

/// One step of a trace.
#[derive(Clone, Debug)]
pub struct Step {
    /// What happened.
    pub what: Move,
    /// The world before it.
    pub before: World,
}

/// What bounds the work, apart from the model's own bounds.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// States after which it ends without an answer.
    pub states: u64,
    /// Whether the way to each state is kept, so that a violation comes with its trace.
    pub traces: bool,
    /// Threads.
    pub threads: usize,
    /// Told after each depth how far it is, and how many states the next depth has.
    pub progress: Option<fn(&Report, usize)>,
}

/// A state with the hashes of its parts.
#[derive(Clone)]
struct Seen {
    world: World,
    parts: [u128; NODES + 2],
}

impl Seen {
    fn new(world: World) -> Self {
        let mut parts = [0; NODES + 2];
        for (part, node) in parts.iter_mut().zip(&world.nodes) {
            *part = fingerprint(&**node);
        }
        parts[NODES] = fingerprint(&*world.net);
        parts[NODES + 1] = fingerprint(&*world.shared);
        Self { world, parts }
    }
    /// The state after a move.
    fn after(&self, world: World) -> Self {
        let mut parts = self.parts;
        for (node, part) in parts.iter_mut().enumerate().take(NODES) {
            if !Arc::ptr_eq(&self.world.nodes[node], &world.nodes[node]) {
                *part = fingerprint(&*world.nodes[node]);
            }
        }
        if !Arc::ptr_eq(&self.world.net, &world.net) {
            parts[NODES] = fingerprint(&*world.net);
        }
        if !Arc::ptr_eq(&self.world.shared, &world.shared) {
            parts[NODES + 1] = fingerprint(&*world.shared);
        }
        Self { world, parts }
    }
    fn hash(&self) -> u128 {
        let mut hash = Fingerprint::default();
        self.parts.iter().for_each(|part| hash.write_u128(*part));
        self.world.env.hash(&mut hash);
        hash.finish128()
    }
}

/// What was visited, in shards so that threads seldom wait for each other; with the way to it, if traces are wanted.
struct Visited {
    traces: bool,
    seen: Vec<Mutex<HashSet<u128, BuildHasherDefault<Through>>>>,
    parents: Vec<Mutex<HashMap<u128, u128, BuildHasherDefault<Through>>>>,
}

const SHARDS: usize = 256;

impl Visited {
    fn new(traces: bool) -> Self {
        Self {
            traces,
            seen: (0..SHARDS).map(|_| Mutex::default()).collect(),
            parents: (0..SHARDS).map(|_| Mutex::default()).collect(),
        }
    }
    /// Whether it is new.
    fn visit(&self, state: u128, parent: u128) -> bool {
        let shard = (state >> 64) as usize % SHARDS;
        let new = self.seen[shard].lock().unwrap_or_else(PoisonError::into_inner).insert(state);
        if new && self.traces && state != parent {
            self.parents[shard].lock().unwrap_or_else(PoisonError::into_inner).insert(state, parent);
        }
        new
    }
    fn parent(&self, state: u128) -> Option<u128> {
        let shard = (state >> 64) as usize % SHARDS;
        self.parents[shard].lock().unwrap_or_else(PoisonError::into_inner).get(&state).copied()
    }
}

/// Explores everything that can happen from here on.
pub fn explore(from: &World, rules: &Rules, limits: Limits) -> Report {
    let visited = Visited::new(limits.traces);
    let start = Seen::new(from.clone());
    visited.visit(start.hash(), start.hash());
    let mut report = Report::default();
    let mut frontier = vec![start];
    while !frontier.is_empty() {
        let found = AtomicBool::new(false);
        let tried = AtomicU64::new(0);
        report.states += frontier.len() as u64;
        for seen in &frontier {
            report.highest_term = report.highest_term.max(seen.world.shared.reigned);
            report.failovers += u64::from(seen.world.shared.reigned > 1);
        }
        let share = frontier.len().div_ceil(limits.threads).max(1);
        let mut shares = vec![];
        while !frontier.is_empty() {
            let rest = frontier.len().saturating_sub(share);
            shares.push(frontier.split_off(rest));
        }
        let results: Vec<_> = std::thread::scope(|scope| {
            let work = |share| scope.spawn(|| layer(share, rules, &visited, &found, &tried));
            let threads: Vec<_> = shares.into_iter().map(work).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
        });
        report.moves += tried.into_inner();
        let mut next = vec![];
        for (states, violation) in results {
            next.extend(states);
            if let Some((violation, seen, which)) = violation {
                let mut steps = if limits.traces { retrace(&visited, from, seen.hash(), rules) } else { vec![] };
                steps.push(Step { what: which, before: seen.world });
                report.violation = Some((violation, steps));
            }
        }
        if report.violation.is_some() {
            report.depth += 1;
            return report;
        }
        if report.states >= limits.states && !next.is_empty() {
            return report;
        }
        report.depth += u32::from(!next.is_empty());
        frontier = next;
        if let Some(tell) = limits.progress {
            tell(&report, frontier.len());
        }
    }
    report.closed = true;
    report
}

type Layer = (Vec<Seen>, Option<(Violation, Seen, Move)>);

/// One thread's share of one depth.
fn layer(share: Vec<Seen>, rules: &Rules, visited: &Visited, found: &AtomicBool, tried: &AtomicU64) -> Layer {
    let mut next = vec![];
    for seen in share {
        if found.load(Ordering::Relaxed) {
            break;
        }
        let here = seen.hash();
        let all = moves(&seen.world, rules);
        tried.fetch_add(all.len() as u64, Ordering::Relaxed);
        for which in all {
            match apply(&seen.world, which, rules) {
                Err((_, violation)) => {
                    found.store(true, Ordering::Relaxed);
                    return (next, Some((violation, seen, which)));
                }
                Ok(after) => {
                    let after = seen.after(after);
                    if visited.visit(after.hash(), here) {
                        next.push(after);
                    }
                }
            }
        }
    }
    (next, None)
}

/// The way from the beginning to the state of this hash.
fn retrace(visited: &Visited, from: &World, to: u128, rules: &Rules) -> Vec<Step> {
    let mut way = vec![to];
    while let Some(parent) = way.last().and_then(|last| visited.parent(*last)) {
        way.push(parent);
    }
    way.reverse();
    let mut seen = Seen::new(from.clone());
    let mut steps = vec![];
    for target in &way[1..] {
        let step = moves(&seen.world, rules).into_iter().find_map(|which| {
            let after = seen.after(apply(&seen.world, which, rules).ok()?);
            (after.hash() == *target).then_some((which, after))
        });
        let Some((what, after)) = step else { return steps };
        steps.push(Step { what, before: std::mem::replace(&mut seen, after).world });
    }
    steps
}
