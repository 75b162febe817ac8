//! The harness on itself, for real: a workload on three nodes, every fault seen to bite and to heal, and nothing left
//! behind, also when a start was killed half-way.
//!
//! Needs root and minutes, and there is one cluster a machine: `cargo test -p harness --test cluster -- --ignored
//! --test-threads=1`. It refuses to run when a cluster is up, because it would take it down.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use harness::command::until;
use harness::fault::{self, Cut, ObjectName};
use harness::kubectl::{apply, get, kubectl};
use harness::layout::{API_PORT, CONTROL_ADDRESS, HOST_ADDRESS, Node, Place, state};
use harness::{Error, Layout, down, inventory, up};
use nix::sys::signal::Signal;

const BINARY: &str = env!("CARGO_BIN_EXE_harness");
const MINUTES: Duration = Duration::from_secs(180);
const PORT: u16 = 5432;

fn note(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// What is there now and was not before.
fn left_behind(before: &BTreeSet<String>) -> Vec<String> {
    inventory::listing().unwrap().difference(before).cloned().collect()
}

fn before() -> BTreeSet<String> {
    assert!(!Path::new(harness::layout::STATE).exists(), "a cluster is there: `harness down` first");
    inventory::listing().unwrap()
}

#[test]
#[ignore = "needs root, minutes, and the machine's only test cluster"]
fn a_start_that_is_killed_half_way_leaves_nothing_behind_after_down() {
    let layout = Layout::from_environment();
    let before = before();
    // From the first thing that exists to the last but one.
    let moments =
        ["before.json", "run/etcd", "run/kube-apiserver", "run/containerd-node-2", "run/kube-proxy-bw-node-3"];
    for moment in moments {
        let mut starting = Command::new(BINARY).arg("up").stdout(Stdio::null()).spawn().unwrap();
        until(moment, MINUTES, || Ok(if state(moment).exists() { Ok(()) } else { Err("not yet".into()) })).unwrap();
        starting.kill().unwrap();
        starting.wait().unwrap();
        assert_ne!(left_behind(&before), Vec::<String>::new(), "killed at {moment}, nothing was there to remove");
        down::down(&layout).unwrap();
        assert_eq!(left_behind(&before), Vec::<String>::new(), "killed at {moment}");
        note(&format!("killed at {moment}: nothing left"));
    }
    down::down(&layout).unwrap();
}

#[test]
#[ignore = "needs root, minutes, and the machine's only test cluster"]
fn a_cluster_runs_postgres_suffers_every_fault_and_leaves_nothing_behind() {
    let before = before();
    let layout = Layout::from_environment();
    let began = Instant::now();
    up::up(&layout, Path::new(BINARY), &note).unwrap();
    note(&format!("up: {:.1} s", began.elapsed().as_secs_f64()));
    assert_eq!(up::up(&layout, Path::new(BINARY), &note).unwrap(), up::Outcome::AlreadyRunning);

    let world = World::deploy(&layout);
    for (name, step) in STEPS {
        let began = Instant::now();
        step(&world);
        note(&format!("{name}: {:.1} s", began.elapsed().as_secs_f64()));
    }

    let began = Instant::now();
    down::down(&layout).unwrap();
    note(&format!("down: {:.1} s", began.elapsed().as_secs_f64()));
    assert_eq!(left_behind(&before), Vec::<String>::new());
}

type Step = (&'static str, fn(&World));

const STEPS: [Step; 13] = [
    ("names, Services, logs and exec work", ordinary_life),
    ("a frozen node is silent", frozen_node),
    ("a node cut off both ways", cut_both),
    ("a node cut off one way", cut_one_way),
    ("a node cut off from the API only", cut_api),
    ("a node cut off from one other only", cut_pair),
    ("a killed container comes back with its data", killed_container),
    ("one process frozen, one killed", single_process),
    ("the API server gone", api_gone),
    ("a slow etcd", slow_etcd),
    ("a full volume, and a larger one", full_volume),
    ("a drained node", drained),
    ("the other images, and volumes that are given back", images_and_volumes),
];

/// The cluster with PostgreSQL on each node; the pod on node 2 is the one that suffers.
struct World<'a> {
    layout: &'a Layout,
    victim: Node,
    /// The victim's pod, and its address.
    pod: ObjectName,
    address: IpAddr,
}

impl World<'_> {
    fn deploy(layout: &Layout) -> World<'_> {
        apply(layout, include_str!("workload.yaml")).unwrap();
        let began = Instant::now();
        kubectl(layout, ["rollout", "status", "statefulset/pg", "--timeout=170s"]).within(MINUTES).go().unwrap();
        note(&format!("three PostgreSQL pods ready: {:.1} s", began.elapsed().as_secs_f64()));
        let pods = get(layout, ["pods", "-l", "app=pg"]).unwrap();
        let victim = Node::ALL[1];
        let pods = pods["items"].as_array().unwrap();
        let nodes: BTreeSet<&str> = pods.iter().filter_map(|pod| pod["spec"]["nodeName"].as_str()).collect();
        assert_eq!(nodes.len(), 3, "one on each node: {nodes:?}");
        let pod = pods.iter().find(|pod| pod["spec"]["nodeName"] == victim.to_string()).unwrap();
        let name = pod["metadata"]["name"].as_str().unwrap();
        let world = World {
            layout,
            victim,
            pod: name.parse().unwrap(),
            address: pod["status"]["podIP"].as_str().unwrap().parse().unwrap(),
        };
        world.sql("create table kept as select 42 as answer").unwrap();
        world
    }

    fn exec(&self, pod: &str, script: &str) -> Result<String, Error> {
        kubectl(self.layout, ["exec", pod, "--", "sh", "-c", script]).within(Duration::from_secs(20)).output()
    }

    fn sql(&self, statement: &str) -> Result<String, Error> {
        self.exec(&self.pod.name, &format!("psql -h localhost -U postgres -tAc '{statement}'"))
    }

    fn other_pod(&self) -> &'static str {
        ["pg-0", "pg-1"].into_iter().find(|name| *name != self.pod.name).unwrap()
    }

    fn claim(&self) -> ObjectName {
        format!("data-{}", self.pod.name).parse().unwrap()
    }

    /// Whether the victim's PostgreSQL answers the host within two seconds: it is asked whether it speaks TLS.
    fn answers(&self) -> Result<(), String> {
        let patience = Duration::from_secs(2);
        let ask = || -> std::io::Result<()> {
            let mut stream = TcpStream::connect_timeout(&(self.address, PORT).into(), patience)?;
            stream.set_read_timeout(Some(patience))?;
            stream.write_all(&[0, 0, 0, 8, 4, 210, 22, 47])?;
            stream.read_exact(&mut [0])
        };
        ask().map_err(|error| error.to_string())
    }

    /// Whether something in a node's network can connect.
    fn connects(&self, from: Node, to: IpAddr, port: u16) -> Result<(), String> {
        let script = format!("exec 3<>/dev/tcp/{to}/{port}");
        let entering = format!("--net={}", harness::network::handle(Place::Node(from)).display());
        harness::command::Run::new("nsenter", [&entering, "--", "timeout", "2", "bash", "-c", &script])
            .go()
            .map_err(|error| error.to_string())
    }

    fn reaches_api(&self) -> Result<(), String> {
        self.connects(self.victim, CONTROL_ADDRESS.into(), API_PORT)
    }

    /// Whether a datagram from the victim's node arrives at the host.
    fn is_heard(&self) -> Result<(), String> {
        let listening = UdpSocket::bind((HOST_ADDRESS, 0)).unwrap();
        listening.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        let port = listening.local_addr().unwrap().port();
        let script = format!("echo hello >/dev/udp/{HOST_ADDRESS}/{port}");
        let entering = format!("--net={}", harness::network::handle(Place::Node(self.victim)).display());
        // A datagram that is dropped on the way out is an error for the sender: as good as silence here.
        let _ = harness::command::Run::new("nsenter", [&entering, "--", "bash", "-c", &script]).go();
        listening.recv(&mut [0; 16]).map(drop).map_err(|error| error.to_string())
    }

    fn healthy_again(&self) {
        until("PostgreSQL to answer", Duration::from_secs(60), || Ok(self.answers())).unwrap();
        until("the API to be reached", Duration::from_secs(60), || Ok(self.reaches_api())).unwrap();
        until("the data to be there", Duration::from_secs(60), || {
            let seen = self.sql("select answer from kept");
            Ok(seen
                .map_err(|error| error.to_string())
                .and_then(|text| if text.trim() == "42" { Ok(()) } else { Err(text) }))
        })
        .unwrap();
    }

    fn restarts(&self) -> i64 {
        let pod = get(self.layout, ["pod", &self.pod.name]).unwrap();
        pod["status"]["containerStatuses"][0]["restartCount"].as_i64().unwrap()
    }
}

fn ordinary_life(world: &World) {
    world.healthy_again();
    let logs = kubectl(world.layout, ["logs", &world.pod.name]).output().unwrap();
    assert!(logs.contains("database system is ready to accept connections"), "{logs}");
    for host in [format!("{}.pg", world.pod.name), "pg-one".into(), "pg-one.default.svc.cluster.local".into()] {
        let seen = world.exec(world.other_pod(), &format!("psql -h {host} -U postgres -tAc 'select 6 * 7'")).unwrap();
        assert_eq!(seen.trim(), "42", "{host}");
    }
    let service = get(world.layout, ["service", "pg-one"]).unwrap();
    let service: IpAddr = service["spec"]["clusterIP"].as_str().unwrap().parse().unwrap();
    TcpStream::connect_timeout(&(service, PORT).into(), Duration::from_secs(2)).expect("a Service from the host");
}

fn frozen_node(world: &World) {
    fault::freeze(world.victim).unwrap();
    world.answers().expect_err("frozen, and answers");
    fault::thaw(world.victim).unwrap();
    world.healthy_again();
    assert_eq!(world.restarts(), 0, "it went on where it was");
}

fn cut_both(world: &World) {
    fault::cut(world.victim, Cut::Both).unwrap();
    world.answers().expect_err("cut off, and answers the host");
    world.is_heard().expect_err("cut off, and heard");
    world.reaches_api().expect_err("cut off, and reaches the API");
    world.connects(Node::ALL[0], world.address, PORT).expect_err("cut off, and answers another node");
    world.connects(world.victim, world.address, PORT).expect("who is on the same node is not cut off");
    fault::heal(world.victim).unwrap();
    world.healthy_again();
}

fn cut_one_way(world: &World) {
    fault::cut(world.victim, Cut::Incoming).unwrap();
    world.answers().expect_err("deaf, and answers");
    world.is_heard().expect("deaf, not mute");
    fault::heal(world.victim).unwrap();
    world.healthy_again();

    fault::cut(world.victim, Cut::Outgoing).unwrap();
    world.answers().expect_err("mute, and answers");
    world.is_heard().expect_err("mute, and heard");
    fault::heal(world.victim).unwrap();
    world.healthy_again();
}

fn cut_api(world: &World) {
    fault::cut(world.victim, Cut::Api).unwrap();
    world.reaches_api().expect_err("cut off from the API, and reaches it");
    world.exec(&world.pod.name, "true").expect_err("cut off from the API, and reached by it");
    world.answers().expect("clients are not cut off");
    world.connects(Node::ALL[0], world.address, PORT).expect("other nodes are not cut off");
    fault::heal(world.victim).unwrap();
    world.healthy_again();
}

fn cut_pair(world: &World) {
    let [first, victim, third] = Node::ALL;
    fault::cut(victim, Cut::From(first)).unwrap();
    world.connects(first, world.address, PORT).expect_err("cut off from each other, and connected");
    world.connects(third, world.address, PORT).expect("the third is not cut off");
    world.reaches_api().expect("the API is not cut off");
    world.answers().expect("clients are not cut off");
    fault::heal(victim).unwrap();
    world.connects(first, world.address, PORT).expect("healed");
    world.healthy_again();
}

fn killed_container(world: &World) {
    let restarts = world.restarts();
    fault::kill_container(world.layout, &world.pod, None).unwrap();
    until("the container to be restarted", MINUTES, || {
        Ok(if world.restarts() > restarts { Ok(()) } else { Err("not yet".into()) })
    })
    .unwrap();
    world.healthy_again();
}

fn single_process(world: &World) {
    let send = |pattern: &str, signal| fault::signal_process(world.layout, &world.pod, None, pattern, signal);
    let error = send("postgres", Signal::SIGSTOP).unwrap_err().to_string();
    assert!(error.contains("checkpointer"), "says which processes there are: {error}");

    send("postgres -D", Signal::SIGSTOP).unwrap();
    world.answers().expect_err("the postmaster is stopped, and answers");
    send("postgres -D", Signal::SIGCONT).unwrap();
    world.healthy_again();

    let began = || world.sql("select pid from pg_stat_activity where backend_type = $$walwriter$$");
    let old = began().unwrap();
    send("walwriter", Signal::SIGKILL).unwrap();
    until("another walwriter", Duration::from_secs(60), || {
        Ok(match began() {
            Ok(new) if new != old && !new.trim().is_empty() => Ok(()),
            Ok(same) => Err(same),
            Err(error) => Err(error.to_string()),
        })
    })
    .unwrap();
}

fn api_gone(world: &World) {
    fault::stop_api().unwrap();
    get(world.layout, ["nodes"]).expect_err("stopped, and answers");
    world.answers().expect("databases don't need the API");
    fault::start_api(world.layout).unwrap();
    world.healthy_again();
}

fn slow_etcd(world: &World) {
    let write = || {
        let began = Instant::now();
        let change = format!("harness/beat={}", began.elapsed().as_nanos());
        kubectl(world.layout, ["annotate", "--overwrite", "service", "pg", &change]).go().unwrap();
        began.elapsed()
    };
    let slowest = || (0..3).map(|_| write()).max().unwrap();
    fault::slow_etcd(Duration::from_millis(2500), Duration::from_millis(500)).unwrap();
    let slow = slowest();
    fault::undo_slow_etcd().unwrap();
    let normal = (0..3).map(|_| write()).min().unwrap();
    note(&format!("a write takes {normal:?}, with a slow etcd up to {slow:?}"));
    assert!(slow > normal + Duration::from_millis(500), "{slow:?} is not slow");
}

fn full_volume(world: &World) {
    let write = || world.exec(&world.pod.name, "dd if=/dev/zero of=/data/more bs=1M count=8 2>&1 && rm /data/more");
    write().expect("there is room");
    fault::fill(world.layout, &world.claim()).unwrap();
    let error = write().unwrap_err().to_string();
    assert!(error.contains("No space left"), "{error}");
    let larger = r#"{"spec": {"resources": {"requests": {"storage": "640Mi"}}}}"#;
    kubectl(world.layout, ["patch", "pvc", &world.claim().name, "-p", larger]).go().unwrap();
    until("the larger volume to have room", Duration::from_secs(60), || {
        Ok(write().map(drop).map_err(|error| error.to_string()))
    })
    .unwrap();
    let claim = get(world.layout, ["pvc", &world.claim().name]).unwrap();
    assert_eq!(claim["status"]["capacity"]["storage"], "640Mi");
    fault::fill(world.layout, &world.claim()).unwrap();
    write().expect_err("full again");
    fault::free(world.layout, &world.claim()).unwrap();
    write().expect("freed");
}

fn drained(world: &World) {
    fault::drain(world.layout, world.victim, MINUTES).unwrap();
    world.answers().expect_err("evicted, and answers");
    fault::uncordon(world.layout, world.victim).unwrap();
    kubectl(world.layout, ["rollout", "status", "statefulset/pg", "--timeout=170s"]).within(MINUTES).go().unwrap();
    // The pod is another one at another address; its volume brought it back to its node, with what it had.
    assert_eq!(world.sql("select answer from kept").unwrap().trim(), "42");
}

fn images_and_volumes(world: &World) {
    for major in [17, 18] {
        let name = format!("version-{major}");
        let image = format!("--image={}", harness::images::postgres(major));
        kubectl(world.layout, ["run", &name, &image, "--restart=Never", "--", "postgres", "--version"]).go().unwrap();
        let done = format!("pod/{name}");
        kubectl(world.layout, ["wait", "--for=jsonpath={.status.phase}=Succeeded", &done, "--timeout=60s"])
            .within(MINUTES)
            .go()
            .unwrap();
        let printed = kubectl(world.layout, ["logs", &name]).output().unwrap();
        assert!(printed.contains(&format!("PostgreSQL) {major}")), "{printed}");
    }
    kubectl(world.layout, ["delete", "statefulset", "pg", "--timeout=60s"]).within(MINUTES).go().unwrap();
    kubectl(world.layout, ["delete", "pvc", "--all", "--timeout=60s"]).within(MINUTES).go().unwrap();
    until("the volumes to be deleted", Duration::from_secs(60), || {
        let left = get(world.layout, ["pv"])?["items"].as_array().map_or(0, Vec::len);
        Ok(if left == 0 { Ok(()) } else { Err(format!("{left} left")) })
    })
    .unwrap();
    let directory = state(world.victim.to_string()).join("volumes");
    assert_eq!(std::fs::read_dir(directory).unwrap().count(), 0, "files of deleted volumes");
}
