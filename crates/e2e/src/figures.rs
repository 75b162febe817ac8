//! Figures: how long a cluster takes to come up, how much memory our processes take, how often they write to the API. Printed;
//! `docs/e2e.md` holds those that somebody measured.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use harness::fault::{self, ObjectName};
use serde_json::json;

use crate::audit::{Account, Mark};
use crate::failure::{Outcome, ensure, eventually, same};
use crate::install;
use crate::namespace::{self, Namespace};
use crate::output::say;
use crate::world::World;

/// How long a record that stays as it is counts as settled: longer than any step of a change of voters takes.
const SETTLED_FOR: Duration = Duration::from_secs(8);

/// Measures and prints.
pub fn measure(world: &World, creations: u32, idle: Duration, load: Duration) -> Outcome {
    world.with_chart()?;
    if creations > 0 {
        apply_to_ready(world, creations)?;
    }
    let namespace = world.namespace("figures")?;
    // Room for the WAL of ten busy minutes, of which PostgreSQL keeps a gigabyte.
    namespace.ready_cluster("demo", &json!({"storage": {"size": "3Gi"}}))?;
    memory(world, &namespace)?;
    settled(&namespace)?;
    let at_idle = writes_during(&format!("{} idle seconds", idle.as_secs()), || {
        thread::sleep(idle);
        Ok(())
    })?;
    if !load.is_zero() {
        let what = format!("{} seconds of pgbench", load.as_secs());
        let under_load = writes_during(&what, || pgbench(&namespace, load))?;
        same("writes, idle and under load", (at_idle, under_load), (0, 0))?;
        memory(world, &namespace)?;
    }
    namespace::delete(&world.target, &namespace.name)
}

/// From `kubectl apply` to `Ready`, and to all three instances streaming; images are on the nodes.
fn apply_to_ready(world: &World, creations: u32) -> Outcome {
    let (mut ready, mut complete) = (vec![], vec![]);
    for _ in 0..creations {
        let namespace = world.namespace("figures")?;
        let began = Instant::now();
        namespace.cluster("demo", &json!({}))?;
        namespace.wait("demo", "condition=Ready")?;
        ready.push(began.elapsed().as_secs_f64());
        namespace.wait("demo", "jsonpath={.status.phase}=Ready")?;
        complete.push(began.elapsed().as_secs_f64());
        namespace::delete(&world.target, &namespace.name)?;
    }
    say(&format!("apply to condition Ready:         {}", summary(&mut ready)));
    say(&format!("apply to all three streaming:     {}", summary(&mut complete)));
    Ok(())
}

fn summary(seconds: &mut [f64]) -> String {
    seconds.sort_by(f64::total_cmp);
    let all = seconds.iter().map(|second| format!("{second:.1}")).collect::<Vec<_>>().join(" ");
    let median = seconds.get(seconds.len() / 2).copied().unwrap_or_default();
    format!("median {median:.1} s of {} ({all})", seconds.len())
}

/// Of each of our processes: memory of its own and its share of what it shares.
fn memory(world: &World, namespace: &Namespace<'_>) -> Outcome {
    for pod in install::pods(&world.target)? {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        say(&format!("memory of {name}: {}", ours(world, install::NAMESPACE, &name)?));
    }
    for name in namespace.names(["pods", "-l", "bellwether.dev/cluster=demo"])? {
        say(&format!("memory of {name}: {}", ours(world, &namespace.name, &name)?));
    }
    Ok(())
}

fn ours(world: &World, namespace: &str, pod: &str) -> Outcome<String> {
    let object = ObjectName { namespace: namespace.to_owned(), name: pod.to_owned() };
    let processes = fault::processes(&world.target.layout, &object, None)?;
    let ours = processes.iter().filter(|process| process.command.contains("bellwether "));
    let each = ours.filter_map(|process| {
        let role = process.command.split_whitespace().nth(1)?;
        Some(format!("{role} {:.1} MiB", process.memory()? as f64 / f64::from(1 << 20)))
    });
    Ok(each.collect::<Vec<_>>().join(", "))
}

/// A cluster that has just become Ready still writes down whom commits wait for: idle begins when the election's record has stayed as it
/// is for a while.
pub fn settled(namespace: &Namespace<'_>) -> Outcome {
    let record = || {
        let path = "jsonpath={.metadata.resourceVersion}";
        namespace.kubectl(["get", "lease", "demo", "-o", path]).output()
    };
    let mut before = record()?;
    eventually("the election's record to settle", Duration::from_secs(60), || {
        thread::sleep(SETTLED_FOR);
        let now = record()?;
        let same = now == before;
        let changed = format!("it changed from version {before} to {now}");
        before = now;
        ensure(same, || changed.clone())
    })
}

/// Counts what our accounts write meanwhile, by what they wrote, and gives how often, the operators' own Lease apart.
fn writes_during(what: &str, meanwhile: impl FnOnce() -> Outcome) -> Outcome<usize> {
    let mark = Mark::now()?;
    meanwhile()?;
    let requests = mark.requests()?;
    let writes: Vec<_> = requests.iter().filter(|request| request.is_write()).collect();
    let lease = writes.iter().filter(|request| request.is_operator_lease()).count();
    let by = |account| writes.iter().filter(|w| w.right.account == account && !w.is_operator_lease()).count();
    let (operator, agents) = (by(Account::Operator), by(Account::Agent));
    say(&format!(
        "API writes in {what}: operator {operator}, agents {agents}, and {lease} of the operators' own Lease"
    ));
    let mut kinds = BTreeMap::new();
    for write in writes.iter().filter(|write| !write.is_operator_lease()) {
        *kinds.entry(write.object.as_str()).or_insert(0) += 1;
    }
    kinds.iter().for_each(|(object, count)| say(&format!("  {count} × {object}")));
    Ok(operator + agents)
}

/// Four clients that write as fast as they can, through the primary's socket.
fn pgbench(namespace: &Namespace<'_>, duration: Duration) -> Outcome {
    let primary = namespace.primary("demo")?;
    let run = |options: &str| {
        let script = format!("cd /tmp; pgbench -h /run/bellwether/socket -U postgres {options} app");
        let inside = ["exec", &primary, "-c", "postgres", "--", "sh", "-c", &script];
        namespace.kubectl(inside).within(duration + Duration::from_secs(120)).output()
    };
    run("-i -s 5 -q")?;
    let printed = run(&format!("-c 4 -j 1 -T {}", duration.as_secs()))?;
    let rate = printed.lines().find(|line| line.starts_with("tps"));
    ensure(rate.is_some(), || format!("pgbench did not say how fast it was: {printed}"))?;
    say(&format!("pgbench: {}", rate.unwrap_or_default()));
    Ok(())
}
