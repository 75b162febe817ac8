//! Somebody ends chaos in the middle: what it started ends with it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// In the place of `bellwether up`: says that it runs, and that it was asked to end.
const UP: &str = r#"#!/bin/sh
here=$(dirname "$0")
trap 'echo ended > "$here/ended"; exit 0' TERM
echo $$ > "$here/pid.new"
mv "$here/pid.new" "$here/pid"
while :; do sleep 0.05; done
"#;

fn wait_for(file: &Path) -> String {
    let began = Instant::now();
    loop {
        if let Ok(text) = fs::read_to_string(file) {
            return text;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "no {}", file.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn ended_by(signal: Signal, before: &[Signal]) {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("bellwether");
    fs::write(&program, UP).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut chaos = Command::new(env!("CARGO_BIN_EXE_bellwether-chaos"))
        .arg("embedded")
        .arg("--program")
        .arg(&program)
        .arg("--records")
        .arg(directory.path().join("records.jsonl"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let up: i32 = wait_for(&directory.path().join("pid")).trim().parse().unwrap();
    for signal in before {
        kill(Pid::from_raw(up), *signal).unwrap();
    }
    kill(Pid::from_raw(chaos.id().cast_signed()), signal).unwrap();
    assert_eq!(chaos.wait().unwrap().code(), Some(2));
    wait_for(&directory.path().join("ended"));
    assert!(!Path::new(&format!("/proc/{up}")).exists());
}

#[test]
fn what_chaos_started_ends_with_it() {
    ended_by(Signal::SIGTERM, &[]);
    ended_by(Signal::SIGINT, &[]);
}

#[test]
fn also_when_it_was_frozen_just_then() {
    ended_by(Signal::SIGTERM, &[Signal::SIGSTOP]);
}
