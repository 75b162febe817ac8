//! Those of `spec.bootstrap.recovery`.

use serde_json::{Value, json};

use super::{Refusal, quoted};

/// A spec that is restored from this.
fn spec(recovery: &Value) -> Value {
    json!({ "bootstrap": { "recovery": recovery } })
}

/// All of them.
pub(super) fn recoveries() -> Vec<Refusal> {
    [sources(), archives(), targets(), beside()].into_iter().flatten().collect()
}

fn sources() -> Vec<Refusal> {
    let store = json!({ "url": "s3://acme/pg" });
    let rows = [
        (json!({}), "nothing"),
        (json!({ "backup": { "name": "nightly" }, "cluster": { "name": "orders" } }), "backup cluster"),
        (json!({ "cluster": { "name": "orders" }, "store": store, "archive": "shop/orders" }), "cluster store"),
    ];
    let row = |(recovery, value): (Value, &str)| {
        let words = ["spec.bootstrap.recovery:", &quoted(value), "exactly one of backup, cluster and store"];
        Refusal::of(format!("recovery from {value}"), &spec(&recovery), &words)
    };
    rows.into_iter().map(row).collect()
}

fn archives() -> Vec<Refusal> {
    let from = |field: &str, recovery: &Value, value: &str, fix: &str| {
        let words = [&format!("spec.bootstrap.recovery.{field}"), &quoted(value), fix];
        Refusal::of(format!("recovery: {field} {value:?}"), &spec(recovery), &words)
    };
    let store = |url: &str, archive: &str| json!({ "store": { "url": url }, "archive": archive });
    let cluster = |more: &str, value: &str| json!({ "cluster": { "name": "orders" }, more: value });
    let mut rows = vec![
        from("archive", &json!({ "store": { "url": "s3://acme/pg" } }), "none", "goes with store"),
        from("archive", &cluster("archive", "shop/orders"), "shop/orders", "goes with store"),
        from("store.url", &store("file:///backups", "shop/orders"), "file:///backups", "write s3://bucket/path"),
        from("cluster.name", &json!({ "cluster": { "name": "shop/orders" } }), "shop/orders", "such as orders"),
        from("backup.name", &json!({ "backup": { "name": "../secrets" } }), "../secrets", "kubectl get backups"),
        from("timeline", &cluster("timeline", "newest"), "newest", "write latest, current or a number"),
        from("timeline", &cluster("timeline", "0"), "0", "write latest, current or a number"),
        from("backupId", &cluster("backupId", "nightly"), "nightly", "such as 20261118T020000Z"),
        from(
            "backupId",
            &json!({ "backup": { "name": "nightly" }, "backupId": "20261118T020000Z" }),
            "20261118T020000Z",
            "leave one of them out",
        ),
    ];
    let archives = ["", "Shop/orders", "../orders", "shop/orders/1", "s3://acme"];
    rows.extend(
        archives.map(|archive| from("archive", &store("s3://acme/pg", archive), archive, "such as shop/orders")),
    );
    rows
}

fn targets() -> Vec<Refusal> {
    let target = |target: &Value| spec(&json!({ "cluster": { "name": "orders" }, "target": target }));
    let row = |field: &str, of: Value, value: &str, fix: &str| {
        let words = [&format!("spec.bootstrap.recovery.target{field}"), &quoted(value), fix];
        Refusal::of(format!("recovery to {of}"), &target(&of), &words)
    };
    let mut rows = vec![
        row("", json!({}), "nothing", "exactly one of time, lsn, name and transaction"),
        row("", json!({ "name": "a", "transaction": 700 }), "name transaction", "exactly one of"),
        row("", json!({ "exclusive": true }), "nothing", "exactly one of"),
        row(".exclusive", json!({ "name": "a", "exclusive": true }), "true", "leave it out"),
        row(".name", json!({ "name": "a\nb" }), "…", "on one line"),
        row(".lsn", json!({ "lsn": "16" }), "16", "such as 16/B374D848"),
        row(".lsn", json!({ "lsn": "G/0" }), "G/0", "such as 16/B374D848"),
    ];
    let moments = ["yesterday", "2026-11-18", "2026-11-18T14:30:00", "2026-11-18 14:30:00Z", "2026-13-18T14:30:00Z"];
    rows.extend(moments.map(|time| row(".time", json!({ "time": time }), time, "such as 2026-11-18T14:30:00Z")));
    rows
}

/// What a restored database brings along.
fn beside() -> Vec<Refusal> {
    let row = |field: &str, initdb: Value, value: &str| {
        let manifest = json!({ "bootstrap": { "initdb": initdb, "recovery": { "cluster": { "name": "orders" } } } });
        let words = [&format!("spec.bootstrap.initdb.{field}"), &quoted(value), "has no effect beside recovery"];
        Refusal::of(format!("{field} beside recovery"), &manifest, &words)
    };
    vec![
        row("locale", json!({ "locale": "de_DE.UTF-8" }), "de_DE.UTF-8"),
        row("locale", json!({ "localeProvider": "icu", "locale": "de-DE" }), "de-DE"),
        row("dataChecksums", json!({ "dataChecksums": false }), "false"),
        row("postInitSql", json!({ "postInitSql": ["SELECT 1"] }), "SELECT 1"),
    ]
}
