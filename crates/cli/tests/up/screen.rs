//! What people look at: status, why, events, plan, doctor, logs and a session, of a cluster that is well and of one with a fenced instance.

use std::os::unix::fs::symlink;
use std::process::Command;

use serde_json::Value;

use crate::home::{BELLWETHER, Home, eventually};

/// Everything that was written to the API by whoever has this kubeconfig, by its audit log.
fn writes(home: &Home) -> usize {
    let log = std::fs::read_to_string(home.path().join("api/audit.log")).unwrap();
    let entries = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    entries.filter(|entry| entry["user"] == "kubernetes-admin" && entry["resource"] != "nodes").count()
}

fn status(home: &Home) -> (Option<i32>, Value) {
    let (code, said) = home.asked(&["status", "demo", "-o", "json"]);
    (code, serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_shown_by_its_agents_own_word_and_looking_writes_nothing() {
    let home = Home::up(&["--replicas", "3"]).await;
    home.ready("demo", 3).await;
    let before = writes(&home);

    let (code, report) = status(&home);
    assert_eq!(code, Some(0), "{report:#}");
    assert_eq!(report["ready"], serde_json::json!({"ready": true, "confirmed": true}));
    let instances = report["instances"].as_array().unwrap();
    assert_eq!(instances.len(), 3);
    for instance in instances {
        assert_eq!(instance["source"], "agent", "{instance:#}");
        assert!(instance["positionAgeSeconds"].as_f64().unwrap() < 60.0, "{instance:#}");
    }
    assert_eq!(instances[1]["state"], "Streaming");
    eventually("commits are seen to wait for any of two", || async {
        let report = status(&home).1;
        (report["durability"]["of"] == serde_json::json!(["demo-2", "demo-3"])).then_some(())
    })
    .await;
    let (code, said) = home.asked(&["status", "-A"]);
    assert!(code == Some(0) && said.contains("3/3"), "{said}");
    let (code, said) = home.asked(&["status", "nobody"]);
    assert!(code == Some(1) && said.contains("no cluster \"nobody\""), "{said}");

    let nothing = eventually("the operator has nothing to do", || async {
        let (code, said) = home.asked(&["plan", "demo", "--explain"]);
        assert_eq!(code, Some(0), "{said}");
        said.contains("would do nothing").then_some(said)
    })
    .await;
    assert!(nothing.contains("as the spec asks for"), "{nothing}");
    let (code, said) = home.asked(&["why", "demo-1"]);
    assert!(code == Some(0) && said.contains("is as it should be"), "{said}");
    let (code, said) = home.asked(&["events", "demo"]);
    assert!(code == Some(0) && said.contains("InstanceCreated"), "{said}");
    let (_, said) = home.asked(&["doctor", "demo"]);
    assert!(said.contains("leader: demo-1 leads") && said.contains("all 3 are as they should be"), "{said}");
    assert!(said.contains("the first to end is that of demo-"), "{said}");
    let (code, said) = home.asked(&["logs", "demo", "--tail", "5"]);
    assert!(code == Some(0) && said.contains("demo-3  "), "{said}");
    let (code, said) = home.asked(&["psql", "demo", "--", "-Atc", "select current_user, pg_is_in_recovery()"]);
    assert_eq!((code, said.trim()), (Some(0), "app|f"));
    let (_, said) = home.asked(&["psql", "demo", "--instance", "demo-2", "--", "-Atc", "select pg_is_in_recovery()"]);
    assert_eq!(said.trim(), "t");
    assert_eq!(writes(&home), before, "looking wrote something");
    // The log sees who writes.
    let (code, said) = home.asked(&["fence", "demo-2", "--yes"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(writes(&home) > before);

    let (code, report) = status(&home);
    assert_eq!((code, &report["instances"][1]["state"]), (Some(0), &"Fenced".into()), "{report:#}");
    let (_, said) = home.asked(&["why", "demo-2"]);
    assert!(said.contains("runbooks/Fenced.md"), "{said}");
    let (code, said) = home.asked(&["doctor"]);
    assert!(code == Some(6) && said.contains("demo-2: a person wants PostgreSQL stopped on it"), "{said}");
    let (_, said) = home.asked(&["plan", "demo", "--explain"]);
    assert!(said.contains("would do nothing") && said.contains("bellwether unfence"), "{said}");
    let (code, said) = home.asked(&["pause", "demo"]);
    assert!(
        code == Some(0) && said.contains("Elections, failover and repairs go on") && !said.contains("is one running"),
        "{said}"
    );
    assert_eq!(home.condition("demo", "Paused").await.unwrap().0, "True");
    let (code, said) = home.asked(&["resume", "demo"]);
    assert!(code == Some(0) && said.contains("goes on"), "{said}");
    assert_eq!(home.condition("demo", "Paused").await, None);
    let (code, said) = home.asked(&["why", "demo-9"]);
    assert!(code == Some(1) && said.contains("there are demo-1, demo-2, demo-3"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_a_plugin_of_kubectl_it_goes_by_that_name() {
    let directory = tempfile::tempdir().unwrap();
    let plugin = directory.path().join("kubectl-bellwether");
    symlink(BELLWETHER, &plugin).unwrap();
    let output = Command::new(&plugin).args(["status", "--help"]).output().unwrap();
    let help = String::from_utf8_lossy(&output.stdout);
    assert!(help.contains("kubectl bellwether status"), "{help}");
}
