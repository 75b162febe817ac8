//! Chaos on real nodes: what `bellwether-chaos` does on one machine, done to pods, nodes and networks, by the same plan and into the same
//! records.

use std::path::Path;
use std::time::{Duration, Instant};

use ::chaos::fault::{Fault, overloaded_for};
use ::chaos::record::{Record, Told};
use ::chaos::{plan, record, report};
use bellwether_core::instance::switchover::ANY;
use bellwether_core::lease_object::SWITCHOVER;
use harness::Layout;
use harness::fault::{self, Cut, ObjectName};
use harness::layout::Node;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::failure::{Failure, Outcome, ensure, eventually};
use crate::namespace::{COMES_UP, Namespace};
use crate::output::say;
use crate::scenario::connect::in_client;
use crate::scenario::probed;
use crate::world::World;

/// Writes before a fault, and after it, last about this long.
const BEFORE: Duration = Duration::from_secs(4);
const AFTER: Duration = Duration::from_secs(12);
/// How long what lasts lasts: longer than everything that waits for it to be over.
const LASTS: Duration = Duration::from_secs(20);
/// A primary that can reach the API but no standby lets others try after ten seconds, and they after L more.
const CUT_FROM_STANDBYS: Duration = Duration::from_secs(30);
/// More sessions than an application may have.
const SESSIONS: usize = 120;

/// How long Kubernetes' own watches may take to come back after the API server: a failover before that reaches no node's proxy.
const RELISTED: Duration = Duration::from_secs(40);

/// What is to be done.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// For how long. A round that has begun is ended.
    pub limit: Duration,
    /// No more rounds than this.
    pub rounds: Option<u64>,
    /// Chooses what is done. The same seed goes on where its records end.
    pub seed: u64,
    /// Only these, in turn.
    pub faults: &'a [Fault],
    /// Where records are appended.
    pub records: &'a Path,
}

/// Hurts a cluster of three. Answers whether nothing is proven against it.
pub fn run(world: &World, wanted: &Wanted<'_>) -> Outcome<bool> {
    let io = |error: std::io::Error| Failure::Wrong(format!("{}: {error}", wanted.records.display()));
    let before = record::read(wanted.records).map_err(io)?.into_iter().filter(|record| record.seed == wanted.seed);
    let first = before.map(|record| record.round + 1).max().unwrap_or(0);
    world.with_chart()?;
    let namespace = world.namespace("chaos")?;
    // Each takeover begins a copy of the segment that is being written, and a small volume has no room for dozens of them in minutes.
    namespace.ready_cluster("demo", &json!({"storage": {"size": "4Gi"}}))?;
    probed::put_client(world, &namespace)?;
    let (began, mut done) = (Instant::now(), vec![]);
    for number in first.. {
        if began.elapsed() > wanted.limit || wanted.rounds.is_some_and(|rounds| done.len() as u64 >= rounds) {
            break;
        }
        let faults = match wanted.faults.get(usize::try_from(number).unwrap_or(0) % wanted.faults.len().max(1)) {
            Some(fault) => vec![*fault],
            None => plan::round(wanted.seed, number, &Fault::NODES).faults,
        };
        let record = round(world, &namespace, wanted.seed, number, faults)?;
        record.append(wanted.records).map_err(io)?;
        say(&record.line());
        done.push(record);
    }
    say(&report::table(&done));
    Ok(done.iter().all(|record| record.told.is_clean()))
}

fn round(world: &World, namespace: &Namespace<'_>, seed: u64, number: u64, faults: Vec<Fault>) -> Outcome<Record> {
    let at = jiff::Timestamp::now();
    namespace.wait_ready("demo")?;
    if faults.iter().any(|fault| fault.is_of_a_node()) {
        away_from_the_client(namespace)?;
    }
    let before = namespace.primary("demo")?;
    let length = BEFORE + faults.iter().map(|fault| AFTER + lasts(*fault)).sum::<Duration>();
    let history = format!("/tmp/{seed}-{number}-{}.jsonl", at.as_second());
    let started = Instant::now();
    probed::run_by_itself(namespace, &history, length)?;
    std::thread::sleep(BEFORE);
    let hurt = Instant::now();
    for (index, fault) in faults.iter().enumerate() {
        // The status of a cluster is kept by the API, which may be away.
        let primary = if index == 0 { before.clone() } else { namespace.primary("demo").unwrap_or(before.clone()) };
        harm(world, namespace, &primary, *fault)?;
    }
    std::thread::sleep(length.saturating_sub(started.elapsed()));
    namespace.wait_ready("demo")?;
    let ready = hurt.elapsed();
    probed::ended(namespace)?;
    if faults.contains(&Fault::ApiFrozen) {
        std::thread::sleep(RELISTED);
    }
    let verdict = probed::verdict(namespace, &history)?;
    in_client(namespace, &format!("rm {history}"))?;
    Ok(Record {
        home: "nodes".to_owned(),
        seed,
        round: number,
        at,
        faults,
        before,
        after: namespace.primary("demo")?,
        told: Told::read(&verdict),
        ready_seconds: ready.as_secs_f64(),
    })
}

/// Its guard's command line ends with the same words.
fn is_postmaster(command: &str) -> bool {
    command.split_whitespace().next().is_some_and(|program| program.ends_with("/bin/postgres"))
}

/// How long it lasts.
fn lasts(fault: Fault) -> Duration {
    match fault {
        Fault::CutFromStandbys => CUT_FROM_STANDBYS,
        Fault::ApiFrozen => LASTS,
        Fault::Overload => overloaded_for(),
        of_a_node if of_a_node.is_of_a_node() => LASTS,
        _ => Duration::ZERO,
    }
}

fn node_of(namespace: &Namespace<'_>, pod: &str) -> Outcome<Node> {
    let node = namespace.get(["pod", pod])?["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
    node.parse().map_err(Failure::Wrong)
}

/// Whoever is cut off with the primary sees no gap: another leads first, on another node.
fn away_from_the_client(namespace: &Namespace<'_>) -> Outcome {
    let primary = namespace.primary("demo")?;
    let here = node_of(namespace, "client")?;
    if node_of(namespace, &primary)? != here {
        return Ok(());
    }
    namespace.kubectl(["delete", "pod", &primary]).go()?;
    eventually("a primary on another node", COMES_UP, || {
        let primary = namespace.primary("demo")?;
        ensure(node_of(namespace, &primary)? != here, || format!("{primary} leads"))
    })?;
    namespace.wait_ready("demo")
}

/// Does it; what lasts is over when this returns.
fn harm(world: &World, namespace: &Namespace<'_>, primary: &str, fault: Fault) -> Outcome {
    let layout = &world.target.layout;
    let pod = ObjectName { namespace: namespace.name.clone(), name: primary.to_owned() };
    match fault {
        Fault::PostmasterKilled => {
            let processes = fault::processes(layout, &pod, None)?;
            let postmaster = processes.iter().find(|process| is_postmaster(&process.command));
            kill_now(postmaster.ok_or_else(|| Failure::Wrong(format!("{primary} has no postmaster")))?.pid)
        }
        Fault::AgentKilled => Ok(fault::kill_container(layout, &pod, None)?),
        Fault::AllKilled => {
            let names = namespace.names(["pods", "-l", "bellwether.dev/cluster=demo"])?;
            let agents = names.into_iter().map(|name| agent(layout, &ObjectName { name, ..pod.clone() }));
            // Found first, then killed within a moment: looking for one takes longer than its restart.
            agents.collect::<Outcome<Vec<i32>>>()?.into_iter().try_for_each(kill_now)
        }
        Fault::Overload => overload(namespace),
        Fault::PodDeleted => Ok(namespace.kubectl(["delete", "pod", primary, "--wait=false"]).go()?),
        Fault::PodDeletedByForce => {
            Ok(namespace.kubectl(["delete", "pod", primary, "--force", "--grace-period=0"]).go()?)
        }
        Fault::Switchover => {
            let request = format!("{SWITCHOVER}={ANY}");
            Ok(namespace.kubectl(["annotate", "lease", "demo", &request]).go()?)
        }
        Fault::ApiFrozen => {
            fault::stop_api()?;
            std::thread::sleep(LASTS);
            Ok(fault::start_api(layout)?)
        }
        Fault::NodeCutOff => cut_for_a_while(node_of(namespace, primary)?, &[Cut::Both], fault),
        Fault::CutFromApi => cut_for_a_while(node_of(namespace, primary)?, &[Cut::Api], fault),
        Fault::CutFromStandbys => {
            let node = node_of(namespace, primary)?;
            cut_for_a_while(node, &node.others().map(Cut::From).collect::<Vec<_>>(), fault)
        }
        Fault::StandbyNodeCutOff => {
            let kept = [node_of(namespace, primary)?, node_of(namespace, "client")?];
            let free = Node::ALL.into_iter().find(|node| !kept.contains(node));
            let node = free.ok_or_else(|| Failure::Wrong("no node is without primary and client".to_owned()))?;
            cut_for_a_while(node, &[Cut::Both], fault)
        }
        Fault::NodeFrozen => {
            let node = node_of(namespace, primary)?;
            fault::freeze(node)?;
            std::thread::sleep(lasts(fault));
            Ok(fault::thaw(node)?)
        }
        Fault::NodeDrained => {
            let node = node_of(namespace, primary)?;
            let drained = fault::drain(layout, node, COMES_UP);
            // Back into service also when it failed, or no later round would begin.
            fault::uncordon(layout, node)?;
            Ok(drained?)
        }
        other => Err(Failure::Wrong(format!("{} is not done to nodes", other.name()))),
    }
}

/// PID 1 of its container.
fn agent(layout: &Layout, pod: &ObjectName) -> Outcome<i32> {
    let processes = fault::processes(layout, pod, None)?;
    let first = processes.iter().find(|process| process.first);
    Ok(first.ok_or_else(|| Failure::Wrong(format!("{pod} has no agent")))?.pid)
}

fn kill_now(pid: i32) -> Outcome {
    kill(Pid::from_raw(pid), Signal::SIGKILL).map_err(|errno| Failure::Wrong(format!("process {pid}: {errno}")))
}

fn cut_for_a_while(node: Node, cuts: &[Cut], fault: Fault) -> Outcome {
    let cut = cuts.iter().try_for_each(|cut| fault::cut(node, *cut));
    if cut.is_ok() {
        std::thread::sleep(lasts(fault));
    }
    // Also when it failed half-way, or no later round would begin.
    fault::heal(node)?;
    Ok(cut?)
}

/// Everybody who is let in computes.
fn overload(namespace: &Namespace<'_>) -> Outcome {
    let lasting = overloaded_for();
    let seconds = lasting.as_secs();
    let compute = format!(
        "do $$ declare until timestamptz := clock_timestamp() + make_interval(secs => {seconds}); \
         begin while clock_timestamp() < until loop perform 1; end loop; end $$"
    );
    let session = format!("psql \"$(cat /app/uri)\" -c '{compute}' >/dev/null 2>&1 </dev/null &");
    in_client(namespace, &format!("for i in $(seq {SESSIONS}); do {session} done"))?;
    std::thread::sleep(lasting);
    Ok(())
}
