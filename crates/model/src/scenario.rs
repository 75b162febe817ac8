//! Where explorations begin, and how far they go: several scenarios that each close by themselves, instead of one that holds
//! everything and never would.

use std::sync::Arc;

use bellwether_core::election::{
    Ages, Durability, Edition, LeaseContent, MemberId, Members, Plant, Settings, Span, Sync, Voters,
};
use bellwether_core::wal::Term;

use crate::act::{Faults, Rules, Violation, start};
use crate::moves::{Move, apply, moves};
use crate::world::{Env, NOBODY, NODES, Net, Node, Shared, World};

/// One exploration.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is about, in one sentence.
    pub about: &'static str,
    /// How it begins.
    pub beginning: Beginning,
    /// Faults in one run.
    pub faults: u8,
    /// Within which bounds it is explored to the end, where that is not within its own.
    pub closes: &'static [Bounds],
    /// Which.
    pub kinds: Faults,
    /// Commits of clients that some volume may lack at the same time.
    pub commits: u8,
    /// Switchovers asked for in one run.
    pub switchovers: u8,
    /// Times that a person makes an instance lead by force. What was acknowledged before is given up by that, and only by that.
    pub forces: u8,
    /// How commits are acknowledged.
    pub durability: Durability,
    /// Ticks for which a candidate waits for answers. Without voters to hear, one that does not wait at all is faster than any real
    /// one: then nothing is safe only because a poll takes its time.
    pub poll: u64,
    /// Who wakes first in a tick.
    pub wake: Wake,
    /// Ticks; none: until there are no more states.
    pub horizon: Option<u8>,
    /// Whether it is explored with the others, or only when all are asked for.
    pub when: When,
}

/// When a scenario is explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Always: these take ten minutes together, on two cores.
    Always,
    /// When all are asked for: each takes minutes of its own.
    All,
}

/// How far an exploration goes. A commit multiplies the states by twenty and more, so where two faults and a commit together would not come
/// to an end, two faults without a commit do, and one fault with one: INV-1 and INV-3 by the first, INV-2 by the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Faults in one run.
    pub faults: u8,
    /// Commits of clients that some volume may lack at the same time.
    pub commits: u8,
}

const APART: &[Bounds] = &[Bounds { faults: 2, commits: 0 }, Bounds { faults: 1, commits: 1 }];

/// How a run begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// A leads, B is a member, there is nobody else, and the Lease is old.
    Pair,
    /// A leads, B and C are members, and the Lease is old.
    Trio,
    /// A leads, B is a member, C has a copy and knocks.
    Joining,
}

const ALL: Faults =
    Faults { crashes: true, packets: true, cuts: true, one_way: true, lease: true, drift: true, replace: true };
/// Without those that the smallest scenarios have: what a clock or a damaged Lease does depends on no third instance.
const MOST: Faults = Faults { lease: false, drift: false, ..ALL };

const PAIR: Scenario = Scenario {
    name: "pair",
    about: "two instances, asynchronous: every race between promises, the Lease and the clocks",
    beginning: Beginning::Pair,
    faults: 2,
    closes: &[],
    kinds: ALL,
    commits: 0,
    switchovers: 0,
    forces: 0,
    durability: Durability::Async,
    poll: 0,
    wake: Wake::LeaderFirst,
    horizon: None,
    when: When::Always,
};
const QUORUM: Scenario = Scenario {
    name: "quorum",
    about: "three instances, commits wait for one of two voters; one commit",
    beginning: Beginning::Trio,
    // Which log is where does not depend on single packets, and a standby streams both ways or not at all.
    kinds: Faults { packets: false, one_way: false, ..MOST },
    commits: 1,
    durability: Durability::Quorum,
    poll: 1,
    wake: Wake::LeaderLast,
    ..PAIR
};

const FORCED: Scenario = Scenario {
    name: "forced",
    about: "three instances, commits would wait for voters; a person makes one lead by force at any time; crashes and partitions",
    kinds: Faults { replace: false, ..QUORUM.kinds },
    commits: 0,
    forces: 1,
    when: When::All,
    ..QUORUM
};
/// Partitions and a damaged Lease together, with force at any time, have too many states for two faults: see `given-up` for one.
const FORCED_DAMAGED: Scenario = Scenario {
    name: "forced-damaged",
    about: "the same without partitions, of a Lease that was deleted or put back",
    kinds: Faults { cuts: false, lease: true, ..FORCED.kinds },
    ..FORCED
};

/// Every scenario.
pub const SCENARIOS: &[Scenario] = &[
    PAIR,
    Scenario {
        name: "pair-late",
        about: "the same, but in each tick the leader wakes last, and candidates wait for answers",
        poll: 1,
        wake: Wake::LeaderLast,
        ..PAIR
    },
    Scenario { name: "trio", about: "three instances, asynchronous", beginning: Beginning::Trio, ..PAIR },
    Scenario {
        name: "joining",
        about: "two members, asynchronous, and a third instance that is being admitted",
        beginning: Beginning::Joining,
        kinds: MOST,
        wake: Wake::LeaderLast,
        ..PAIR
    },
    Scenario {
        name: "switchover",
        about: "two instances, asynchronous; a switchover is asked for at any time",
        kinds: MOST,
        switchovers: 1,
        poll: 1,
        ..PAIR
    },
    QUORUM,
    Scenario {
        name: "voters",
        about: "two members and one that joins; commits wait for voters that change; one commit",
        beginning: Beginning::Joining,
        closes: APART,
        kinds: Faults { replace: false, ..QUORUM.kinds },
        ..QUORUM
    },
    Scenario {
        name: "handover",
        about: "three instances, commits wait for one of two voters; one commit, one switchover",
        when: When::All,
        closes: APART,
        kinds: Faults { replace: false, ..QUORUM.kinds },
        switchovers: 1,
        ..QUORUM
    },
    Scenario {
        name: "put-back",
        about: "two members and one that joins, voters, one commit; crashes, and a Lease that was deleted or put back",
        when: When::All,
        beginning: Beginning::Joining,
        kinds: Faults { cuts: false, lease: true, replace: false, ..QUORUM.kinds },
        ..QUORUM
    },
    FORCED,
    FORCED_DAMAGED,
    Scenario {
        name: "given-up",
        about: "the same with all of these, one fault and one commit, which a person gives up by that and by nothing else",
        faults: 1,
        commits: 1,
        kinds: Faults { lease: true, ..FORCED.kinds },
        ..FORCED
    },
];

/// Who wakes first in a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// The one that leads at the beginning: a member always acts on what the leader did in this tick.
    LeaderFirst,
    /// The others: they campaign before it notices that its tenure is over.
    LeaderLast,
}

impl Scenario {
    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        SCENARIOS.iter().copied().find(|scenario| scenario.name == name)
    }
    /// The explorations that it is explored by to the end.
    pub fn explorations(&self) -> Vec<Self> {
        let Self { faults, commits, .. } = *self;
        let own = [Bounds { faults, commits }];
        let bounds = if self.closes.is_empty() { &own } else { self.closes };
        bounds.iter().map(|Bounds { faults, commits }| Self { faults: *faults, commits: *commits, ..*self }).collect()
    }
    /// What the exploration is given.
    pub fn rules(&self, planted: Option<Plant>) -> Rules {
        Rules {
            settings: settings(self.durability, self.poll, planted),
            horizon: self.horizon,
            faults: self.kinds,
            commits: self.commits,
            terms: TERMS,
            order: match self.wake {
                Wake::LeaderFirst => [0, 1, 2],
                Wake::LeaderLast => [2, 1, 0],
            },
            ages: Ages::Merged,
        }
    }
}

/// More terms than a sound protocol reaches with two faults: a planted bug may elect without end.
pub const TERMS: u64 = 8;

/// The timings in ticks: as few as keep every order between them that the real ones have.
pub fn settings(durability: Durability, poll: u64, planted: Option<Plant>) -> Settings {
    Settings {
        ask_every: Span(1),
        promise: Span(4),
        lease: Span(4),
        renew_every: Span(1),
        drift: Span(1),
        stop_budget: Span(0),
        stop_within: Span(2),
        shut_down_within: Span(2),
        renew_after: Span(2),
        poll: Span(poll),
        last_poll: Span(poll),
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

/// A world in its steady state, reached by the agents themselves: A leads term 1 whoever wakes first. A planted bug is planted then, so
/// that what it breaks is broken by a run and not by the way to its beginning.
pub fn begin(scenario: &Scenario, rules: &Rules) -> Result<World, Violation> {
    let (instances, members) = match scenario.beginning {
        Beginning::Pair => (2, 2),
        Beginning::Trio => (3, 3),
        Beginning::Joining => (3, 2),
    };
    let sound = Rules { settings: Settings { planted: None, ..rules.settings }, horizon: None, commits: 0, ..*rules };
    let mut world = founded(members, &sound);
    // A is named and alone: it leads when it has seen that name for L. Had the others been there, any of them might have won.
    start(&mut world, 0, &sound)?;
    while world.nodes[0].primary.is_none() {
        world = settled(&world, &sound)?;
    }
    for node in 1..members {
        start(&mut world, node, &sound)?;
    }
    for _ in 0..STEADY {
        world = settled(&world, &sound)?;
    }
    if world.nodes[0].primary.is_none() || world.shared.reigned != 1 {
        return Err(Violation("the beginning is not what it is said to be: A does not lead term 1".to_owned()));
    }
    Arc::make_mut(&mut world.shared).history.clear();
    for node in &mut world.nodes {
        let agent = &mut Arc::make_mut(node).agent;
        agent.iter_mut().for_each(|agent| agent.plant(rules.settings.planted));
    }
    for node in members..instances {
        start(&mut world, node, rules)?;
    }
    let Scenario { faults, commits, switchovers, forces, .. } = *scenario;
    world.env = Env { faults, commits, switchovers, forces, ..NOTHING_YET };
    Ok(world)
}

const NOTHING_YET: Env = Env {
    time: 0,
    faults: 0,
    commits: 0,
    switchovers: 0,
    forces: 0,
    wished: false,
    cuts: [0; 2],
    last: NOBODY,
    drifted: false,
};

/// The Lease names A, nobody has started, and every volume has a copy.
fn founded(members: usize, rules: &Rules) -> World {
    let ids: Vec<_> = (0..NODES).map(|node| MemberId(node as u128 + 1)).collect();
    let all: Members = ids.iter().copied().take(members).collect();
    let voters = match rules.settings.durability {
        Durability::Async => None,
        _ => Voters::new(1, all.without(ids[0])),
    };
    let mut world = World {
        nodes: std::array::from_fn(|node| Arc::new(Node::new(ids[node], vec![1]))),
        shared: Arc::new(Shared::default()),
        net: Arc::new(Net::default()),
        env: NOTHING_YET,
    };
    let content = LeaseContent {
        holder: Some(ids[0]),
        term: Some(Term(1)),
        members: all,
        sync: Sync::only(voters),
        duration: rules.settings.lease,
        edition: Edition(0),
    };
    world.set_lease(Some(content));
    world
}

/// Everything on its way arrives, and a tick passes.
fn settled(world: &World, rules: &Rules) -> Result<World, Violation> {
    let mut world = world.clone();
    while let Some(next) = without_fault(&world, rules) {
        world = apply(&world, next, rules).map_err(|(_, violation)| violation)?;
    }
    apply(&world, Move::Tick, rules).map_err(|(_, violation)| violation)
}

/// After so many ticks the first write and everything that it made young are more than L ago.
const STEADY: u8 = 16;

fn without_fault(world: &World, rules: &Rules) -> Option<Move> {
    moves(world, rules).into_iter().find(|next| *next == Move::Deliver)
}
