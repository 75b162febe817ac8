//! Orphans are reaped, and nobody's exit code is stolen. One test a process: it makes the process a child subreaper, and a
//! stranger's children would be reaped too.

mod support;

use bellwether_agent::process::reaper::{self, Children};
use bellwether_agent::process::tree;
use support::wait_for;

#[test]
fn orphans_are_reaped_and_exit_codes_arrive() {
    nix::sys::prctl::set_child_subreaper(true).expect("a subreaper");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let children = Children::default();
    runtime.block_on(async {
        let reaping = tokio::spawn(reaper::reap_for_ever(children.clone()));
        let mut waits = vec![];
        for round in 0..60 {
            // Leaves an orphan behind that dies at about the same moment as its parent.
            let code = round % 50 + 1;
            let script = format!("sleep 0.0{} & (sleep 0.0{} &) ; exit {code}", round % 7, round % 5);
            let mut child = tokio::process::Command::new("/bin/sh").args(["-c", &script]).spawn().expect("sh runs");
            let known = children.own(child.id().expect("a pid") as i32);
            waits.push(async move {
                let status = child.wait().await.expect("an exit code of its own");
                drop(known);
                assert_eq!(status.code(), Some(code));
            });
        }
        for wait in waits {
            wait.await;
        }
        children.kill_orphans().await;
        reaping.abort();
    });
    let me = std::process::id() as i32;
    wait_for("no child is left, dead or alive", || !tree::all().iter().any(|process| process.parent == me));
}
