//! Writes a violation as a story that a person can follow.

use std::fmt::{self, Write};

use bellwether_core::election::{Deadline, Message, Outcome};

use crate::act::Violation;
use crate::explore::Step;
use crate::moves::{Fault, Move};
use crate::passing::Pace;
use crate::world::{Body, NODES, NOW, Packet, World, name};

/// The whole story, one line a step.
pub fn tell(violation: &Violation, steps: &[Step]) -> String {
    let mut story = String::new();
    for (number, step) in steps.iter().enumerate() {
        let packet = match step.what {
            Move::Deliver | Move::Fault(Fault::Lose | Fault::Delay | Fault::StaleRead(_)) => {
                step.before.net.queue.front()
            }
            Move::Late(which) => step.before.net.late.get(which),
            _ => None,
        };
        let packet = packet.map(|packet| format!(": {}", said(packet))).unwrap_or_default();
        let _ = writeln!(story, "{:3}. {}{packet}", number + 1, step.what);
        if matches!(step.what, Move::Tick | Move::CatchUp(_)) {
            let _ = writeln!(story, "     (before it: {})", summary(&step.before));
        }
    }
    let _ = writeln!(story, "     {}", violation.0);
    story
}

/// What a packet says, in short.
pub fn said(packet: &Packet) -> String {
    let way = format!("{} → {}", name(usize::from(packet.from)), name(usize::from(packet.to)));
    let what = match &packet.body {
        Body::Peer { message: Message::Ask(ask), .. } => {
            format!("promise (term {}, round {})", ask.term, ask.request.0)
        }
        Body::Peer { message: Message::Grant(grant), .. } => format!("promised (round {})", grant.request.0),
        Body::Peer { message, .. } => format!("{message:?}"),
        Body::Read { .. } => "read the Lease".to_owned(),
        Body::Write { write, .. } => {
            format!("write on version {}: {:?}", write.base.0, write.content)
        }
        Body::Sight { view: None, .. } => "there is no Lease".to_owned(),
        Body::Sight { view: Some(view), .. } => format!("the Lease at version {}: {:?}", view.version.0, view.content),
        Body::Written { outcome: Outcome::Committed(view), .. } => format!("committed as version {}", view.version.0),
        Body::Written { outcome, .. } => format!("{outcome:?}"),
    };
    format!("{way}: {what}")
}

/// Where everybody stands.
fn summary(world: &World) -> String {
    let mut text = String::new();
    for node in 0..NODES {
        let it = &world.nodes[node];
        let tenure = it.agent.as_ref().and_then(|agent| agent.tenure(NOW));
        let what = match (&it.agent, tenure) {
            (None, _) => "down".to_owned(),
            (Some(_), Some(tenure)) => {
                let until = match tenure.until {
                    Deadline::At(at) => format!("for {}", at.since(NOW).0),
                    Deadline::Never => "for ever".to_owned(),
                };
                format!("leads term {} {until}", tenure.term)
            }
            (Some(agent), None) => {
                let promised = agent.promise().map_or(0, |promise| promise.until.since(NOW).0);
                format!("{:?}, promised for {promised}", agent.phase())
            }
        };
        let frozen = if it.frozen { ", frozen" } else { "" };
        let _ = write!(text, "{}{} {what}{frozen}, log {:?}", if node > 0 { "; " } else { "" }, name(node), it.log);
    }
    text
}

fn channels(cut: u16) -> String {
    let ends = NODES + 1;
    let ways: Vec<_> = (0..ends * ends)
        .filter(|bit| cut & (1 << bit) != 0)
        .map(|bit| format!("{} → {}", name(bit / ends), name(bit % ends)))
        .collect();
    ways.join(", ")
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deliver => write!(f, "arrives"),
            Self::Tick => write!(f, "a tick passes"),
            Self::Late(_) => write!(f, "arrives late"),
            Self::Restart(node) => write!(f, "{} restarts", name(*node)),
            Self::Thaw(node) => write!(f, "{} thaws", name(*node)),
            Self::Heal(_, ways) => write!(f, "open again: {}", channels(*ways)),
            Self::Recreate => write!(f, "the operator makes the Lease again"),
            Self::Commit(node, reached) => {
                let standbys: Vec<_> = (0..NODES).filter(|to| reached & (1 << to) != 0).map(name).collect();
                write!(f, "a client commits on {}; at once it is on [{}]", name(*node), standbys.join(", "))
            }
            Self::CatchUp(those) => {
                let those: Vec<_> = (0..NODES).filter(|node| those & (1 << node) != 0).map(name).collect();
                write!(f, "one tick passes, and {} lags no longer", those.join(", "))
            }
            Self::Switchover(node) => write!(f, "a switchover from {} is asked for", name(*node)),
            Self::Force(node) => write!(f, "a person wants {} to lead by force", name(*node)),
            Self::Fault(fault) => write!(f, "FAULT: {fault}"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lose => write!(f, "lost"),
            Self::Delay => write!(f, "held back"),
            Self::Cut(cut) => write!(f, "cut {}", channels(*cut)),
            Self::StaleRead(_) => write!(f, "answered from the past"),
            Self::Crash(node) => write!(f, "{} crashes", name(*node)),
            Self::PostgresCrash(node) => write!(f, "PostgreSQL on {} crashes", name(*node)),
            Self::Freeze(node) => write!(f, "{} freezes", name(*node)),
            Self::Drift(Pace::Even) => write!(f, "a tick passes"),
            Self::Drift(Pace::Fast(node)) => write!(f, "a tick passes, two for {}", name(*node)),
            Self::Drift(Pace::Slow(node)) => write!(f, "a tick passes, none for {}", name(*node)),
            Self::DeleteLease => write!(f, "the Lease is deleted"),
            Self::RestoreLease(_) => write!(f, "the Lease is put back to an earlier state"),
            Self::CrashAll => write!(f, "all crash at once"),
            Self::GiveUpCopy(node) => write!(f, "{} gives its copy up, to clone it anew", name(*node)),
            Self::Replace(node) => write!(f, "{} is lost with its volume and made again", name(*node)),
        }
    }
}
