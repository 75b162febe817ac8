//! Full volumes: reads work, nobody flaps, what is full is named, another leads only if it has room, and all of it ends by itself.
//!
//! Each instance gets a small file system of its own in the place of its volume's directory. That takes the right to mount; whoever
//! has none is told that nothing was tried.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use bellwether_api::names::Names;
use bellwether_api::v1::PostgresCluster;
use bellwether_core::contract::POSTGRES_PORT;
use bellwether_core::lease_object::SWITCHOVER;
use bellwether_postgres::sql::{POSTGRES_DATABASE, Session};
use chaos::embedded::Site;
use chaos::fault::Fault;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{Patch, PatchParams};
use nix::fcntl::posix_fallocate;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::statvfs::statvfs;
use serde_json::{Value, json};

use crate::home::{Home, PATIENCE, eventually};

const SIZE: &str = "size=512m,mode=0700";
/// How long nothing may happen.
const QUIET: Duration = Duration::from_secs(12);
/// How soon writes go on when there is room.
const SOON: Duration = Duration::from_secs(10);

/// The volume of an instance: a file system of its own.
struct Volume {
    instance: String,
    root: PathBuf,
}

impl Volume {
    /// Moves what is on the volume of `instance` to a small file system in its place. Nothing when that is not permitted.
    fn shrink(home: &Home, instance: &str) -> Option<Self> {
        let claim = format!("default_{instance}-data_");
        let entries = fs::read_dir(home.path().join("volumes")).unwrap().flatten();
        let volume = entries.map(|entry| entry.path()).find(|path| path.to_string_lossy().contains(&claim)).unwrap();
        let (root, before) = (volume.join("data"), volume.join("before"));
        fs::rename(&root, &before).unwrap();
        fs::create_dir(&root).unwrap();
        if let Err(errno) = mount(Some("tmpfs"), &root, Some("tmpfs"), MsFlags::empty(), Some(SIZE)) {
            said(&format!("skipped: a file system can't be mounted here ({errno})"));
            return None;
        }
        let copied = Command::new("cp").arg("-a").arg(before.join(".")).arg(&root).status().unwrap();
        assert!(copied.success());
        fs::remove_dir_all(&before).unwrap();
        Some(Self { instance: instance.to_owned(), root })
    }

    /// Leaves nothing of it free.
    fn fill(&self) {
        // What is written meanwhile makes the first attempt too large.
        eventually_now("the volume takes a file as large as what is free", || {
            let found = statvfs(&self.root).unwrap();
            let free = i64::try_from(found.blocks_available() * found.fragment_size()).unwrap();
            let file = fs::File::options().create(true).append(true).open(self.filler()).unwrap();
            let end = i64::try_from(file.metadata().unwrap().len()).unwrap();
            free == 0 || posix_fallocate(&file, end, free).is_ok()
        });
    }

    /// Leaves nothing free, and goes on doing so for this long, whatever is given back.
    async fn keep_full(&self, lasting: Duration) {
        let began = Instant::now();
        while began.elapsed() < lasting {
            self.fill();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn free(&self) {
        fs::remove_file(self.filler()).unwrap();
    }

    fn filler(&self) -> PathBuf {
        self.root.join("filler")
    }
    fn reserve(&self) -> PathBuf {
        self.root.join("reserve")
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _gone = umount2(&self.root, MntFlags::MNT_DETACH);
    }
}

#[expect(clippy::print_stderr, reason = "for whoever reads the test's output")]
fn said(text: &str) {
    eprintln!("{text}");
}

fn eventually_now(what: &str, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A cluster of so many instances whose volumes are small, each with its reserve.
async fn small(instances: usize) -> Option<(Home, Vec<Volume>)> {
    let count = instances.to_string();
    let mut home = Home::up(&["--replicas", &count]).await;
    home.ready("demo", instances).await;
    home.execute("demo", "create table kept (id int); insert into kept values (1)").await;
    assert!(home.stop().await.success());
    let volumes: Option<Vec<_>> = (1..=instances).map(|n| Volume::shrink(&home, &format!("demo-{n}"))).collect();
    let volumes = volumes?;
    home.start(&[]).await;
    home.ready("demo", instances).await;
    for volume in &volumes {
        let made = || async { volume.reserve().exists().then_some(()) };
        eventually(&format!("{} has a reserve", volume.instance), made).await;
    }
    Some((home, volumes))
}

fn of<'a>(volumes: &'a [Volume], instance: &str) -> &'a Volume {
    volumes.iter().find(|volume| volume.instance == instance).unwrap()
}

/// A condition as it stands: status, reason and message.
async fn condition(home: &Home, kind: &str) -> Option<(String, String, String)> {
    let api: Api<PostgresCluster> = Api::default_namespaced(home.client().await);
    let conditions = api.get_opt("demo").await.ok()??.status?.conditions;
    let found = conditions.into_iter().find(|condition| condition.type_ == kind)?;
    Some((found.status, found.reason, found.message))
}

/// Waits until the condition says that a volume is full, and names these.
async fn says_full(home: &Home, kind: &str, status: &str, claims: &[&str]) {
    let says = || async {
        let (is, reason, message) = condition(home, kind).await?;
        let named = claims.iter().all(|claim| message.contains(claim));
        (is == status && reason == "VolumeFull" && named).then_some(())
    };
    eventually(&format!("{kind}={status} names {claims:?}"), says).await;
}

/// When the postmaster of an instance started.
async fn started(home: &Home, instance: &str) -> Option<i64> {
    let sql = "select (extract(epoch from pg_postmaster_start_time()) * 1000)::bigint";
    home.number("demo", instance, sql).await
}

/// A write through the read-write Service: nothing, or PostgreSQL's code.
async fn write(home: &Home) -> Result<(), String> {
    let connection = home.connection("demo").await;
    let rw = connection.service(&home.client().await, "demo-rw").await.unwrap();
    let session = connection.open(&rw, PATIENCE).await.map_err(|error| error.to_string())?;
    let written = session.batch_execute("insert into kept values (2)").await;
    written.map_err(|error| error.code().map_or(error.to_string(), |code| code.code().to_owned()))
}

/// Asks for another primary, or for none any more.
async fn ask_for(home: &Home, wanted: Value) {
    let leases: Api<Lease> = Api::default_namespaced(home.client().await);
    let patch = Patch::Merge(json!({"metadata": {"annotations": {SWITCHOVER: wanted}}}));
    leases.patch(&Names::of("demo").lease(), &PatchParams::default(), &patch).await.unwrap();
}

/// What status says of an instance.
async fn message(home: &Home, instance: &str) -> Option<String> {
    let api: Api<PostgresCluster> = Api::default_namespaced(home.client().await);
    let instances = api.get_opt("demo").await.ok()??.status?.instances;
    instances.into_iter().find(|one| one.name == instance)?.message
}

fn site_of(home: &Home, client: kube::Client) -> Site {
    Site { client, up: i32::try_from(home.pid()).unwrap() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_primary_hands_over_to_one_with_room_and_nobody_to_a_full_one() {
    let Some((home, volumes)) = small(3).await else { return };
    let site = site_of(&home, home.client().await);
    let first = site.primary().await.unwrap();
    let standbys: Vec<_> = volumes.iter().map(|volume| volume.instance.clone()).filter(|one| *one != first).collect();
    let [full, roomy] = standbys.as_slice() else { panic!("{standbys:?}") };

    let outcome = site
        .during(async |probe| {
            // A standby: it is said, it answers, and the others go on.
            probe.mark(format!("{full} is full"));
            let before = started(&home, full).await;
            of(&volumes, full).fill();
            says_full(&home, "Degraded", "True", &[&format!("{full}-data")]).await;
            assert_eq!(condition(&home, "Ready").await.unwrap().0, "True");
            assert_eq!(started(&home, full).await, before, "it was not restarted");
            assert!(home.number("demo", full, "select count(*) from kept").await.is_some());
            // A switchover to it is no good idea.
            ask_for(&home, json!(full)).await;
            let refused = || async { message(&home, &first).await?.contains("whose volume is full").then_some(()) };
            eventually("the switchover is refused, with the reason", refused).await;
            ask_for(&home, json!(null)).await;
            // The primary: the one with room leads.
            probe.mark(format!("{first} is full"));
            let began = Instant::now();
            of(&volumes, &first).fill();
            let leads = || async { site.primary().await.filter(|now| *now != first) };
            assert_eq!(eventually("another leads", leads).await, *roomy);
            said(&format!("{roomy} leads {:.1} s after {first} was full", began.elapsed().as_secs_f64()));
            // Nobody is left to acknowledge: that is said, with the volumes that are to blame.
            says_full(&home, "Ready", "False", &[&format!("{full}-data"), &format!("{first}-data")]).await;
            of(&volumes, full).free();
            of(&volumes, &first).free();
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!(outcome.after, *roomy, "it goes on to lead");
    assert_eq!(outcome.verdict.lies, [], "{:#?}", outcome.verdict);
    assert_eq!(outcome.verdict.doubts, [], "{:#?}", outcome.verdict);
    for volume in &volumes {
        eventually("the reserve is made again", || async { volume.reserve().exists().then_some(()) }).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_every_volume_is_full_reads_work_nobody_flaps_and_it_ends_by_itself() {
    let Some((home, volumes)) = small(3).await else { return };
    let site = site_of(&home, home.client().await);
    let outcome = site
        .during(async |probe| {
            let primary = site.primary().await.unwrap();
            probe.mark("every volume is full");
            for volume in &volumes {
                volume.fill();
            }
            says_full(&home, "Ready", "False", &[&format!("{primary}-data")]).await;
            let refused = || async { write(&home).await.err().filter(|code| code == "25006") };
            eventually("writes are refused as read-only", refused).await;
            let mut since = vec![];
            for volume in &volumes {
                since.push(eventually("reads work", || started(&home, &volume.instance)).await);
            }
            let began = Instant::now();
            while began.elapsed() < QUIET {
                assert_eq!(site.primary().await.as_ref(), Some(&primary), "the primary stays");
                for (volume, since) in volumes.iter().zip(&since) {
                    assert_eq!(started(&home, &volume.instance).await, Some(*since), "{} goes on", volume.instance);
                }
                assert_eq!(write(&home).await, Err("25006".to_owned()));
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            for volume in &volumes {
                volume.free();
            }
            let began = Instant::now();
            eventually("writes go on", || async { write(&home).await.ok() }).await;
            assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
            said(&format!("writes went on {:.1} s after there was room", began.elapsed().as_secs_f64()));
            assert_eq!(site.primary().await, Some(primary));
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!(outcome.before, outcome.after);
    assert_eq!(outcome.verdict.lies, [], "{:#?}", outcome.verdict);
    assert_eq!(outcome.verdict.doubts, [], "{:#?}", outcome.verdict);
}

/// The slot that is kept for it holds log back, up to half of the volume, and then it is copied anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn note_24_a_replica_that_is_away_does_not_fill_the_volume_of_its_primary() {
    let Some((home, _volumes)) = small(2).await else { return };
    let clusters: Api<PostgresCluster> = Api::default_namespaced(home.client().await);
    let fence = async |who: Value| {
        let change = json!({"metadata": {"annotations": {bellwether_api::labels::FENCED: who}}});
        clusters.patch("demo", &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    };
    fence("demo-2".into()).await;
    let away = || async { home.condition("demo", "Fenced").await.filter(|(status, _)| status == "True") };
    eventually("demo-2 is away", away).await;
    write_many(&home).await;
    fence(Value::Null).await;
    home.ready("demo", 2).await;
    has_all(&home, "demo-2").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_of_many_times_the_volume_fills_nobodys() {
    let Some((home, _volumes)) = small(2).await else { return };
    write_many(&home).await;
    home.ready("demo", 2).await;
    for instance in ["demo-1", "demo-2"] {
        has_all(&home, instance).await;
    }
}

/// Writes twice as much log as there is room for; nobody is full at any time.
async fn write_many(home: &Home) {
    const ROUNDS: i32 = 2 * 512 / 16;
    /// Rows that are too small to be compressed; a segment of log each time, and no more data than that.
    const SEGMENT: &str =
        "truncate much; insert into much select repeat(md5(n::text), 60) from generate_series(1, 8000) n";
    home.execute("demo", "create table much (what text)").await;
    for round in 0..ROUNDS {
        home.execute("demo", SEGMENT).await;
        let said = condition(home, "Degraded").await.unwrap();
        assert_ne!(said.1, "VolumeFull", "after {round} segments: {said:?}");
    }
}

async fn has_all(home: &Home, instance: &str) {
    let many =
        || async { home.number("demo", instance, "select count(*) from much").await.filter(|rows| *rows == 8000) };
    eventually(&format!("{instance} has everything"), many).await;
}

/// Lets WAL be written until there is no room for it: PostgreSQL panics.
async fn panic_for_want_of_room(home: &Home, socket: &Path, volume: &Volume) {
    let began = Instant::now();
    while !log(home).contains("No space left on device") {
        volume.fill();
        if let Ok(session) = Session::local(socket, POSTGRES_PORT, POSTGRES_DATABASE, PATIENCE).await {
            // A superuser who insists: writes are refused by then. What is cancelled, or ends with the server, is tried again.
            let _ = session.run_script("set default_transaction_read_only = off").await;
            let more = "create table if not exists wal (id int); insert into wal values (1); select pg_switch_wal()";
            let _ = session.run_script(more).await;
        }
        assert!(began.elapsed() < PATIENCE, "there is room for ever more WAL");
    }
}

/// Where PostgreSQL of the only instance has its socket.
fn socket(home: &Home) -> PathBuf {
    let pods = fs::read_dir(home.path().join("pods")).unwrap().flatten();
    let volumes = pods.flat_map(|pod| fs::read_dir(pod.path()).into_iter().flatten().flatten());
    volumes.map(|volume| volume.path().join("socket")).find(|path| path.is_dir()).unwrap()
}

fn log(home: &Home) -> String {
    let logs = fs::read_dir(home.path().join("logs")).unwrap().flatten();
    logs.map(|file| fs::read_to_string(file.path()).unwrap_or_default()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_started_on_a_full_volume_uses_the_reserve_and_serves_reads() {
    let Some((home, volumes)) = small(1).await else { return };
    let [volume] = volumes.as_slice() else { panic!("one volume") };
    volume.fill();
    says_full(&home, "Ready", "False", &["demo-1-data"]).await;
    eventually("the reserve is given back", || async { (!volume.reserve().exists()).then_some(()) }).await;
    let before = started(&home, "demo-1").await.unwrap();
    let site = site_of(&home, home.client().await);
    site.hurt(Fault::PostmasterKilled, "demo-1").await.unwrap();
    let again = || async { started(&home, "demo-1").await.filter(|since| *since != before) };
    let again = eventually("it is started again, and answers", again).await;
    assert_eq!(write(&home).await, Err("25006".to_owned()));
    assert_eq!(home.number("demo", "demo-1", "select count(*) from kept").await, Some(1));
    says_full(&home, "Ready", "False", &["demo-1-data"]).await;
    volume.free();
    eventually("writes go on", || async { write(&home).await.ok() }).await;
    home.ready("demo", 1).await;
    assert_eq!(started(&home, "demo-1").await, Some(again), "it went on without a restart");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_panicked_for_want_of_room_is_not_started_again_and_again_and_comes_back() {
    let Some((home, volumes)) = small(1).await else { return };
    let [volume] = volumes.as_slice() else { panic!("one volume") };
    let socket = socket(&home);
    panic_for_want_of_room(&home, &socket, volume).await;
    // Somebody takes even what was in reserve.
    volume.keep_full(QUIET).await;
    let starts = || log(&home).matches("starting PostgreSQL ").count();
    let before = starts();
    says_full(&home, "Ready", "False", &["demo-1-data"]).await;
    volume.keep_full(QUIET).await;
    assert_eq!(starts(), before, "it is not started where it can't run");
    volume.free();
    eventually("writes go on", || async { write(&home).await.ok() }).await;
    home.ready("demo", 1).await;
    assert_eq!(home.number("demo", "demo-1", "select count(*) from kept where id = 1").await, Some(1));
}
