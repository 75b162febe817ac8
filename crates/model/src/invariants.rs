//! What must hold in every state: INV-1 and INV-3. INV-2 is checked whenever somebody begins to lead.

use std::sync::Arc;

use crate::act::{Rules, Violation};
use crate::world::{NODES, NOW, World, name};

/// Fails with the first promise that is broken.
pub fn check(world: &mut World, rules: &Rules) -> Result<(), Violation> {
    let mut holder: Option<(usize, u64)> = None;
    for node in 0..NODES {
        let tenure = world.nodes[node].agent.as_ref().and_then(|agent| agent.tenure(NOW));
        if let Some(tenure) = tenure {
            if let Some((other, term)) = holder {
                return Err(Violation(format!(
                    "INV-1: {} has tenure of term {term} and {} of term {}",
                    name(other),
                    name(node),
                    tenure.term
                )));
            }
            holder = Some((node, tenure.term.0));
        } else if world.nodes[node].writable(rules.guarded()) {
            return Err(Violation(format!("INV-3: {} accepts writes without tenure", name(node))));
        }
    }
    if let Some((node, term)) = holder {
        if term < world.shared.reigned {
            return Err(Violation(format!(
                "INV-1: {} has tenure of term {term} after term {} had it",
                name(node),
                world.shared.reigned
            )));
        }
        if term > world.shared.reigned {
            Arc::make_mut(&mut world.shared).reigned = term;
        }
    }
    Ok(())
}
