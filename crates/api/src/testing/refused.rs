//! The manifests that must be refused, each with the words of its refusal: the field, the value, the fix.
//!
//! One table for everybody who refuses: the tests of the rules evaluate it here, and the end-to-end tests apply it to a real API
//! server. So a rule that only one of the two enforces is found. Never: two mistakes in one row; who mends the first must not meet
//! the second.

use serde_json::{Value, json};

mod recovery;

/// Who words a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refuser {
    /// A rule of ours: one message that has all the words.
    Rule,
    /// The structural schema; what it says is the API server's wording.
    Schema,
}

/// A manifest that must be refused.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// What is wrong, for people.
    pub name: String,
    /// What was stored before, where the mistake is the change.
    pub before: Option<Value>,
    /// What is refused.
    pub manifest: Value,
    /// What the message says.
    pub words: Vec<String>,
    /// Who says it.
    pub by: Refuser,
}

impl Refusal {
    fn of(name: impl Into<String>, spec: &Value, words: &[&str]) -> Self {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        Self { name: name.into(), before: None, manifest: manifest(spec), words, by: Refuser::Rule }
    }
}

/// A `PostgresCluster` called `orders` with this spec, as a user writes it.
pub fn manifest(spec: &Value) -> Value {
    json!({ "apiVersion": "bellwether.dev/v1", "kind": "PostgresCluster", "metadata": { "name": "orders" }, "spec": spec })
}

/// A `Backup` called `orders-1` with this spec, as a user writes it.
pub fn backup_manifest(spec: &Value) -> Value {
    json!({ "apiVersion": "bellwether.dev/v1", "kind": "Backup", "metadata": { "name": "orders-1" }, "spec": spec })
}

/// Those of a `Backup`.
pub fn backup_refusals() -> Vec<Refusal> {
    let row = |name: &str, cluster: &str, words: &[&str]| Refusal {
        manifest: backup_manifest(&json!({ "cluster": cluster })),
        ..Refusal::of(name, &json!({}), words)
    };
    let no_name = |cluster: &str| {
        let words = ["spec.cluster", &quoted(cluster), "such as orders"];
        row(&format!("a backup of {cluster:?}"), cluster, &words)
    };
    let too_long = "o23456789012345678901234567890123456789012345678901";
    let mut rows: Vec<_> =
        ["", "Orders", "shop/orders", "../orders", "orders-", too_long].into_iter().map(no_name).collect();
    let moved =
        row("a backup that moves", "shop", &["spec.cluster", "\"shop\" (was \"orders\")", "create another Backup"]);
    rows.push(Refusal { before: Some(backup_manifest(&json!({ "cluster": "orders" }))), ..moved });
    rows.push(Refusal {
        manifest: backup_manifest(&json!({})),
        by: Refuser::Schema,
        ..row("a backup of nothing", "", &["spec.cluster", "Required"])
    });
    rows
}

/// All of them, of a `PostgresCluster`.
pub fn refusals() -> Vec<Refusal> {
    let groups = [
        schema(),
        schedules(),
        retentions(),
        efforts(),
        stores(),
        sizes(),
        owned(),
        settings(),
        hba_lines(),
        identifiers(),
        locales(),
        single_ones(),
        recovery::recoveries(),
        names(),
        changes(),
    ];
    groups.into_iter().flatten().collect()
}

fn schema() -> Vec<Refusal> {
    let rows: [(Value, &[&str]); 6] = [
        (json!({ "replicas": 0 }), &["spec.replicas", "0", "greater than or equal to 1"]),
        (json!({ "replicas": 11 }), &["spec.replicas", "11", "less than or equal to 10"]),
        (json!({ "replicas": "three" }), &["spec.replicas", "integer"]),
        (json!({ "version": "13" }), &["spec.version", "13", "supported values"]),
        (json!({ "version": "latest" }), &["spec.version", "latest", "supported values"]),
        (json!({ "storage": { "onDelete": "Shred" } }), &["spec.storage.onDelete", "Shred", "\"Retain\", \"Delete\""]),
    ];
    let row = |(spec, words): (Value, &[&str])| Refusal {
        by: Refuser::Schema,
        ..Refusal::of(spec.to_string(), &spec, words)
    };
    rows.into_iter().map(row).collect()
}

fn schedules() -> Vec<Refusal> {
    let five = "doesn't have five fields";
    let missing = "choose a day that the month has";
    let backwards = "write the smaller end first";
    let rows = [
        ("four fields", "0 2 * *", five),
        ("six fields", "0 0 2 * * *", five),
        ("nothing", "", five),
        ("a nickname", "@daily", five),
        ("the 31st of February", "0 2 31 2 *", missing),
        ("the 30th of February", "0 2 30 2 *", missing),
        ("a range of missing days", "0 2 30-31 FEB *", missing),
        ("a stepped range of missing days", "0 2 30-31/1 2 *", missing),
        ("a list of missing days", "0 2 30,31 02 *", missing),
        ("the 31st of April", "0 2 31 4 *", missing),
        ("the 31st of short months", "0 2 31 apr,6,SEP,11 *", missing),
        ("minute 60", "60 2 * * *", "wrong minute: write *, or 0-59"),
        ("hour 24", "0 24 * * *", "wrong hour: write *, or 0-23"),
        ("day 0", "0 2 0 * *", "wrong day of month: write *, or 1-31"),
        ("day 32", "0 2 1,32 * *", "wrong day of month: write *, or 1-31"),
        ("month 13", "0 2 * 1-13 *", "wrong month: write *, or 1-12 or JAN-DEC"),
        ("a month that is none", "0 2 * FOO *", "wrong month: write *, or 1-12 or JAN-DEC"),
        ("weekday 8", "0 2 * * 8", "wrong day of week: write *, or 0-7 or SUN-SAT"),
        ("a step of nothing", "*/0 2 * * *", "wrong minute"),
        ("a step behind a number", "5/10 2 * * *", "wrong minute"),
        ("a question mark", "0 2 ? * *", "wrong day of month"),
        ("a range backwards", "0 5-1 * * *", backwards),
        ("weekdays backwards", "0 2 * * FRI-SUN", backwards),
    ];
    let row = |(name, schedule, fix): (&str, &str, &str)| {
        let spec = json!({ "backup": { "schedule": schedule } });
        Refusal::of(format!("schedule: {name}"), &spec, &["spec.backup.schedule", &quoted(schedule), fix])
    };
    rows.into_iter().map(row).collect()
}

fn retentions() -> Vec<Refusal> {
    let row = |retention: &str| {
        let spec = json!({ "backup": { "retention": retention } });
        let words = ["spec.backup.retention", &quoted(retention), "such as 7d"];
        Refusal::of(format!("retention: {retention}"), &spec, &words)
    };
    let both = ["7d,10", "7d and 10", "10 backups and 7d", "7d and 7d"];
    let counts = ["10", "0 backups", "10backups", "10000 backups", "10 Backups"];
    ["7 days", "7", "0d", "7D", "1w2d"].into_iter().chain(counts).chain(both).map(row).collect()
}

fn efforts() -> Vec<Refusal> {
    let zone = |zone: &str| {
        let words = ["spec.backup.timeZone", &quoted(zone), "such as UTC, Europe/Berlin"];
        Refusal::of(format!("time zone: {zone:?}"), &json!({ "backup": { "timeZone": zone } }), &words)
    };
    let rate = |rate: &str| {
        let words = ["spec.backup.maxRate", &quoted(rate), "from 32Ki to 1Gi"];
        Refusal::of(format!("rate: {rate:?}"), &json!({ "backup": { "maxRate": rate } }), &words)
    };
    let zones = ["", "+01:00", "Europe Berlin", "/etc/localtime", "Europe/"].map(zone);
    zones.into_iter().chain(["fast", "10", "2Gi", "100MB/s"].map(rate)).collect()
}

fn stores() -> Vec<Refusal> {
    let url = |url: &str| {
        let words = ["spec.backup.store.url", &quoted(url), "write s3://bucket/path"];
        Refusal::of(format!("store: {url:?}"), &json!({ "backup": { "store": { "url": url } } }), &words)
    };
    let endpoint = |endpoint: &str| {
        let spec = json!({ "backup": { "store": { "url": "s3://acme/pg", "endpoint": endpoint } } });
        let words = ["spec.backup.store.endpoint", &quoted(endpoint), "such as https://minio.storage.svc:9000"];
        Refusal::of(format!("endpoint: {endpoint:?}"), &spec, &words)
    };
    let urls = [
        "",
        "acme",
        "file:///backups",
        "https://acme.s3.amazonaws.com",
        "s3://",
        "s3:///path",
        "s3://ac",
        "s3://Acme",
        "s3://acme//pg",
        "s3://acme/pg?versions",
        "s3://acme/a b",
        "s3://key:secret@acme/pg",
    ];
    let endpoints = [
        "",
        "minio:9000",
        "s3://minio:9000",
        "https://",
        "https://minio:9000//path",
        "https://minio:9000/../path",
        "https://minio:9000/path?key=secret",
        "https://key:secret@minio:9000",
    ];
    urls.into_iter().map(url).chain(endpoints.into_iter().map(endpoint)).collect()
}

fn sizes() -> Vec<Refusal> {
    let mut rows = vec![];
    for (size, value) in [
        (json!("100"), "100"),
        (json!(100), "100"),
        (json!("lots"), "lots"),
        (json!("-5Gi"), "-5Gi"),
        (json!("0"), "0"),
    ] {
        let (data, wal) = (json!({ "storage": { "size": size } }), json!({ "storage": { "wal": { "size": size } } }));
        for (field, spec) in [("spec.storage.size", data), ("spec.storage.wal.size", wal)] {
            rows.push(Refusal::of(format!("{field}: {size}"), &spec, &[field, &quoted(value), "such as 100Gi"]));
        }
    }
    rows
}

fn owned() -> Vec<Refusal> {
    let rows = [
        ("listen_addresses", "connect through the Services"),
        ("port", "connect through the Services"),
        ("data_directory", "write settings in spec.parameters"),
        ("include", "write settings in spec.parameters"),
        ("ssl", "who may log in is said in spec.pgHba"),
        ("ssl_min_protocol_version", "who may log in is said in spec.pgHba"),
        ("synchronous_standby_names", "set spec.durability.mode"),
        ("synchronous_commit", "set spec.durability.mode"),
        ("fsync", "spec.durability.mode: async"),
        ("primary_conninfo", "set spec.replicas"),
        ("recovery_target_time", "use spec.backup"),
        ("archive_command", "use spec.backup"),
        ("logging_collector", "kubectl logs"),
        ("data_checksums", "spec.bootstrap.initdb"),
        ("bellwether.term", "choose another prefix"),
    ];
    let row = |(name, fix): (&str, &str)| {
        let spec = json!({ "parameters": { "work_mem": "64MB", name: "mine" } });
        Refusal::of(format!("owned: {name}"), &spec, &[&format!("spec.parameters.{name}"), "\"mine\"", fix])
    };
    rows.into_iter().map(row).collect()
}

fn settings() -> Vec<Refusal> {
    let row = |name: &str| {
        let words = ["spec.parameters", "is no name of a PostgreSQL setting", "such as work_mem"];
        Refusal::of(format!("no setting: {name:?}"), &json!({ "parameters": { name: "1" } }), &words)
    };
    let mut rows: Vec<_> = ["Work_Mem", "work mem", "work-mem", "a.b.c", "x = 1\ny"].into_iter().map(row).collect();
    let spec = json!({ "parameters": { "work_mem": "1MB'\nport = '1" } });
    let words = ["spec.parameters.work_mem", "line break", "write the value on one line"];
    rows.push(Refusal::of("a setting with a line break", &spec, &words));
    rows
}

fn hba_lines() -> Vec<Refusal> {
    let such = "such as hostssl all all 10.0.0.0/8 scram-sha-256";
    let rows = [
        ("host all all trust", such),
        ("inside all all trust", such),
        ("include /etc/passwd", such),
        ("host", such),
        ("# host all all all trust", such),
        ("host all all all trust \\", "remove the backslash"),
        ("host \"all all all trust", "close it"),
        ("host @databases all all trust", "write the names themselves"),
    ];
    let row = |(line, fix): (&str, &str)| {
        Refusal::of(format!("pgHba: {line}"), &json!({ "pgHba": [line] }), &["spec.pgHba[]", &quoted(line), fix])
    };
    let mut rows: Vec<_> = rows.into_iter().map(row).collect();
    let two = json!({ "pgHba": ["host all all all md5\nlocal all all trust"] });
    rows.push(Refusal::of("pgHba: two lines", &two, &["spec.pgHba[]", such]));
    rows
}

fn identifiers() -> Vec<Refusal> {
    let (another, lower) = ("choose another name", "write lower-case letters");
    let mut rows = vec![];
    for (name, fix) in [
        ("postgres", another),
        ("template1", another),
        ("pg_toast", another),
        ("bellwether_replication", another),
        ("replication", another),
        ("Orders", lower),
        ("1st", lower),
        ("a b", lower),
        ("", lower),
    ] {
        for part in ["database", "owner"] {
            let spec = json!({ "bootstrap": { "initdb": { part: name } } });
            let (field, value) = (format!("spec.bootstrap.initdb.{part}"), quoted(name));
            rows.push(Refusal::of(format!("{part}: {name:?}"), &spec, &[&field, &value, fix]));
        }
    }
    rows
}

fn locales() -> Vec<Refusal> {
    let (icu, libc) = ("write a language tag like de-DE", "write C.UTF-8 or one like en_US.UTF-8");
    let rows = [
        ("icu", "C.UTF-8", icu),
        ("icu", "de_DE.UTF-8", icu),
        ("libc", "de-DE", libc),
        ("libc", "en_US", libc),
        ("libc", "de_DE.ISO-8859-1", libc),
    ];
    let row = |(provider, locale, fix): (&str, &str, &str)| {
        let spec = json!({ "bootstrap": { "initdb": { "localeProvider": provider, "locale": locale } } });
        let words = ["spec.bootstrap.initdb.locale", &quoted(locale), fix];
        Refusal::of(format!("locale of another provider: {provider} {locale}"), &spec, &words)
    };
    rows.into_iter().map(row).collect()
}

fn single_ones() -> Vec<Refusal> {
    let requests = json!({ "requests": { "cpu": 1, "memory": "2Gi" }, "limits": { "cpu": 2, "memory": "1Gi" } });
    vec![
        Refusal::of(
            "a quorum of one",
            &json!({ "replicas": 1, "durability": { "mode": "quorum" } }),
            &["spec.durability.mode", "\"quorum\"", "set spec.replicas to 3, or the mode to async"],
        ),
        Refusal::of(
            "a request above its limit",
            &json!({ "resources": requests }),
            &["spec.resources.requests.memory", "\"2Gi\"", "lower the request or raise the limit"],
        ),
        Refusal::of(
            "a resource that is no quantity",
            &json!({ "resources": { "limits": { "memory": "much" } } }),
            &["spec.resources.limits.memory", "\"much\"", "512Mi or 4Gi for memory"],
        ),
        Refusal::of(
            "an image with a space",
            &json!({ "image": "postgres 17" }),
            &["spec.image", "\"postgres 17\"", "such as postgres:17"],
        ),
    ]
}

/// Names that Services can't have.
fn names() -> Vec<Refusal> {
    let row = |name: &str| {
        let words = ["metadata.name", &quoted(name), "use at most 50"];
        let mut refusal = Refusal::of(format!("name: {name}"), &json!({}), &words);
        refusal.manifest["metadata"]["name"] = name.into();
        refusal
    };
    let too_long = "o23456789012345678901234567890123456789012345678901";
    ["1orders", "orders.eu", "orders-", too_long].into_iter().map(row).collect()
}

/// Changes of what can't change.
fn changes() -> Vec<Refusal> {
    let (raise, back) = ("set it back or raise it", "set it back");
    let storage = |storage: Value| json!({ "storage": storage });
    let initdb = |initdb: Value| json!({ "bootstrap": { "initdb": initdb } });
    let recovered = |from: &str| json!({ "bootstrap": { "recovery": { "cluster": { "name": from } } } });
    let wal = || storage(json!({ "wal": { "size": "20Gi" } }));
    let nothing = || json!({});
    let rows = [
        (
            storage(json!({ "size": "100Gi" })),
            storage(json!({ "size": "50Gi" })),
            "storage.size",
            "50Gi",
            "100Gi",
            raise,
        ),
        (storage(json!({ "size": "1Ti" })), storage(json!({ "size": "1000G" })), "storage.size", "1000G", "1Ti", raise),
        (storage(json!({ "size": "100Gi" })), nothing(), "storage.size", "10Gi", "100Gi", raise),
        (wal(), storage(json!({ "wal": { "size": "10Gi" } })), "storage.wal.size", "10Gi", "20Gi", raise),
        (
            storage(json!({ "storageClass": "ssd" })),
            storage(json!({ "storageClass": "hdd" })),
            "storage.storageClass",
            "hdd",
            "ssd",
            back,
        ),
        (nothing(), storage(json!({ "storageClass": "hdd" })), "storage.storageClass", "hdd", "none", back),
        (storage(json!({ "storageClass": "ssd" })), nothing(), "storage.storageClass", "none", "ssd", back),
        (
            wal(),
            storage(json!({ "wal": { "size": "20Gi", "storageClass": "hdd" } })),
            "storage.wal.storageClass",
            "hdd",
            "none",
            back,
        ),
        (nothing(), wal(), "storage.wal", "set", "unset", back),
        (wal(), nothing(), "storage.wal", "unset", "set", back),
        (nothing(), initdb(json!({ "database": "shop" })), "bootstrap.initdb.database", "shop", "app", back),
        (nothing(), initdb(json!({ "owner": "shop" })), "bootstrap.initdb.owner", "shop", "app", back),
        (
            nothing(),
            initdb(json!({ "locale": "en_US.UTF-8" })),
            "bootstrap.initdb.locale",
            "en_US.UTF-8",
            "C.UTF-8",
            back,
        ),
        (nothing(), initdb(json!({ "dataChecksums": false })), "bootstrap.initdb.dataChecksums", "false", "true", back),
        (
            initdb(json!({ "postInitSql": ["SELECT 1"] })),
            initdb(json!({ "postInitSql": ["SELECT 1", "SELECT 2"] })),
            "bootstrap.initdb.postInitSql",
            "SELECT 2",
            "none",
            "run further SQL yourself",
        ),
        (nothing(), recovered("orders"), "bootstrap.recovery", "set", "unset", back),
        (recovered("orders"), nothing(), "bootstrap.recovery", "unset", "set", back),
        (recovered("orders"), recovered("shop"), "bootstrap.recovery", "another", "one", back),
        (
            nothing(),
            initdb(json!({ "ownerPassword": { "name": "s", "key": "k" } })),
            "bootstrap.initdb.ownerPassword",
            "s/k",
            "none",
            "ALTER ROLE",
        ),
    ];
    let changed = rows.into_iter().map(|(before, after, field, now, then, fix)| {
        let (path, values) = (format!("spec.{field}"), format!("\"{now}\" (was \"{then}\")"));
        let refusal = Refusal::of(format!("{field} changed from {then} to {now}"), &after, &[&path, &values, fix]);
        Refusal { before: Some(manifest(&before)), ..refusal }
    });
    changed.chain([another_major_version()]).collect()
}

/// Once the database exists; before that it may be corrected.
fn another_major_version() -> Refusal {
    let mut before = manifest(&json!({ "version": "16" }));
    before["status"] = json!({ "systemIdentifier": "7400000000000000000" });
    let words = ["spec.version", "\"17\" (was \"16\")", "set it back"];
    let refusal = Refusal::of("another major version once the database exists", &json!({ "version": "17" }), &words);
    Refusal { before: Some(before), ..refusal }
}

fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}
