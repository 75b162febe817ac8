//! The probe writes from another pod while a primary is killed, and catches every lie that was told.
//!
//! It runs where applications do: through the Service and by pod address, over TLS that it verifies. Its verdict is what is asserted;
//! it is "truthful" only when every acknowledged row is on every instance and the load was there before and after.

use std::time::Duration;

use harness::command::Started;
use harness::fault::{self, ObjectName};
use serde_json::{Value, json};

use crate::failure::{Failure, Outcome, ensure, eventually};
use crate::namespace::{COMES_UP, Namespace};
use crate::output::say;
use crate::scenario::connect::{client, in_client};
use crate::target::Home;
use crate::world::World;

/// Rows on each side of a fault: several seconds of the load that a verdict asks for.
const ROWS: u64 = 1000;
/// Where the probe is in its pod.
pub const PROGRAM: &str = "/tmp/bellwether-probe";

/// How the primary is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// PID 1 of its container, without a warning: the pod keeps its address.
    Container,
    /// The pod, without a grace period: the instance comes back at another address.
    Pod,
}

pub fn primary_killed(world: &World) -> Outcome {
    let namespace = world.namespace("probed")?;
    namespace.ready_cluster("demo", &json!({}))?;
    put_client(world, &namespace)?;
    let faults: &[Fault] = match world.target.home {
        Home::Harness => &[Fault::Container, Fault::Pod],
        Home::Foreign => &[Fault::Pod],
    };
    for fault in faults {
        watched(world, &namespace, *fault)?;
    }
    Ok(())
}

/// A pod with the probe in it.
pub fn put_client(world: &World, namespace: &Namespace<'_>) -> Outcome {
    namespace.apply(&client(namespace, "demo"))?;
    namespace.kubectl(["wait", "--for=condition=Ready", "pod/client", "--timeout=50s"]).go()?;
    let program = world.target.probe.as_ref().ok_or_else(|| Failure::Wrong("there is no probe".to_owned()))?;
    Ok(namespace.kubectl(["cp", &program.display().to_string(), &format!("client:{PROGRAM}")]).go()?)
}

/// The probe writes for this long, by itself: a command that is kept open would end with the API server.
pub fn run_by_itself(namespace: &Namespace<'_>, history: &str, length: Duration) -> Outcome {
    let servers = eventually("every pod", COMES_UP, || servers(namespace, "--direct"))?.join(" ");
    let run = format!("{PROGRAM} run --secret /app --duration {}s --history {history} {servers}", length.as_secs());
    in_client(namespace, &format!("nohup {run} >/tmp/probe.out 2>&1 </dev/null &")).map(drop)
}

/// Waits until it has.
pub fn ended(namespace: &Namespace<'_>) -> Outcome {
    eventually("the probe to end", COMES_UP, || {
        // Brackets, so that the shell that asks is not among them.
        let running = in_client(namespace, "pgrep -f '[b]ellwether-probe run' | wc -l")?;
        ensure(running == "0", || format!("{running} run"))
    })
}

/// What is proven against the servers. How much load a busy machine leaves room for is not the question.
pub fn verdict(namespace: &Namespace<'_>, history: &str) -> Outcome<Value> {
    let servers = servers(namespace, "--instance")?.join(" ");
    let check = format!("{PROGRAM} check {history} --secret /app --least-rate 1 --json {servers} || true");
    let text = namespace.kubectl(["exec", "client", "--", "sh", "-c", &check]).within(COMES_UP).output()?;
    serde_json::from_str(&text).map_err(|error| Failure::Wrong(format!("no verdict: {error}: {text}")))
}

fn watched(world: &World, namespace: &Namespace<'_>, fault: Fault) -> Outcome {
    let history = format!("/tmp/{fault:?}.jsonl");
    let mut probe = start(namespace, &history)?;
    let primary = namespace.primary("demo")?;
    let before = rows(namespace, &primary).unwrap_or_default();
    more_than(namespace, &primary, before + ROWS)?;
    probe.tell(&format!("{fault:?} of {primary} killed"))?;
    kill(world, namespace, &primary, fault)?;
    // It leads again, or another does.
    let (primary, after) = eventually("a primary that answers", COMES_UP, || {
        let primary = namespace.primary("demo")?;
        let rows = rows(namespace, &primary)?;
        Ok((primary, rows))
    })?;
    more_than(namespace, &primary, after + ROWS)?;
    probe.finish(Duration::from_secs(30))?;
    namespace.wait_ready("demo")?;

    let verdict = check(namespace, &history)?;
    for line in verdict.lines().filter(|line| ["load:", "largest gap"].iter().any(|word| line.contains(word))) {
        say(&format!("         {fault:?}: {}", line.trim()));
    }
    ensure(verdict.contains("TRUTHFUL"), || verdict.clone())?;
    let (acknowledged, with_term) = terms(namespace, &history)?;
    ensure(acknowledged > ROWS && acknowledged == with_term, || {
        format!("of {acknowledged} acknowledged writes {with_term} say in which term they were written")
    })
}

/// How many writes were acknowledged, and how many of these say the term by which their server led.
fn terms(namespace: &Namespace<'_>, history: &str) -> Outcome<(u64, u64)> {
    let acknowledged = format!("grep '\"outcome\":\"acknowledged\"' {history}");
    let counted = format!("{acknowledged} | wc -l; {acknowledged} | grep -c '\"term\":[0-9]'");
    let counted = namespace.kubectl(["exec", "client", "--", "sh", "-c", &counted]).output()?;
    let numbers: Vec<u64> = counted.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    match numbers[..] {
        [all, with_term] => Ok((all, with_term)),
        _ => Err(Failure::Wrong(format!("no counts: {counted:?}"))),
    }
}

/// Starts writers through the Service, and one by the address of each pod.
fn start(namespace: &Namespace<'_>, history: &str) -> Outcome<Started> {
    let servers = servers(namespace, "--direct")?;
    let fixed =
        ["exec", "-i", "client", "--", PROGRAM, "run", "--secret", "/app", "--until-stdin-closes", "--sessions", "16"];
    let words = fixed.into_iter().chain(["--history", history]).chain(servers.iter().map(String::as_str));
    Ok(namespace.kubectl(words).start()?)
}

/// The probe's verdict; an exit code other than that of "truthful" is a failure that shows it.
fn check(namespace: &Namespace<'_>, history: &str) -> Outcome<String> {
    let servers = servers(namespace, "--instance")?;
    let fixed = ["exec", "client", "--", PROGRAM, "check", history, "--secret", "/app"];
    let words = fixed.into_iter().chain(servers.iter().map(String::as_str));
    Ok(namespace.kubectl(words).within(Duration::from_secs(120)).output()?)
}

/// Each instance under the name that its certificate covers, at the address that its pod has now.
pub fn servers(namespace: &Namespace<'_>, option: &str) -> Outcome<Vec<String>> {
    let pods = namespace.list(["pods", "-l", "bellwether.dev/cluster=demo"])?;
    ensure(pods.len() == 3, || format!("{} pods", pods.len()))?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let server = |pod: &Value| {
        let host = format!("{}.demo-pods.{}.svc", text(&pod["metadata"]["name"]), namespace.name);
        [option.to_owned(), format!("{host}@{}", text(&pod["status"]["podIP"]))]
    };
    Ok(pods.iter().flat_map(server).collect())
}

fn kill(world: &World, namespace: &Namespace<'_>, pod: &str, fault: Fault) -> Outcome {
    match fault {
        Fault::Container => {
            let object = ObjectName { namespace: namespace.name.clone(), name: pod.to_owned() };
            Ok(fault::kill_container(&world.target.layout, &object, None)?)
        }
        Fault::Pod => Ok(namespace.kubectl(["delete", "pod", pod, "--force", "--grace-period=0"]).go()?),
    }
}

fn rows(namespace: &Namespace<'_>, primary: &str) -> Outcome<u64> {
    let counted = namespace.sql(primary, "app", "select count(*) from bellwether_probe")?;
    counted.parse().map_err(|_| Failure::Wrong(format!("no count: {counted:?}")))
}

fn more_than(namespace: &Namespace<'_>, primary: &str, wanted: u64) -> Outcome {
    eventually("the probe's rows", COMES_UP, || {
        let seen = rows(namespace, primary)?;
        ensure(seen >= wanted, || format!("{seen} of {wanted} rows"))
    })
}
