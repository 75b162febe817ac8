//! Where the exploration begins, and how far it goes.

use std::sync::Arc;

use bellwether_core::election::{Durability, LeaseContent, MemberId, Members, Plant, Settings, Span, Sync, Voters};
use bellwether_core::wal::Term;

use crate::act::{Rules, Violation, start};
use crate::moves::{Move, apply, moves};
use crate::world::{Env, NODES, Net, Node, Shared, World};

/// How far the exploration goes.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Ticks after the start.
    pub horizon: u8,
    /// Faults in one run.
    pub faults: u8,
    /// Commits of clients in one run.
    pub commits: u8,
}

/// The timings in ticks: as few as keep every order between them that the real ones have.
pub fn settings(durability: Durability, planted: Option<Plant>) -> Settings {
    Settings {
        ask_every: Span(1),
        promise: Span(4),
        lease: Span(4),
        renew_every: Span(1),
        drift: Span(1),
        stop_budget: Span(0),
        renew_after: Span(2),
        poll: Span(1),
        defer: Span(1),
        drop_voter_after: Span(2),
        remove_after: Span(3),
        cut_off_after: Span(5),
        stand_back: Span(9),
        resume_after: Span(2),
        durability,
        planted,
    }
}

/// How a run begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// A leads, B and C are members, and the Lease is old.
    Settled,
    /// A leads, B is a member, C has a copy and knocks.
    Joining,
}

/// A world in its steady state, reached by the agents themselves.
pub fn begin(beginning: Beginning, bounds: Bounds, rules: &Rules) -> Result<World, Violation> {
    let ids: Vec<_> = (0..NODES).map(|node| MemberId(node as u128 + 1)).collect();
    let members: Members = match beginning {
        Beginning::Settled => ids.iter().copied().collect(),
        Beginning::Joining => ids.iter().copied().take(2).collect(),
    };
    let voters = match rules.settings.durability {
        Durability::Async => None,
        _ => Voters::new(1, members.without(ids[0])),
    };
    let mut world = World {
        nodes: std::array::from_fn(|node| Arc::new(Node::new(ids[node], vec![1]))),
        shared: Arc::new(Shared::default()),
        net: Arc::new(Net::empty()),
        env: Env { time: 8, faults: 0, commits: 0, cut: 0, turn: 0, drifted: false },
    };
    let content = LeaseContent {
        holder: Some(ids[0]),
        term: Some(Term(1)),
        members,
        sync: Sync::only(voters),
        duration: rules.settings.lease,
    };
    world.set_lease(Some(content));
    let started = if beginning == Beginning::Settled { NODES } else { NODES - 1 };
    for node in 0..started {
        start(&mut world, node, rules)?;
    }
    world.pass_turn();
    while world.env.time < STEADY || !quiet(&world) {
        let next =
            moves(&world, u8::MAX, rules).into_iter().find(|next| !matches!(next, Move::Fault(_) | Move::Restart(_)));
        let Some(next) = next else { break };
        world = apply(&world, next, rules).map_err(|(_, violation)| violation)?;
    }
    world.env.faults = bounds.faults;
    world.env.commits = bounds.commits;
    Arc::make_mut(&mut world.shared).history.clear();
    if beginning == Beginning::Joining {
        start(&mut world, NODES - 1, rules)?;
        world.pass_turn();
    }
    Ok(world)
}

/// When the steady state is reached: the first write and everything that it made young are more than L ago.
pub const STEADY: u8 = 16;

fn quiet(world: &World) -> bool {
    world.net.channels.iter().all(std::collections::VecDeque::is_empty)
}
