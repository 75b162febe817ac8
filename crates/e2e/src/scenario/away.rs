//! API server and operator go away under load, and come back.
//!
//! Nobody may notice: the primary holds office by its members' promises, so writes go on on the same server in the same term, and when
//! the API is back there is next to nothing to write. `E2E_AWAY` says for how many seconds they are away.

use std::time::Duration;

use harness::fault;
use serde_json::{Value, json};

use crate::audit::{Mark, Request};
use crate::failure::{Failure, Outcome, ensure, same};
use crate::namespace::Namespace;
use crate::output::say;
use crate::scenario::probed;
use crate::world::World;
use crate::{figures, install};

/// Longer than any tenure, so that one that depended on the API would be over.
const AWAY: Duration = Duration::from_secs(30);
const SECONDS: &str = "E2E_AWAY";
/// Writes before and after.
const AROUND: Duration = Duration::from_secs(5);
/// Whoever has something to write has written it.
const SETTLED: Duration = Duration::from_secs(30);
/// Writes of ours for a cluster to which nothing happened meanwhile.
const AT_MOST: usize = 1;

fn away() -> Duration {
    let said = std::env::var(SECONDS).ok().and_then(|said| said.parse().ok());
    said.map_or(AWAY, Duration::from_secs)
}

pub fn api_and_operator(world: &World) -> Outcome {
    let namespace = world.namespace("away")?;
    // Room for the WAL of ten busy minutes.
    namespace.ready_cluster("demo", &json!({"storage": {"size": "3Gi"}}))?;
    probed::put_client(world, &namespace)?;
    unnoticed(&namespace, "operator", || {
        scale(world, "0")?;
        std::thread::sleep(away());
        scale(world, "2")?;
        install::rolled_out(&world.target)
    })?;
    unnoticed(&namespace, "API server and operator", || {
        fault::stop_api()?;
        std::thread::sleep(away());
        Ok(fault::start_api(&world.target.layout)?)
    })?;
    install::rolled_out(&world.target)
}

fn scale(world: &World, replicas: &str) -> Outcome {
    let replicas = format!("--replicas={replicas}");
    let scale = ["-n", install::NAMESPACE, "scale", "deployment", install::OPERATOR, &replicas];
    Ok(world.target.kubectl(scale).go()?)
}

fn unnoticed(namespace: &Namespace<'_>, who: &str, meanwhile: impl FnOnce() -> Outcome) -> Outcome {
    figures::settled(namespace)?;
    let before = office(namespace)?;
    let mark = Mark::now()?;
    // A history is written once: one that is there already would be judged instead.
    let history = format!("/tmp/{}-away.jsonl", who.replace(' ', "-"));
    probed::run_by_itself(namespace, &history, AROUND + away() + AROUND)?;
    std::thread::sleep(AROUND);
    meanwhile()?;
    std::thread::sleep(AROUND + SETTLED);
    probed::ended(namespace)?;
    let requests = mark.requests()?;
    // Asking for one's own rights writes nothing.
    let asks = |request: &Request| request.right.resource == "selfsubjectaccessreviews";
    let ours = |request: &&Request| request.is_write() && !request.is_operator_lease() && !asks(request);
    let writes: Vec<_> = requests.iter().filter(ours).collect();
    let verdict = probed::verdict(namespace, &history)?;
    let gap =
        verdict["gaps"].as_array().into_iter().flatten().filter_map(|gap| gap["seconds"].as_f64()).fold(0.0, f64::max);
    say(&format!(
        "         {who} away for {} s: {} acknowledged, largest gap {gap:.2} s, {} writes of ours",
        away().as_secs(),
        verdict["writes"]["acknowledged"],
        writes.len()
    ));
    let nothing = |what: &str| verdict[what].as_array().is_some_and(Vec::is_empty);
    ensure(nothing("lies") && nothing("doubts") && nothing("takeovers"), || verdict.to_string())?;
    same("holder and term", &office(namespace)?, &before)?;
    let written: Vec<_> = writes.iter().map(|write| write.object.as_str()).collect();
    ensure(written.len() <= AT_MOST, || format!("more than {AT_MOST} write of ours: {}", written.join(", ")))
}

/// Who leads, and in which term.
fn office(namespace: &Namespace<'_>) -> Outcome<(String, Value)> {
    let lease = namespace.get(["lease", "demo"])?;
    let holder = lease["spec"]["holderIdentity"].as_str().map(str::to_owned);
    let holder = holder.ok_or_else(|| Failure::Wrong("the Lease names nobody".to_owned()))?;
    Ok((holder, lease["spec"]["leaseTransitions"].clone()))
}
