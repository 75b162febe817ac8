//! Writes a violation as a story that a person can follow.

use std::fmt::Write;

use bellwether_core::election::Deadline;

use crate::act::Violation;
use crate::explore::Step;
use crate::moves::{Fault, Move};
use crate::world::{NODES, World, name};

/// The whole story, one line a step.
pub fn tell(violation: &Violation, steps: &[Step]) -> String {
    let mut story = String::new();
    for (number, step) in steps.iter().enumerate() {
        let packet = match step.what {
            Move::Deliver(at) | Move::Fault(Fault::Lose(at) | Fault::Delay(at) | Fault::StaleRead(at)) => {
                step.before.net.channels[at].front().map(|packet| format!("{packet:?}"))
            }
            Move::Late(which) => step.before.net.late.get(which).map(|(_, packet)| format!("{packet:?}")),
            _ => None,
        };
        let _ = writeln!(
            story,
            "{:3}. {}{}",
            number + 1,
            step.what,
            packet.map(|text| format!(": {text}")).unwrap_or_default()
        );
        if step.what == Move::Tick {
            let _ = writeln!(story, "     (before it: {})", summary(&step.before));
        }
    }
    let _ = writeln!(story, "     {}", violation.0);
    story
}

/// Where everybody stands.
fn summary(world: &World) -> String {
    let mut text = format!("time {}", world.env.time);
    for node in 0..NODES {
        let it = &world.nodes[node];
        let tenure = it.agent.as_ref().and_then(|agent| agent.tenure(world.clock(node)));
        let what = match (&it.agent, tenure) {
            (None, _) => "down".to_owned(),
            (Some(_), Some(tenure)) => {
                let until = match tenure.until {
                    Deadline::At(at) => at.0.to_string(),
                    Deadline::Never => "ever".to_owned(),
                };
                format!("leads term {} until {until}", tenure.term)
            }
            (Some(agent), None) => {
                format!("{:?}, promised until {:?}", agent.phase(), agent.promise().map(|p| p.until.0))
            }
        };
        let frozen = if it.frozen { ", frozen" } else { "" };
        let _ = write!(text, "; {} {what}{frozen}, log {:?}", name(node), it.log);
    }
    text
}
