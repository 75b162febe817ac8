//! The CEL rules of a `PostgresCluster`, one function for each field that can be wrong in more ways than a bound can say.
//!
//! They run in the API server, which has no webhook to lean on, and in our own in-memory one: only functions that both
//! know are used. Never: a rule that could refuse what an earlier release stored, unless the value does harm.

use super::rule::{Rule, literal, literals};
use crate::owned::{TOPICS, Topic};
use crate::retention::FIX;
use crate::zone;

/// Rules on the object as a whole.
pub fn cluster() -> Vec<Rule> {
    vec![
        // Services need a DNS label that begins with a letter, and the longest name of a child, `<name>-<serial>` as the
        // value of a label, must fit into 63 characters with a serial of ten digits.
        Rule::on(
            "metadata.name",
            "self.metadata.name.matches('^[a-z]([a-z0-9-]{0,48}[a-z0-9])?$')",
            "can't be the name of the Services and pods made from it: use at most 50 lower-case letters, digits and hyphens, \
             beginning with a letter and ending with a letter or digit",
        )
        .value("self.metadata.name")
        .below(".metadata.name"),
        // Before the database exists a version may be corrected; afterwards the files on the volumes are of that version.
        Rule::on(
            "spec.version",
            "!has(oldSelf.status) || !has(oldSelf.status.systemIdentifier) || self.spec.version == oldSelf.spec.version",
            "can't change once the database exists, because this release doesn't upgrade between major versions: set it back, \
             or create a new cluster and copy the data with pg_dump",
        )
        .value("self.spec.version")
        .was("oldSelf.spec.version")
        .below(".spec.version"),
    ]
}

/// Rules between fields of the spec.
pub fn spec() -> Vec<Rule> {
    vec![
        Rule::on(
            "spec.durability.mode",
            "!has(self.durability.mode) || self.durability.mode != 'quorum' || self.replicas > 1",
            "needs a standby to acknowledge commits, and with spec.replicas: 1 there is none: set spec.replicas to 3, or \
             the mode to async",
        )
        .value("self.durability.mode")
        .below(".durability.mode"),
    ]
}

/// `spec.image`.
pub fn image() -> Vec<Rule> {
    vec![Rule::on(
        "spec.image",
        "self.matches('^[a-zA-Z0-9][a-zA-Z0-9._/:@-]*$')",
        "is no image reference: write registry/repository:tag or repository@sha256:digest, such as postgres:17",
    )]
}

/// `spec.storage`: what concerns fields that may be absent.
pub fn storage() -> Vec<Rule> {
    vec![
        Rule::on(
            "spec.storage.storageClass",
            same_option("self.storageClass", "oldSelf.storageClass"),
            "can't change, because existing volumes can't move to another class: set it back, or create a new cluster \
             and copy the data",
        )
        .value(or_none("self.storageClass"))
        .was(or_none("oldSelf.storageClass"))
        .below(".storageClass"),
        Rule::on(
            "spec.storage.wal",
            "has(self.wal) == has(oldSelf.wal)",
            "can't be added or removed later, because the log would have to move while PostgreSQL writes it: set it back, \
             or create a new cluster and copy the data",
        )
        .value("(has(self.wal) ? 'set' : 'unset')")
        .was("(has(oldSelf.wal) ? 'set' : 'unset')")
        .below(".wal"),
    ]
}

/// `spec.storage.wal`: what concerns fields that may be absent.
pub fn wal() -> Vec<Rule> {
    vec![
        Rule::on(
            "spec.storage.wal.storageClass",
            same_option("self.storageClass", "oldSelf.storageClass"),
            "can't change, because existing volumes can't move to another class: set it back",
        )
        .value(or_none("self.storageClass"))
        .was(or_none("oldSelf.storageClass"))
        .below(".storageClass"),
    ]
}

/// The size of a volume. 64Mi is less than an empty database takes, and catches `100` where `100Gi` was meant.
pub fn size(field: &str) -> Vec<Rule> {
    vec![
        Rule::on(
            field,
            "isQuantity(string(self)) && !quantity(string(self)).isLessThan(quantity('64Mi'))",
            "is no size of a volume: write a number and a unit, 64Mi or more, such as 100Gi",
        )
        .value("string(self)"),
        Rule::on(
            field,
            "!isQuantity(string(self)) || !isQuantity(string(oldSelf)) || \
             !quantity(string(self)).isLessThan(quantity(string(oldSelf)))",
            "can't shrink, because volumes can't: set it back or raise it",
        )
        .value("string(self)")
        .was("string(oldSelf)"),
    ]
}

/// `spec.resources`, and what else is a pod's: a pod whose request exceeds its limit would be refused much later, and not to the user's face.
pub fn resources(field: &str) -> Vec<Rule> {
    let quantities = |part: &str| {
        let bad = format!("!isQuantity(string(self.{part}[k]))");
        Rule::on(
            &format!("{field}.{part}"),
            format!("!has(self.{part}) || !self.{part}.exists(k, {bad})"),
            "is no quantity: write 500m or 2 for cpu, 512Mi or 4Gi for memory",
        )
        .key(first(&format!("self.{part}"), &bad))
        .value(format!("string(self.{part}[{}])", first(&format!("self.{part}"), &bad)))
        .below(&format!(".{part}"))
    };
    let exceeds = "k in self.limits && isQuantity(string(self.limits[k])) && isQuantity(string(self.requests[k])) && \
                   quantity(string(self.requests[k])).isGreaterThan(quantity(string(self.limits[k])))";
    vec![
        quantities("limits"),
        quantities("requests"),
        Rule::on(
            &format!("{field}.requests"),
            format!("!has(self.requests) || !has(self.limits) || !self.requests.exists(k, {exceeds})"),
            format!("is more than {field}.limits allows: lower the request or raise the limit"),
        )
        .key(first("self.requests", exceeds))
        .value(format!("string(self.requests[{}])", first("self.requests", exceeds)))
        .below(".requests"),
    ]
}

/// `spec.parameters`.
pub fn parameters() -> Vec<Rule> {
    let bad_name = "!k.matches('^[a-z_][a-z0-9_]*([.][a-z_][a-z0-9_]*)?$')";
    let bad_value = "self[k].matches('[\\\\x00-\\\\x1f]')";
    let mut rules = vec![
        setting(
            bad_name,
            "is no name of a PostgreSQL setting: write it in lower case with underscores, such as work_mem or \
             auto_explain.log_analyze",
        ),
        setting(bad_value, "has a line break or control character: write the value on one line")
            // The value itself would break the line of the message, and the API server drops such messages.
            .value("'…'"),
    ];
    rules.extend(TOPICS.iter().map(owned));
    rules
}

/// The settings of one topic are refused, with its reason and its way out.
fn owned(topic: &Topic) -> Rule {
    let mut covered = vec![format!("k in {}", literals(topic.names))];
    covered.extend(topic.prefixes.iter().map(|prefix| format!("k.startsWith({})", literal(prefix))));
    setting(&covered.join(" || "), format!("can't be set, because {}: {}", topic.why, topic.instead))
}

/// No entry `k` of the settings may be `bad`; the first that is gets named with its value.
fn setting(bad: &str, complaint: impl Into<String>) -> Rule {
    let name = first("self", bad);
    Rule::on("spec.parameters", format!("!self.exists(k, {bad})"), complaint).value(format!("self[{name}]")).key(name)
}

/// One line of `spec.pgHba`. PostgreSQL would refuse the whole file for a line it can't read, and a line that runs on or
/// includes another file could undo ours.
pub fn pg_hba_line() -> Vec<Rule> {
    let rest = "([ \\t]+[^ \\t\\r\\n]+)";
    let on = |rule: &str, complaint: &str| Rule::on("spec.pgHba[]", rule, complaint);
    vec![
        on(
            &format!("self.matches('^(local{rest}{{3,}}|host(ssl|nossl|gssenc|nogssenc)?{rest}{{4,}})[ \\t]*$')"),
            "is no line of pg_hba.conf: write one line with type (local, host, hostssl, hostnossl, hostgssenc or \
             hostnogssenc), database, user, address (not for local) and method, such as hostssl all all 10.0.0.0/8 \
             scram-sha-256",
        ),
        on(
            r"!self.trim().endsWith('\\')",
            "ends with a backslash, which would join the next line to it: remove the backslash",
        ),
        on("self.split('\"').size() % 2 == 1", "has a quotation mark that isn't closed: close it"),
        on("!self.matches('(^|[ \\t,])@')", "reads names from a file: write the names themselves in place of @file"),
    ]
}

/// `spec.backup.retention`.
pub fn retention() -> Vec<Rule> {
    vec![Rule::on(
        "spec.backup.retention",
        "self.matches('^([1-9][0-9]{0,3}[hdwmy]( and [1-9][0-9]{0,3} backups?)?|[1-9][0-9]{0,3} backups?)$')",
        FIX,
    )]
}

/// `url` of a store.
pub fn store_url(field: &str) -> Vec<Rule> {
    vec![Rule::on(
        field,
        "self.matches('^(s3|gs|az)://[a-z0-9][a-z0-9._-]{1,61}[a-z0-9](/[A-Za-z0-9._=-]+)*/?$')",
        "is no address of an object store: write s3://bucket/path, gs://bucket/path or az://container/path, the path from letters, digits and . _ = -",
    )]
}

/// `endpoint` of a store.
pub fn store_endpoint(field: &str) -> Vec<Rule> {
    vec![Rule::on(
        field,
        // Some services have a path: Azure's emulator that of the account.
        "self.matches('^https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9_-]+)*/?$')",
        "is no address of a service: write https://host:port, such as https://minio.storage.svc:9000",
    )]
}

/// `spec.backup.timeZone`. Whether there is one of that name only its database says, and that is [`crate::validate`]'s.
pub fn time_zone() -> Vec<Rule> {
    vec![Rule::on(
        "spec.backup.timeZone",
        "self.matches('^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}$')",
        zone::FIX,
    )]
}

/// `spec.backup.maxRate`: what PostgreSQL takes.
pub fn max_rate() -> Vec<Rule> {
    vec![
        Rule::on(
            "spec.backup.maxRate",
            "isQuantity(string(self)) && !quantity(string(self)).isLessThan(quantity('32Ki')) && \
             !quantity(string(self)).isGreaterThan(quantity('1Gi'))",
            "is no number of bytes a second from 32Ki to 1Gi: write a number and a unit, such as 100Mi, or leave it out",
        )
        .value("string(self)"),
    ]
}

/// `spec.cluster` of a `Backup`.
pub fn backup_cluster() -> Vec<Rule> {
    vec![
        Rule::on(
            "spec.cluster",
            "self.matches('^[a-z]([a-z0-9-]{0,48}[a-z0-9])?$')",
            "can't be the name of a PostgresCluster: write that of one in the same namespace, such as orders",
        ),
        Rule::immutable("spec.cluster", "can't change, because the backup is of that cluster: create another Backup"),
    ]
}

/// `spec.bootstrap.initdb.database` and `.owner`.
pub fn identifier(field: &str, example: &str) -> Vec<Rule> {
    vec![
        Rule::on(
            field,
            "self.matches('^[a-z_][a-z0-9_-]*$')",
            format!(
                "is no name that applications can use unquoted everywhere: write lower-case letters, digits, underscores \
                     and hyphens, beginning with a letter or underscore, such as {example}"
            ),
        ),
        Rule::on(
            field,
            format!("!(self in {}) && !self.startsWith('pg_') && !self.startsWith('bellwether')", literals(&RESERVED)),
            format!("is reserved by PostgreSQL or Bellwether: choose another name, such as {example}"),
        ),
        Rule::immutable(
            field,
            "can't change after creation, because it is read once: set it back, and rename with SQL",
        ),
    ]
}

/// Names that PostgreSQL has already given away, or that mean something else in `pg_hba.conf`.
const RESERVED: [&str; 10] =
    ["postgres", "template0", "template1", "public", "none", "all", "replication", "sameuser", "samerole", "samegroup"];

/// Scalars of `spec.bootstrap.initdb` that are read once.
pub fn read_once(field: &str) -> Vec<Rule> {
    vec![Rule::immutable(field, MADE_WITH_IT)]
}

/// `spec.bootstrap.initdb.dataChecksums`: as [`read_once`], for a boolean.
pub fn checksums() -> Vec<Rule> {
    let rule = Rule::immutable("spec.bootstrap.initdb.dataChecksums", MADE_WITH_IT);
    vec![rule.value("(self ? 'true' : 'false')").was("(oldSelf ? 'true' : 'false')")]
}

const MADE_WITH_IT: &str = "can't change after creation, because the database was made with it: set it back, or create a \
                            new cluster and copy the data with pg_dump";

/// `spec.bootstrap.initdb`: locale and provider belong together, and what may be absent is immutable too.
pub fn initdb() -> Vec<Rule> {
    let field = |name: &str| format!("spec.bootstrap.initdb.{name}");
    vec![
        Rule::on(
            &field("locale"),
            "self.localeProvider != 'libc' || self.locale.matches('^(C|POSIX|(C|[a-z]{2,3}(_[A-Z]{2})?)[.](UTF-8|utf8)(@[a-z]+)?)$')",
            "is no UTF-8 locale of the C library: write C.UTF-8 or one like en_US.UTF-8, or set localeProvider to icu",
        )
        .value("self.locale")
        .below(".locale"),
        Rule::on(
            &field("locale"),
            "self.localeProvider != 'icu' || self.locale.matches('^[a-z]{2,8}(-[A-Za-z0-9]{1,8})*$')",
            "is no ICU locale: write a language tag like de-DE, or und, or set localeProvider to libc",
        )
        .value("self.locale")
        .below(".locale"),
        Rule::on(
            &field("postInitSql"),
            same_option("self.postInitSql", "oldSelf.postInitSql"),
            "can't change after creation, because it ran once: set it back, and run further SQL yourself",
        )
        .value(statement("self.postInitSql", "oldSelf.postInitSql"))
        .was(statement("oldSelf.postInitSql", "self.postInitSql"))
        .below(".postInitSql"),
        Rule::on(
            &field("ownerPassword"),
            same_option("self.ownerPassword", "oldSelf.ownerPassword"),
            "can't change after creation, because it is read once: set it back, and change the password with ALTER ROLE",
        )
        .value(secret("self.ownerPassword"))
        .was(secret("oldSelf.ownerPassword"))
        .below(".ownerPassword"),
    ]
}

/// CEL: the first key of `map` for which `condition` on `k` holds.
fn first(map: &str, condition: &str) -> String {
    format!("{map}.filter(k, {condition})[0]")
}
/// CEL: two fields that may be absent are the same.
pub(super) fn same_option(new: &str, old: &str) -> String {
    format!("has({new}) == has({old}) && (!has({new}) || {new} == {old})")
}
fn or_none(field: &str) -> String {
    format!("(has({field}) ? {field} : 'none')")
}
/// The first statement that isn't the same on both sides stands for the list.
fn statement(list: &str, other: &str) -> String {
    let differs = format!("!has({other}) || !(s in {other})");
    format!("(has({list}) && {list}.exists(s, {differs}) ? {list}.filter(s, {differs})[0] : 'none')")
}
fn secret(field: &str) -> String {
    format!("(has({field}) ? {field}.name + '/' + {field}.key : 'none')")
}
