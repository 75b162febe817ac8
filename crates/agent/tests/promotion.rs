//! Whoever is being promoted is killed, at each step of it. Real agents, real PostgreSQL, the in-memory API behind a gate that stops one write.
//!
//! | step | where it is stopped |
//! |---|---|
//! | it is about to take the Lease | its write is not carried out |
//! | it has taken it, and does not know | its write is carried out, and not answered |
//! | it has said whom commits wait for, and PostgreSQL is not asked to promote | PostgreSQL's processes that would answer it are frozen |
//! | PostgreSQL is asked, and not promoted | the process that would end recovery is frozen |
//! | it is promoted, and clients are led elsewhere | the write of the endpoint is not carried out |
//! | clients are led to it, and it does not know | the write is carried out, and not answered |
//! | it is about to record whom commits wait for from now on | the write of the Lease that does is not carried out |
//! | that is recorded, and it does not know | the write is carried out, and not answered |
//!
//! Meanwhile somebody writes to whoever takes it. Afterwards one leads, `rw` leads there, every acknowledged row is everywhere, and no term is led by anybody
//! whom the Lease has left behind.

mod support;
#[path = "support/cluster.rs"]
mod support_cluster;
#[path = "support/gate.rs"]
mod support_gate;

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether_api::v1::{DurabilityMode, InstanceState};
use bellwether_core::contract::{InstanceConfig, Report, key};
use bellwether_core::lease_object::SYNC;
use bellwether_postgres::Secret;
use bellwether_postgres::sql::{Remote, Session, TlsClient};
use hyper::Method;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use support_cluster::{Cluster, NAMESPACE};
use support_gate::{Gate, Stop, Stopped};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};

const INSTANCES: [&str; 3] = ["orders-1", "orders-2", "orders-3"];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    AboutToTakeTheLease,
    HasTakenTheLease,
    HasNamedWhomCommitsWaitFor,
    HasAskedPostgresql,
    AboutToLeadClientsThere,
    HasLedClientsThere,
    AboutToRecordItsVoters,
    HasRecordedItsVoters,
}

const STEPS: [Step; 8] = [
    Step::AboutToTakeTheLease,
    Step::HasTakenTheLease,
    Step::HasNamedWhomCommitsWaitFor,
    Step::HasAskedPostgresql,
    Step::AboutToLeadClientsThere,
    Step::HasLedClientsThere,
    Step::AboutToRecordItsVoters,
    Step::HasRecordedItsVoters,
];

/// Why somebody is promoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Because {
    /// The leader's PostgreSQL was killed, and its agent hands over. It may want to lead again.
    PostgresqlDied,
    /// The leader is gone, and comes back while its successor is being killed.
    TheLeaderIsGone,
}

#[tokio::test(flavor = "multi_thread")]
async fn note_18_a_successor_that_is_killed_at_any_step_after_a_crash_is_no_end_and_no_step_back() {
    at_each_step(Because::PostgresqlDied).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn note_18_a_successor_that_is_killed_at_any_step_after_its_leader_was_lost_is_no_end_and_no_step_back() {
    at_each_step(Because::TheLeaderIsGone).await;
}

async fn at_each_step(because: Because) {
    let (mut cluster, gate) = cluster().await;
    let writer = Writer::start(&cluster);
    for step in STEPS {
        let mut before = settled(&cluster, 0).await;
        let mut killed = kill_at(step, because, &mut cluster, &gate, &writer, &before).await;
        for _ in 0..5 {
            // It was not where it could be killed: another has been promoted instead, or it has, and nobody was hurt.
            if killed.is_none() {
                before = settled(&cluster, 0).await;
                killed = kill_at(step, because, &mut cluster, &gate, &writer, &before).await;
            }
        }
        let killed = killed.unwrap_or_else(|| panic!("{step:?} was not reached six times"));
        let least = match step {
            // Whoever led may go on in its own term: nobody else had it.
            Step::AboutToTakeTheLease => before.term,
            _ => before.term + 1,
        };
        let after = settled(&cluster, least).await;
        let parted = !matches!(
            step,
            Step::AboutToTakeTheLease
                | Step::HasTakenTheLease
                | Step::HasNamedWhomCommitsWaitFor
                | Step::HasAskedPostgresql
        );
        assert!(after.timeline > before.timeline || !parted, "{step:?}: {killed} was promoted: {before:?} {after:?}");
        writer.everything_is_there(&cluster, step).await;
    }
    assert!(writer.acknowledged() > 10, "somebody wrote");
}

/// Three, of which the first leads, and commits wait for one of the others.
async fn cluster() -> (Cluster, Gate) {
    let mut config = InstanceConfig {
        instances: INSTANCES.map(str::to_owned).to_vec(),
        bootstrap_instance: "orders-1".into(),
        durability: Some(DurabilityMode::Quorum),
        ..InstanceConfig::default()
    };
    config.initdb.post_init_sql = vec!["create table kept (id text)".into(), "grant all on kept to app".into()];
    let mut cluster = Cluster::new(&config).await;
    let gate = Gate::before(&cluster.home.path().join("kubeconfig-direct")).await;
    fs::write(cluster.home.path().join("kubeconfig"), gate.kubeconfig()).unwrap();
    for instance in INSTANCES {
        cluster.start(instance, host(instance)).await;
    }
    (cluster, gate)
}

fn host(instance: &str) -> u8 {
    instance.rsplit('-').next().unwrap().parse().unwrap()
}

/// Who leads a cluster of which nothing is amiss.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Settled {
    leader: String,
    holder: String,
    term: u64,
    timeline: u32,
}

/// Waits until one leads this term or a later one and the others follow it, all by themselves.
async fn settled(cluster: &Cluster, least: u64) -> Settled {
    let mut settled = None;
    support::eventually(&format!("one leads term {least} or a later one, and two follow"), async || {
        settled = look(cluster).await.filter(|settled| settled.term >= least);
        settled.is_some()
    })
    .await;
    let settled = settled.unwrap();
    cluster.wait_for_voters(2).await;
    for instance in INSTANCES.iter().filter(|instance| **instance != settled.leader) {
        assert!(!writes(cluster, instance).await, "{instance} takes writes beside {settled:?}");
    }
    settled
}

async fn look(cluster: &Cluster) -> Option<Settled> {
    let lease = cluster.lease().await;
    let spec = lease.spec?;
    let (holder, term) = (spec.holder_identity?, u64::try_from(spec.lease_transitions?).ok()?);
    let leader = lease.metadata.annotations?.remove("bellwether.dev/leader")?;
    let leader = serde_json::from_str::<Value>(&leader).ok()?["instance"].as_str()?.to_owned();
    if cluster.endpoints().await != [cluster.address(host(&leader)).to_string()] || !writes(cluster, &leader).await {
        return None;
    }
    let said = cluster.report(&leader).await;
    let leads = |report: &Report| report.state == InstanceState::Leading && report.accepts_sql;
    let follows = |report: &Report| report.state == InstanceState::Streaming && report.accepts_sql;
    let timeline = said.timeline.filter(|_| leads(&said) && said.term == Some(term))?.0;
    for instance in INSTANCES.iter().filter(|instance| **instance != leader) {
        let report = cluster.report(instance).await;
        if !follows(&report) || report.term != Some(term) {
            return None;
        }
    }
    Some(Settled { leader, holder, term, timeline })
}

async fn writes(cluster: &Cluster, instance: &str) -> bool {
    let Ok(app) = cluster.connect(instance, host(instance), "first").await else { return false };
    app.run_script("insert into kept values ('looked')").await.is_ok()
}

/// Takes the leader away, kills whoever is to be the next at this step of its promotion, and brings both back as a kubelet does. Who was killed; nobody,
/// where it did not get to the step.
async fn kill_at(
    step: Step,
    because: Because,
    cluster: &mut Cluster,
    gate: &Gate,
    writer: &Writer,
    before: &Settled,
) -> Option<String> {
    let takes = {
        let holder = before.holder.clone();
        move |lease: &Value| lease["spec"]["holderIdentity"].as_str().is_some_and(|other| other != holder)
    };
    let leads_here = {
        let leader = before.leader.clone();
        move |slice: &Value| slice["endpoints"][0]["targetRef"]["name"].as_str().is_some_and(|other| other != leader)
    };
    let caught = match step {
        Step::AboutToTakeTheLease => gate.stop(Method::PUT, "/leases/", Stop::Request, takes),
        Step::AboutToLeadClientsThere => gate.stop(Method::PATCH, "/endpointslices/", Stop::Request, leads_here),
        Step::HasLedClientsThere => gate.stop(Method::PATCH, "/endpointslices/", Stop::Answer, leads_here),
        _ => gate.stop(Method::PUT, "/leases/", Stop::Answer, takes),
    };
    match because {
        Because::PostgresqlDied => kill(Pid::from_raw(cluster.postmaster(&before.leader)), Signal::SIGKILL).unwrap(),
        Because::TheLeaderIsGone => cluster.lose(&before.leader).await,
    }
    let stopped = within("somebody is about to be promoted", caught).await;
    let next = named(&stopped.body);
    // Held until it is killed, or goes on.
    let mut frozen = Frozen::default();
    let (reached, _held) = match step {
        Step::HasNamedWhomCommitsWaitFor => {
            // Without its postmaster nobody gets another session. If its agent is just waiting for an answer, it goes the way of one that is stuck.
            frozen.freeze(cluster.postmaster(&next));
            frozen.freeze_those(cluster, &next, "[local]");
            stopped.go_on();
            let settings = cluster.pgdata(&next).join("postgresql.conf");
            let names = format!("bellwether.term = '{}'", before.term + 1);
            (soon(|| fs::read_to_string(&settings).is_ok_and(|text| text.contains(&names))).await, None)
        }
        Step::HasAskedPostgresql => {
            frozen.freeze_those(cluster, &next, "startup");
            stopped.go_on();
            let asked = cluster.pgdata(&next).join("promote");
            (soon(|| asked.exists()).await, None)
        }
        Step::AboutToRecordItsVoters | Step::HasRecordedItsVoters => {
            let stop = if step == Step::AboutToRecordItsVoters { Stop::Request } else { Stop::Answer };
            let (holder, rule) = (stopped.body["spec"]["holderIdentity"].clone(), rule(&stopped.body));
            let records = move |lease: &Value| lease["spec"]["holderIdentity"] == holder && self::rule(lease) != rule;
            let caught = gate.stop(Method::PUT, "/leases/", stop, records);
            stopped.go_on();
            (true, Some(within("it is about to record its voters", caught).await))
        }
        _ => (true, Some(stopped)),
    };
    if matches!(step, Step::AboutToLeadClientsThere | Step::HasLedClientsThere) {
        // Whoever knows its address has it accepted there, or not: nobody may be told so who then finds it lost.
        writer.write_to(cluster, &next).await;
    }
    let reached = reached && is_at(step, cluster, before, &next).await;
    if reached {
        cluster.restart(&next, host(&next)).await;
    }
    drop(frozen);
    if because == Because::TheLeaderIsGone {
        cluster.start(&before.leader, host(&before.leader)).await;
    }
    reached.then_some(next)
}

/// What commits wait for, as a Lease records it.
fn rule(lease: &Value) -> Value {
    lease["metadata"]["annotations"][SYNC].clone()
}

/// Whether it is stopped where it should be: a test that kills it elsewhere shows something else than it says.
async fn is_at(step: Step, cluster: &Cluster, before: &Settled, next: &str) -> bool {
    let lease = serde_json::to_value(cluster.lease().await).unwrap();
    let held_by_it = named(&lease) == next;
    let settings = fs::read_to_string(cluster.pgdata(next).join("postgresql.conf")).unwrap();
    let named = settings.contains(&format!("bellwether.term = '{}'", before.term + 1));
    let history = format!("pg_wal/{:08X}.history", before.timeline + 1);
    let promoted = cluster.pgdata(next).join(history).exists();
    let led_there = cluster.endpoints().await == [cluster.address(host(next)).to_string()];
    // Clients are led there beside what it records: whichever comes first.
    let led_there = led_there && step < Step::AboutToRecordItsVoters;
    let expected = match step {
        Step::AboutToTakeTheLease => (false, false, false, false),
        Step::HasTakenTheLease => (true, false, false, false),
        Step::HasNamedWhomCommitsWaitFor | Step::HasAskedPostgresql => (true, true, false, false),
        Step::AboutToLeadClientsThere => (true, true, true, false),
        Step::HasLedClientsThere => (true, true, true, true),
        Step::AboutToRecordItsVoters | Step::HasRecordedItsVoters => (true, true, true, false),
    };
    (held_by_it, named, promoted, led_there) == expected
}

async fn within(what: &str, caught: tokio::sync::oneshot::Receiver<Stopped>) -> Stopped {
    tokio::time::timeout(support::PATIENCE, caught).await.unwrap_or_else(|_| panic!("waited in vain: {what}")).unwrap()
}

/// Whether it is so before long: an agent whose question is not answered does something else after three seconds.
async fn soon(so: impl Fn() -> bool) -> bool {
    let began = Instant::now();
    while !so() && began.elapsed() < Duration::from_secs(6) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    so()
}

/// Whose write it is.
fn named(body: &Value) -> String {
    let leader = match body["metadata"]["annotations"]["bellwether.dev/leader"].as_str() {
        Some(leader) => serde_json::from_str::<Value>(leader).unwrap()["instance"].clone(),
        None => body["endpoints"][0]["targetRef"]["name"].clone(),
    };
    leader.as_str().unwrap_or_else(|| panic!("{body}")).to_owned()
}

/// Processes that do nothing. Those that are left go on when this is dropped.
#[derive(Default)]
struct Frozen(Vec<i32>);

impl Frozen {
    fn freeze(&mut self, pid: i32) {
        // One that has just ended does nothing either.
        if kill(Pid::from_raw(pid), Signal::SIGSTOP).is_ok() {
            self.0.push(pid);
        }
    }

    /// Those of an instance's PostgreSQL whose title has this in it.
    fn freeze_those(&mut self, cluster: &Cluster, instance: &str, title: &str) {
        let before = self.0.len();
        for pid in cluster.below(instance) {
            let text = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let text = String::from_utf8_lossy(&text).into_owned();
            if text.starts_with("postgres:") && text.contains(title) {
                self.freeze(pid);
            }
        }
        assert!(self.0.len() > before, "{instance} has no process {title:?}");
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        for pid in &self.0 {
            let _ended = kill(Pid::from_raw(*pid), Signal::SIGCONT);
        }
    }
}

/// Writes to whoever takes it, and remembers what was acknowledged.
struct Writer {
    acknowledged: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Writer {
    fn start(cluster: &Cluster) -> Self {
        let places =
            INSTANCES.map(|instance| (cluster.names.host(instance, NAMESPACE), cluster.address(host(instance))));
        let ca = cluster.home.path().join("server-tls").join(key::CA_CRT);
        let acknowledged = Arc::new(Mutex::new(vec![]));
        let task = tokio::spawn({
            let acknowledged = acknowledged.clone();
            async move {
                let mut pace = tokio::time::interval(Duration::from_millis(50));
                pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
                for number in 0.. {
                    pace.tick().await;
                    let (host, address) = &places[number % places.len()];
                    let password = Secret::new("first");
                    let remote = Remote {
                        host,
                        address: (*address).into(),
                        port: 5432,
                        user: "app",
                        password: Some(&password),
                        database: "app",
                    };
                    let id = format!("row-{number}");
                    let Ok(tls) = TlsClient::anonymous(&ca) else { continue };
                    let Ok(session) = Session::tls(&remote, tls, Duration::from_secs(2)).await else { continue };
                    if session.run_script(&format!("insert into kept values ('{id}')")).await.is_ok() {
                        acknowledged.lock().unwrap().push(id);
                    }
                }
            }
        });
        Self { acknowledged, task }
    }

    /// Once, and soon: whatever is stopped meanwhile is not waited for without end.
    async fn write_to(&self, cluster: &Cluster, instance: &str) {
        let id = format!("{instance}-{}", self.acknowledged());
        let patience = Duration::from_secs(2);
        let written = async {
            let app = cluster.patient(instance, host(instance), "first", patience).await?;
            app.run_script(&format!("insert into kept values ('{id}')")).await
        };
        if matches!(tokio::time::timeout(patience, written).await, Ok(Ok(()))) {
            self.acknowledged.lock().unwrap().push(id);
        }
    }

    fn acknowledged(&self) -> usize {
        self.acknowledged.lock().unwrap().len()
    }

    async fn everything_is_there(&self, cluster: &Cluster, step: Step) {
        let rows = self.acknowledged.lock().unwrap().join(",");
        let missing = format!(
            "do $$ begin assert (select count(*) from (select unnest('{{{rows}}}'::text[]) except select id from kept) as missing) = 0; end $$"
        );
        for instance in INSTANCES {
            support::eventually(&format!("{step:?}: {instance} has every acknowledged row"), async || {
                let Ok(app) = cluster.connect(instance, host(instance), "first").await else { return false };
                app.run_script(&missing).await.is_ok()
            })
            .await;
        }
    }
}
