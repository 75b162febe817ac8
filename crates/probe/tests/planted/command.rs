//! The program, as people run it.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use probe::history::{self, Event};
use serde_json::Value;

use crate::server::{Server, eventually};

const PROBE: &str = env!("CARGO_BIN_EXE_bellwether-probe");

fn acknowledged(path: &Path) -> usize {
    let Ok(history) = history::read(path) else { return 0 };
    let is_one = |event: &&Event| matches!(event, Event::Write(write) if write.outcome.is_acknowledged());
    history.events.iter().filter(is_one).count()
}

fn check(server: &Server, history: &Path, arguments: &[&str]) -> Output {
    let instance = format!("{}@{}", server.target().host, server.address());
    let mut command = Command::new(PROBE);
    command.arg("check").arg(history).args(["--uri", &server.uri(), "--instance", &instance]).args(arguments);
    command.output().unwrap()
}

#[tokio::test]
async fn a_killed_probe_leaves_what_it_knew() {
    let server = Server::start("commanded").await;
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("history");
    let mut command = Command::new(PROBE);
    command.args(["run", "--uri", &server.uri(), "--duration", "5m", "--history"]).arg(&path);
    let mut running = command.stderr(Stdio::null()).spawn().unwrap();
    eventually("some writes are acknowledged", async || acknowledged(&path) > 50).await;
    running.kill().unwrap();
    running.wait().unwrap();
    let output = check(&server, &path, &["--json", "--least-rate", "1"]);
    let verdict: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(verdict["lies"], serde_json::json!([]), "{verdict:#}");
    assert!(verdict["writes"]["acknowledged"].as_u64().unwrap() > 50);
    assert_eq!(verdict["instances"][0]["lacks"], 0);
}

#[tokio::test]
async fn marks_come_from_standard_input_and_a_lie_is_an_exit_code() {
    let server = Server::start("marked").await;
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("history");
    let mut command = Command::new(PROBE);
    command.args(["run", "--uri", &server.uri(), "--until-stdin-closes", "--history"]).arg(&path);
    let mut running = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    eventually("some writes are acknowledged", async || acknowledged(&path) > 50).await;
    let mut stdin = running.stdin.take().unwrap();
    writeln!(stdin, "looked at it sternly").unwrap();
    let before = acknowledged(&path);
    eventually("some more are", async || acknowledged(&path) > before + 50).await;
    drop(stdin);
    assert_eq!(running.wait().unwrap().code(), Some(0));

    let report = Command::new(PROBE).arg("report").arg(&path).output().unwrap();
    let text = String::from_utf8_lossy(&report.stdout).into_owned();
    assert_eq!(report.status.code(), Some(3), "no table was read: {text}");
    assert!(text.contains("looked at it sternly") && text.contains("largest gap of kept sessions"), "{text}");

    server.query("app", "delete from bellwether_probe where (writer, seq) = (1, 1)").await.unwrap();
    let output = check(&server, &path, &[]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.starts_with("LIED") && text.contains("lacks 1 acknowledged row: 1/1"), "{text}");
}

#[test]
fn what_cannot_be_done_is_said_with_its_own_code() {
    let run = |arguments: &[&str]| Command::new(PROBE).args(arguments).output().unwrap();
    let output = run(&["report", "/nonexistent"]);
    assert_eq!(output.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/nonexistent"));
    let output = run(&["run", "--uri", "postgresql://app@db/app", "--duration", "1s", "--history", "/nonexistent/h"]);
    assert_eq!(output.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&output.stderr).contains("sslmode=disable"), "it says what to do");
    assert_eq!(run(&["run"]).status.code(), Some(2));
}
