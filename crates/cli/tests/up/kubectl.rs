//! A real kubectl drives `up`, where one is installed.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::home::{Home, eventually};

struct Kubectl<'a>(&'a Home);

impl Kubectl<'_> {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(self.0.kubeconfig()).args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "kubectl {arguments:?}: {err}");
        out.into_owned()
    }

    fn holds(&self, arguments: &[&str], words: &[&str]) {
        let out = self.run(arguments);
        for word in words {
            assert!(out.contains(word), "kubectl {arguments:?} doesn't say {word:?}:\n{out}");
        }
    }
}

fn is_installed() -> bool {
    Command::new("kubectl").args(["version", "--client"]).output().is_ok_and(|output| output.status.success())
}

#[tokio::test]
async fn kubectl_sees_and_changes_everything() {
    if !is_installed() {
        return;
    }
    let home = Home::up(&["--replicas", "1"]).await;
    home.ready("demo", 1).await;
    let kubectl = Kubectl(&home);
    kubectl.holds(&["get", "pgc"], &["NAME", "VERSION", "REPLICAS", "READY", "PRIMARY", "PHASE", "AGE", "demo-1"]);
    kubectl.holds(&["get", "pods", "-o", "wide"], &["demo-1", "1/1", "Running", "node-"]);
    kubectl.holds(&["get", "nodes"], &["node-1", "node-2", "node-3", "Ready"]);
    kubectl.holds(&["get", "pvc"], &["demo-1-data", "Bound"]);
    kubectl.holds(&["describe", "pgc", "demo"], &["Conditions:", "Spec:", "Replicas:"]);
    kubectl.holds(&["describe", "pod", "demo-1"], &["Ready", "postgres:", "node-"]);
    kubectl.holds(&["explain", "pgc.spec.replicas"], &["replicas"]);
    kubectl.holds(&["logs", "demo-1", "--tail", "5"], &["{"]);

    let mut watch = kubectl.command(&["get", "pgc", "-w"]).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    kubectl.run(&["scale", "pgc/demo", "--replicas", "2"]);
    home.ready("demo", 2).await;
    kubectl.run(&["patch", "pgc", "demo", "--type", "merge", "-p", r#"{"spec":{"parameters":{"work_mem":"8MB"}}}"#]);
    let has_it = || async {
        let sql = "select setting::bigint from pg_settings where name = 'work_mem'";
        home.number("demo", "demo-1", sql).await.filter(|kilobytes| *kilobytes == 8192)
    };
    eventually("the parameter arrives", has_it).await;
    kubectl.run(&["delete", "pod", "demo-2", "--wait=true"]);
    home.ready("demo", 2).await;
    let seen: Vec<_> = lines.map_while(Result::ok).take(2).collect();
    assert!(seen.iter().any(|line| line.contains("demo")), "{seen:?}");
    watch.kill().unwrap();
    watch.wait().unwrap();

    kubectl.run(&["delete", "pgc", "demo"]);
    eventually("the pods are gone", || async {
        kubectl.run(&["get", "pods", "-o", "name"]).trim().is_empty().then_some(())
    })
    .await;
    home.nothing_left().await;
}
