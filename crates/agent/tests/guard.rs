//! PostgreSQL never outlives its agent, whoever is killed and whatever it was doing; and it is stopped in the right mode, in
//! time. With real processes and a real PostgreSQL.

mod support;

use std::process::Child;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rstest::rstest;
use support::{Home, Supervised, is_alive, wait_for};

/// A client in the middle of a transaction, waiting, and one whose backend burns CPU and looks at nothing: the kind that
/// survives its postmaster.
fn busy_clients(home: &Home) -> Vec<Child> {
    let waiting = "begin; create table t (i int); insert into t values (1); select pg_sleep(1000)";
    let spinning = "do $$ begin loop end loop; end $$";
    let clients = [waiting, spinning].map(|sql| home.psql(sql).spawn().expect("psql runs"));
    wait_for("both clients are at it", || {
        let busy = "select count(*) from pg_stat_activity where state = 'active' and backend_type = 'client backend'";
        let output = home.psql(busy).output().expect("psql runs");
        String::from_utf8_lossy(&output.stdout).trim() == "3"
    });
    clients.into()
}

fn wait_until_gone(pids: &[i32]) {
    for pid in pids {
        wait_for(&format!("process {pid} is gone"), || !is_alive(*pid));
    }
}

fn finish(clients: Vec<Child>) {
    for mut client in clients {
        assert!(!client.wait().expect("its end").success(), "no client was told that its transaction went well");
    }
}

#[derive(Clone, Copy, Debug)]
enum Victim {
    Agent,
    Guard,
    Postmaster,
}

impl Victim {
    fn pid(self, supervised: &Supervised) -> i32 {
        match self {
            Self::Agent => supervised.pid(),
            Self::Guard => supervised.guard(),
            Self::Postmaster => supervised.postmaster(),
        }
    }
}

#[rstest]
fn no_process_of_postgresql_survives_a_kill_of_any_process_above_it(
    #[values(Victim::Agent, Victim::Guard, Victim::Postmaster)] victim: Victim,
) {
    let home = Home::new();
    let mut supervised = home.supervised_postgres(60);
    let clients = busy_clients(&home);
    let everything = supervised.descendants();
    assert!(everything.len() >= 6, "guard, postmaster, background processes and backends: {everything:?}");
    kill(Pid::from_raw(victim.pid(&supervised)), Signal::SIGKILL).expect("it is there");
    wait_until_gone(&everything);
    finish(clients);
    if !matches!(victim, Victim::Agent) {
        let (last_word, success) = supervised.end();
        let expected = if matches!(victim, Victim::Guard) { "end Unknown" } else { "end Signal(9)" };
        assert_eq!((last_word.as_str(), success), (expected, false));
    }
}

#[test]
fn a_guard_that_dies_takes_the_postmaster_along_even_while_the_agent_hangs() {
    let home = Home::new();
    let mut supervised = home.supervised_postgres(60);
    let (everything, postmaster) = (supervised.descendants(), supervised.postmaster());
    let guard = supervised.guard();
    supervised.signal(Signal::SIGSTOP);
    kill(Pid::from_raw(guard), Signal::SIGKILL).expect("it is there");
    wait_until_gone(&[postmaster]);
    supervised.signal(Signal::SIGCONT);
    assert_eq!(supervised.end().0, "end Unknown");
    wait_until_gone(&everything);
}

#[test]
fn a_second_postgresql_on_the_volume_waits_until_the_first_is_gone() {
    let home = Home::new();
    let mut first = home.supervised_postgres(60);
    let second = home.supervise(60, "/bin/sleep".as_ref(), &["1000"]);
    wait_for("the second guard is there", || second.descendants().len() == 1);
    first.signal(Signal::SIGTERM);
    assert!(first.end().1);
    wait_for("the second program is there", || second.descendants().len() == 2);
}

#[test]
fn an_orderly_stop_ends_sessions_and_needs_no_recovery() {
    let home = Home::new();
    let mut supervised = home.supervised_postgres(60);
    let clients = busy_clients(&home);
    supervised.signal(Signal::SIGTERM);
    assert_eq!(supervised.end(), ("end Code(0)".to_owned(), true));
    finish(clients);
    let control = std::process::Command::new(support::postgresql().program("pg_controldata"))
        .arg(home.path().join("pgdata"))
        .env("LC_ALL", "C")
        .output()
        .expect("pg_controldata runs");
    let control = String::from_utf8_lossy(&control.stdout).into_owned();
    assert!(control.contains("shut down\n"), "{control}");
}

#[test]
fn a_postgresql_that_does_not_stop_is_gone_before_the_deadline() {
    let home = Home::new();
    let grace = Duration::from_secs(4);
    let mut supervised = home.supervised_postgres(4);
    let everything = supervised.descendants();
    kill(Pid::from_raw(supervised.postmaster()), Signal::SIGSTOP).expect("it is there");
    let asked = Instant::now();
    supervised.signal(Signal::SIGTERM);
    let (last_word, _) = supervised.end();
    assert!(asked.elapsed() < grace, "{:?}", asked.elapsed());
    assert_eq!(last_word, "end Signal(9)");
    wait_until_gone(&everything);
}

/// Ignores the fast shutdown's signal; a child of its own lives on in a session of its own, as a backend would.
const STUBBORN: &str = "trap '' INT; setsid sleep 1000 & while :; do sleep 0.05; done";

fn stubborn(home: &Home) -> Supervised {
    let supervised = home.supervise(60, "/bin/sh".as_ref(), &["-c", STUBBORN]);
    // guard, sh, setsid's sleep, the loop's sleep
    wait_for("it has begun", || supervised.descendants().len() >= 4);
    supervised
}

#[test]
fn asking_twice_is_answered_sooner() {
    let home = Home::new();
    let mut supervised = stubborn(&home);
    let everything = supervised.descendants();
    supervised.signal(Signal::SIGTERM);
    supervised.signal(Signal::SIGINT);
    let (last_word, _) = supervised.end();
    assert_eq!(last_word, format!("end Signal({})", Signal::SIGQUIT as i32));
    wait_until_gone(&everything);
}

#[test]
fn a_quit_signal_asks_for_an_immediate_stop_at_once() {
    let home = Home::new();
    let mut supervised = stubborn(&home);
    supervised.signal(Signal::SIGQUIT);
    let (last_word, _) = supervised.end();
    assert_eq!(last_word, format!("end Signal({})", Signal::SIGQUIT as i32));
}

#[test]
fn a_program_that_cannot_be_started_is_said() {
    let home = Home::new();
    let mut supervised = home.supervise(60, "/nowhere/postgres".as_ref(), &[]);
    assert_eq!(supervised.end(), ("end Code(127)".to_owned(), false));
}

#[test]
fn at_the_deadline_everything_is_killed_though_the_agent_is_frozen() {
    let home = Home::new();
    let mut supervised = home.supervised_postgres(60);
    let clients = busy_clients(&home);
    let (everything, postmaster) = (supervised.descendants(), supervised.postmaster());
    supervised.guard_until("1500");
    let given = Instant::now();
    supervised.signal(Signal::SIGSTOP);
    std::thread::sleep(Duration::from_millis(1000).saturating_sub(given.elapsed()));
    if given.elapsed() < Duration::from_millis(1400) {
        assert!(is_alive(postmaster), "nothing happens before");
    }
    wait_until_gone(&everything);
    let took = given.elapsed();
    assert!(took > Duration::from_millis(1400), "{took:?}");
    let below = supervised.descendants();
    assert!(below.iter().all(|pid| Some(pid) == everything.first()), "all but the guard are reaped: {below:?}");
    finish(clients);
    supervised.signal(Signal::SIGCONT);
    assert_eq!(supervised.line(), "expired");
    assert_eq!(supervised.end(), ("end Signal(9)".to_owned(), false));
}

#[test]
fn a_deadline_that_is_moved_in_time_kills_nobody() {
    let home = Home::new();
    let mut supervised = stubborn(&home);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(3) {
        supervised.guard_until("1000");
        std::thread::sleep(Duration::from_millis(100));
    }
    supervised.guard_until("never");
    std::thread::sleep(Duration::from_millis(1500));
    wait_for("without a deadline it goes on", || supervised.descendants().len() >= 4);
    supervised.guard_until("60000");
    let everything = supervised.descendants();
    // Nearer, and at once.
    supervised.guard_until("0");
    assert_eq!(supervised.line(), "expired");
    assert_eq!(supervised.end().0, "end Signal(9)");
    wait_until_gone(&everything);
}

#[test]
fn an_extension_that_was_given_in_time_counts_though_the_guard_was_frozen() {
    let home = Home::new();
    let mut supervised = stubborn(&home);
    let guard = Pid::from_raw(supervised.guard());
    // Long enough that a busy machine gets to the next line in time.
    supervised.guard_until("5000");
    kill(guard, Signal::SIGSTOP).expect("it is there");
    supervised.guard_until("60000");
    std::thread::sleep(Duration::from_millis(5500));
    kill(guard, Signal::SIGCONT).expect("it is there");
    std::thread::sleep(Duration::from_millis(500));
    // Between two sleeps of its loop it has one process less.
    wait_for("it goes on", || supervised.descendants().len() >= 4);
}
