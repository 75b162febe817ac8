//! The primary's node is cut off, and somebody sits beside the primary with a session that was opened before.
//!
//! Peers let such a session commit for minutes, and lose what they acknowledged. Here two probes write, one beside the primary by its own
//! address and one outside through the Service; both histories are judged together, on the one clock that they share.

use std::time::Duration;

use harness::fault::{self, Cut};
use harness::layout::Node;
use nix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use crate::failure::{Failure, Outcome, ensure, eventually};
use crate::namespace::{COMES_UP, Namespace};
use crate::output::say;
use crate::scenario::connect::client;
use crate::scenario::probed::{PROGRAM, servers};
use crate::world::World;

/// Writes before the cut, for a session to be an old one.
const BEFORE: Duration = Duration::from_secs(5);
/// Longer than it takes until another leads.
const CUT_OFF: Duration = Duration::from_secs(20);
/// … and so long until both probes have ended.
const AFTER: Duration = Duration::from_secs(10);
const OUTSIDE: &str = "client";
const BESIDE: &str = "beside";

pub fn old_session(world: &World) -> Outcome {
    let namespace = world.namespace("beside")?;
    namespace.ready_cluster("demo", &json!({}))?;
    let primary = namespace.primary("demo")?;
    let node: Node = text(&namespace.get(["pod", &primary])?["spec"]["nodeName"]).parse().map_err(Failure::Wrong)?;
    let elsewhere = node.others().next().ok_or_else(|| Failure::Wrong("there is one node only".to_owned()))?;
    for (name, place) in [(OUTSIDE, elsewhere), (BESIDE, node)] {
        put(world, &namespace, name, place)?;
    }
    let its_address = servers(&namespace, "--direct")?;
    let its_address =
        its_address.into_iter().find(|server| server.starts_with(&format!("{primary}."))).unwrap_or_default();
    start(&namespace, OUTSIDE, "--sessions 8")?;
    start(&namespace, BESIDE, &format!("--sessions 0 --new 0 --direct {its_address}"))?;
    std::thread::sleep(BEFORE);
    let cut = now()?;
    fault::cut(node, Cut::Both)?;
    std::thread::sleep(CUT_OFF);
    // Also when something failed, or no later scenario would have its node.
    fault::heal(node)?;
    namespace.wait_ready("demo")?;
    for name in [OUTSIDE, BESIDE] {
        eventually("the probe to end", COMES_UP, || {
            let running = shell(&namespace, name, "pgrep -f '[b]ellwether-probe run' | wc -l")?;
            ensure(running == "0", || format!("{running} run in {name}"))
        })?;
    }
    judge(&namespace, &primary, cut)
}

fn judge(namespace: &Namespace<'_>, primary: &str, cut: u64) -> Outcome {
    let beside = shell(namespace, BESIDE, &format!("cat {}", history(BESIDE)))?;
    let answers: Vec<u64> = beside.lines().filter_map(acknowledged).collect();
    ensure(answers.iter().any(|at| *at < cut), || "nothing was acknowledged beside the primary".to_owned())?;
    let healed = cut + micros(CUT_OFF);
    let last = answers.iter().filter(|at| (cut..healed).contains(at)).max();
    let counted = answers.iter().filter(|at| (cut..healed).contains(at)).count();
    let seconds = last.map_or(0.0, |at| Duration::from_micros(at - cut).as_secs_f64());
    say(&format!("         beside {primary}: acknowledged for another {seconds:.2} s after the cut, {counted} rows"));
    // The other's history goes through this machine: pods on two nodes don't share files.
    let copy = format!("cat > {}", history(BESIDE));
    namespace.kubectl(["exec", "-i", OUTSIDE, "--", "sh", "-c", &copy]).input(beside).go()?;
    let instances = servers(namespace, "--instance")?.join(" ");
    let histories = format!("{} {}", history(OUTSIDE), history(BESIDE));
    let check = format!("{PROGRAM} check {histories} --secret /app --least-rate 1 {instances}");
    let verdict = namespace.kubectl(["exec", OUTSIDE, "--", "sh", "-c", &check]).within(COMES_UP).output()?;
    for line in verdict.lines().filter(|line| line.contains("largest gap")) {
        say(&format!("         {}", line.trim()));
    }
    ensure(verdict.contains("TRUTHFUL"), || verdict.clone())?;
    ensure(namespace.primary("demo")? != primary, || format!("{primary} still leads: nobody took over"))
}

/// When an acknowledgement came; nothing for every other line.
fn acknowledged(line: &str) -> Option<u64> {
    let event: Value = serde_json::from_str(line).ok()?;
    (event["outcome"] == "acknowledged").then(|| event["answered"].as_u64())?
}

/// A pod on that node, with the probe in it.
fn put(world: &World, namespace: &Namespace<'_>, name: &str, node: Node) -> Outcome {
    let mut pod = client(namespace, "demo");
    pod["metadata"]["name"] = name.into();
    pod["spec"]["nodeName"] = node.to_string().into();
    namespace.apply(&pod)?;
    namespace.kubectl(["wait", "--for=condition=Ready", &format!("pod/{name}"), "--timeout=50s"]).go()?;
    let program = world.target.probe.as_ref().ok_or_else(|| Failure::Wrong("there is no probe".to_owned()))?;
    Ok(namespace.kubectl(["cp", &program.display().to_string(), &format!("{name}:{PROGRAM}")]).go()?)
}

/// By itself: whoever started it is cut off from it.
fn start(namespace: &Namespace<'_>, pod: &str, options: &str) -> Outcome {
    let (length, history) = ((BEFORE + CUT_OFF + AFTER).as_secs(), history(pod));
    let run = format!("{PROGRAM} run --secret /app --duration {length}s --history {history} {options}");
    shell(namespace, pod, &format!("nohup {run} >/tmp/probe.out 2>&1 </dev/null &")).map(drop)
}

fn history(pod: &str) -> String {
    format!("/tmp/{pod}.jsonl")
}

fn shell(namespace: &Namespace<'_>, pod: &str, script: &str) -> Outcome<String> {
    Ok(namespace.kubectl(["exec", pod, "--", "sh", "-c", script]).output()?.trim().to_owned())
}

/// Microseconds of the probes' clock.
fn now() -> Outcome<u64> {
    let time = clock_gettime(ClockId::CLOCK_BOOTTIME).map_err(|errno| Failure::Wrong(errno.to_string()))?;
    Ok(micros(Duration::from(time)))
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_acknowledgements_are_counted() {
        assert_eq!(acknowledged(r#"{"event":"write","answered":7,"outcome":"acknowledged"}"#), Some(7));
        assert_eq!(acknowledged(r#"{"event":"write","answered":7,"outcome":"refused","why":"x"}"#), None);
        assert_eq!(acknowledged("not yet written to its end"), None);
    }
}
