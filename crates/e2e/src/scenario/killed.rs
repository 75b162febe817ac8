//! The operator is killed at random points of a creation. Progress is read from what exists, so whoever comes next goes on from there.

use std::time::{Duration, Instant};

use harness::fault::{self, ObjectName};
use serde_json::{Value, json};

use crate::failure::{Outcome, same};
use crate::install;
use crate::output::say;
use crate::target::Home;
use crate::world::World;

/// How often it is tried.
const ROUNDS: u64 = 4;
/// All of a creation's writes happen within this.
const WINDOW_MILLISECONDS: u64 = 1500;

pub fn during_creation(world: &World) -> Outcome {
    let namespace = world.namespace("killed")?;
    let mut moments = vec![];
    for round in 0..ROUNDS {
        let name = format!("round-{round}");
        let moment = Duration::from_millis(world.chance(round, WINDOW_MILLISECONDS));
        let applied = Instant::now();
        namespace.cluster(&name, &json!({"replicas": 2}))?;
        // The moment is what is tested, not a condition: it is chosen by the seed.
        std::thread::sleep(moment.saturating_sub(applied.elapsed()));
        kill_all(world)?;
        moments.push(format!("{} ms", moment.as_millis()));
    }
    say(&format!("         killed {} after the start of a creation; E2E_SEED={}", moments.join(", "), world.seed));
    for round in 0..ROUNDS {
        let name = format!("round-{round}");
        namespace.wait_ready(&name)?;
        let selector = format!("bellwether.dev/cluster={name}");
        for kind in ["pods", "pvc"] {
            same(kind, namespace.names([kind, "-l", &selector])?.len(), 2)?;
        }
    }
    install::rolled_out(&world.target)
}

/// Ends every operator without a word of warning. Their pods are removed as well: the Deployment then makes new ones at once, where a
/// kubelet would wait ever longer before it restarts a container.
fn kill_all(world: &World) -> Outcome {
    let pods = install::pods(&world.target)?;
    let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    for pod in &pods {
        if world.target.home == Home::Harness && pod["status"]["phase"] == "Running" {
            let object = ObjectName { namespace: install::NAMESPACE.to_owned(), name: name(pod) };
            // A container that has not started, or has just ended, has no process: as dead as it should be.
            let _ = fault::kill_container(&world.target.layout, &object, None);
        }
    }
    for pod in &pods {
        let delete = [
            "-n",
            install::NAMESPACE,
            "delete",
            "pod",
            &name(pod),
            "--force",
            "--grace-period=0",
            "--ignore-not-found",
        ];
        world.target.kubectl(delete).go()?;
    }
    Ok(())
}
