//! `bellwether try`, README's first command.

use std::process::Command;

use crate::home::BELLWETHER;

#[test]
fn try_starts_three_instances_that_replicate_and_stops_clean() {
    let output = Command::new(BELLWETHER).args(["try", "--json"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let report: serde_json::Value = serde_json::from_str(&text).unwrap_or_else(|_| {
        panic!("no report: {text}\n{}", String::from_utf8_lossy(&output.stderr));
    });
    assert_eq!(output.status.code(), Some(0), "{report:#}");
    assert_eq!(report["passed"], true, "{report:#}");
    let asked: Vec<_> =
        report["checks"].as_array().unwrap().iter().map(|answer| answer["check"].as_str().unwrap()).collect();
    assert_eq!(asked, ["ready", "write", "read", "replication-lag", "failover", "clean-stop"]);
    assert_eq!(report["figures"]["replication"].as_array().unwrap().len(), 2);
    assert!(report["figures"]["applyToReadySeconds"].as_f64().unwrap() > 0.0);
}
