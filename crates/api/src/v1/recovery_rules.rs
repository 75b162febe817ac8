//! The CEL rules of `spec.bootstrap.recovery`: one source, at most one target, each as it can be understood, and none of it changed later.
//!
//! Never: a field that is accepted and has no effect. What a restored database brings along can't be said a second time.

use super::rule::Rule;
use super::rules::same_option;

const RECOVERY: &str = "spec.bootstrap.recovery";

fn on(field: &str, rule: impl Into<String>, complaint: &str) -> Rule {
    Rule::on(&format!("{RECOVERY}{field}"), rule, complaint)
}

/// `spec.bootstrap`: what is restored has no use for what makes a new database, and is chosen once.
pub fn bootstrap() -> Vec<Rule> {
    let set = |at: &str, other: &str, both: &str| {
        format!("(has({at}.recovery) ? (has({other}.recovery) ? '{both}' : 'set') : 'unset')")
    };
    let restored = |field: &str, rule: &str, value: &str, complaint: &str| {
        let rule = format!("!has(self.recovery) || !has(self.initdb) || {rule}");
        Rule::on(&format!("spec.bootstrap.initdb.{field}"), rule, complaint)
            .value(value)
            .below(&format!(".initdb.{field}"))
    };
    vec![
        Rule::on(
            RECOVERY,
            same_option("self.recovery", "oldSelf.recovery"),
            "can't change after creation, because the database is restored once: set it back, or create another cluster",
        )
        .value(set("self", "oldSelf", "another"))
        .was(set("oldSelf", "self", "one"))
        .below(".recovery"),
        restored(
            "locale",
            "(self.initdb.localeProvider == 'libc' && self.initdb.locale == 'C.UTF-8')",
            "self.initdb.locale",
            "has no effect beside recovery, because a restored database has the locale of its original: leave locale and localeProvider out",
        ),
        restored(
            "dataChecksums",
            "self.initdb.dataChecksums",
            "(self.initdb.dataChecksums ? 'true' : 'false')",
            "has no effect beside recovery, because a restored database has checksums if its original has: leave it out",
        ),
        restored(
            "postInitSql",
            "!has(self.initdb.postInitSql) || self.initdb.postInitSql.size() == 0",
            "self.initdb.postInitSql[0]",
            "has no effect beside recovery, because what it made in the original is restored: leave it out, and run further SQL yourself",
        ),
    ]
}

/// `spec.bootstrap.recovery`: where from.
pub fn recovery() -> Vec<Rule> {
    let given = |field: &str| format!("(has(self.{field}) ? '{field} ' : '')");
    let sources = ["backup", "cluster", "store"].map(given).join(" + ");
    let count = ["backup", "cluster", "store"].map(|field| format!("(has(self.{field}) ? 1 : 0)")).join(" + ");
    vec![
        on(
            "",
            format!("{count} == 1"),
            "does not say from where, or says it twice: write exactly one of backup, cluster and store",
        )
        .value(format!("({count} == 0 ? 'nothing' : ({sources}).trim())")),
        on(
            ".archive",
            "has(self.archive) == has(self.store)",
            "goes with store, and only with it: write whose archive it is, such as shop/orders, beside store, and leave it out otherwise",
        )
        .value("(has(self.archive) ? self.archive : 'none')"),
        on(
            ".backupId",
            "!has(self.backupId) || !has(self.backup)",
            "is a second backup beside the one in backup: leave one of them out",
        )
        .value("self.backupId")
        .below(".backupId"),
    ]
}

/// `spec.bootstrap.recovery.backup.name`.
pub fn backup() -> Vec<Rule> {
    vec![on(
        ".backup.name",
        "self.matches('^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$')",
        "can't be the name of a Backup: write that of one in the same namespace, as `kubectl get backups` shows it",
    )]
}

/// `spec.bootstrap.recovery.cluster.name`.
pub fn cluster() -> Vec<Rule> {
    vec![on(
        ".cluster.name",
        "self.matches('^[a-z]([a-z0-9-]{0,48}[a-z0-9])?$')",
        "can't be the name of a PostgresCluster: write that of one in the same namespace, such as orders",
    )]
}

/// `spec.bootstrap.recovery.archive`.
pub fn archive() -> Vec<Rule> {
    vec![on(
        ".archive",
        "self.matches('^([a-z0-9]([a-z0-9-]*[a-z0-9])?/)?[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",
        "is no archive: write namespace/cluster, such as shop/orders, or a directory as `bellwether backups --from` shows it",
    )]
}

/// `spec.bootstrap.recovery.backupId`.
pub fn backup_id() -> Vec<Rule> {
    vec![on(
        ".backupId",
        "self.matches('^[0-9]{8}T[0-9]{6}Z$')",
        "is no backup in a store: write its name there, such as 20261118T020000Z, or leave it out for the newest that leads to the target",
    )]
}

/// `spec.bootstrap.recovery.target`.
pub fn target() -> Vec<Rule> {
    let fields = ["time", "lsn", "name", "transaction"];
    let given = fields.map(|field| format!("(has(self.{field}) ? '{field} ' : '')")).join(" + ");
    let count = fields.map(|field| format!("(has(self.{field}) ? 1 : 0)")).join(" + ");
    vec![
        on(
            ".target",
            format!("{count} == 1"),
            "does not say how far, or says it twice: write exactly one of time, lsn, name and transaction, or no target for the end of the log",
        )
        .value(format!("({count} == 0 ? 'nothing' : ({given}).trim())")),
        on(
            ".target.exclusive",
            "!has(self.name) || !has(self.exclusive) || !self.exclusive",
            "means nothing beside name, because nothing lies exactly at a restore point: leave it out",
        )
        .value("'true'")
        .below(".exclusive"),
    ]
}

/// `spec.bootstrap.recovery.target.time`.
pub fn time() -> Vec<Rule> {
    vec![on(
        ".target.time",
        "self.matches('^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]{1,6})?(Z|[+-][01][0-9]:[0-5][0-9])$')",
        "is no moment: write date, time and zone, such as 2026-11-18T14:30:00Z",
    )]
}

/// `spec.bootstrap.recovery.target.lsn`.
pub fn lsn() -> Vec<Rule> {
    vec![on(
        ".target.lsn",
        "self.matches('^[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}$')",
        "is no position in the log: write it as PostgreSQL does, such as 16/B374D848",
    )]
}

/// `spec.bootstrap.recovery.target.name`. PostgreSQL takes no longer one, in bytes; the schema counts characters.
pub fn name() -> Vec<Rule> {
    vec![
        on(
            ".target.name",
            "self != '' && !self.matches('[\\\\x00-\\\\x1f]')",
            "is no name of a restore point: write that of pg_create_restore_point, on one line",
        )
        // The value itself would break the line of the message.
        .value("'…'"),
    ]
}

/// `spec.bootstrap.recovery.timeline`.
pub fn timeline() -> Vec<Rule> {
    vec![on(
        ".timeline",
        "self.matches('^(latest|current|[1-9][0-9]{0,8})$')",
        "is no timeline: write latest, current or a number",
    )]
}
