//! The page of `bellwether status`: a report as a person reads it. Pure.
//!
//! Never: the operator's last word without saying that it is one.

use bellwether_api::v1::{InstanceRole, InstanceState};
use bellwether_core::words;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::report::{ClusterReport, ConditionReport, InstanceReport, ListReport, Replicas, Source};
use crate::output::Tone;
use crate::output::page::{Column, Mark, Row, Screen, table};
use crate::output::table::role;

/// Positions that are older than this are said to be: agents ask PostgreSQL every second.
const OLD: f64 = 5.0;

const COLUMNS: [Column; 8] = [
    Column { head: "INSTANCE", gives_way: 0 },
    Column { head: "ROLE", gives_way: 0 },
    Column { head: "STATE", gives_way: 0 },
    Column { head: "TIMELINE", gives_way: 2 },
    Column { head: "POSITION", gives_way: 3 },
    Column { head: "LAG", gives_way: 0 },
    Column { head: "COMMITS", gives_way: 1 },
    Column { head: "NODE", gives_way: 4 },
];

/// One cluster.
pub fn page(screen: Screen, report: &ClusterReport) -> String {
    let mut lines = vec![headline(screen, report)];
    if let Some(why) = &report.ready.why {
        let begins = if report.ready.ready { "not confirmed by its primary's agent: " } else { "" };
        lines.push(format!("  {}", screen.folded(&format!("{begins}{why}"), 2, 2)));
    }
    lines.extend(report.ready.runbook.iter().map(|name| format!("  what to do: docs/runbooks/{name}.md")));
    lines.push(String::new());
    let rows: Vec<_> = report.instances.iter().map(row).collect();
    if rows.is_empty() {
        lines.push("  there is no instance yet".to_owned());
    } else {
        lines.extend(table(screen, &COLUMNS, &rows));
    }
    lines.push(String::new());
    lines.extend(facts(report).iter().map(|(what, text)| screen.fact(what, text)));
    let unlike: Vec<_> = report.conditions.iter().filter(|condition| mark(condition) != Mark::Good).collect();
    if !unlike.is_empty() {
        lines.push(String::new());
    }
    for condition in unlike {
        let ConditionReport { type_, status, reason, message, .. } = condition;
        let since = ago(report.at, condition.since);
        lines.push(screen.marked(mark(condition), &format!("{type_}={status} ({reason}, {since}): {message}")));
    }
    lines.join("\n")
}

/// A line for each cluster.
pub fn list(screen: Screen, report: &ListReport) -> String {
    let columns = [
        Column { head: "NAMESPACE", gives_way: 1 },
        Column { head: "CLUSTER", gives_way: 0 },
        Column { head: "PHASE", gives_way: 0 },
        Column { head: "VERSION", gives_way: 4 },
        Column { head: "READY", gives_way: 0 },
        Column { head: "PRIMARY", gives_way: 0 },
        Column { head: "LAG", gives_way: 2 },
        Column { head: "LAST BACKUP", gives_way: 3 },
        Column { head: "VERIFIED", gives_way: 5 },
    ];
    let row = |one: &ClusterReport| {
        let since = |at: Option<Timestamp>| at.map(|at| ago(one.at, at)).unwrap_or_default();
        let worst = one.instances.iter().filter_map(|instance| instance.lag_bytes).max();
        Row {
            mark: cluster_mark(one),
            cells: vec![
                one.namespace.clone(),
                one.name.clone(),
                phase(one),
                one.postgres_version.clone(),
                format!("{}/{}", one.replicas.ready, one.replicas.wanted),
                one.primary.clone().unwrap_or_default(),
                worst.map(words::size).unwrap_or_default(),
                since(one.backups.last),
                since(one.backups.last_verified),
            ],
            below: one
                .ready
                .why
                .iter()
                .map(|why| if one.ready.ready { format!("not confirmed: {why}") } else { why.clone() })
                .collect(),
        }
    };
    table(screen, &columns, &report.items.iter().map(row).collect::<Vec<_>>()).join("\n")
}

fn headline(screen: Screen, report: &ClusterReport) -> String {
    let mark = cluster_mark(report);
    let name = screen.paint(&format!("{}/{}", report.namespace, report.name), Tone::Strong);
    let ready = match (report.ready.ready, report.ready.confirmed) {
        (true, true) => "Ready",
        (true, false) => "Ready by the operator's last word",
        (false, _) => "not Ready",
    };
    let Replicas { wanted, ready: count, confirmed, .. } = report.replicas;
    let doubt = if confirmed < count { format!(" ({confirmed} by their own word)") } else { String::new() };
    let replicas = format!("{count} of {wanted} instances ready{doubt}");
    let (sign, ready) = (screen.paint(mark.sign(), mark.tone()), screen.paint(ready, mark.tone()));
    // Said once.
    let phase = Some(phase(report)).filter(|phase| phase != "Ready" || !report.ready.ready);
    let phase = phase.map(|phase| format!(" · {phase}")).unwrap_or_default();
    let text = format!("{name} {ready}{phase} · {replicas} · PostgreSQL {}", report.postgres_version);
    format!("{sign} {}", screen.folded(&text, 2, 2))
}

fn phase(report: &ClusterReport) -> String {
    report.phase.map_or_else(|| "Pending".to_owned(), |phase| format!("{phase:?}"))
}

fn cluster_mark(report: &ClusterReport) -> Mark {
    let whole = report.phase == Some(bellwether_api::v1::Phase::Ready);
    let all = i32::try_from(report.replicas.ready).is_ok_and(|ready| ready >= report.replicas.wanted);
    match report.ready.ready {
        false => Mark::Bad,
        true if report.ready.confirmed && whole && all => Mark::Good,
        true => Mark::Busy,
    }
}

fn row(instance: &InstanceReport) -> Row {
    let doubtful = instance.source == Source::Status;
    let state = format!("{:?}{}", instance.state, if doubtful { "?" } else { "" });
    let timeline = instance.timeline.map(|timeline| timeline.to_string()).unwrap_or_default();
    let commits = match (instance.role, instance.synchronous) {
        (Some(InstanceRole::Standby), Some(true)) => "wait for it",
        (Some(InstanceRole::Standby), Some(false)) => "don't wait",
        _ => "",
    };
    let mut below = vec![];
    if let Some(why) = &instance.unasked {
        below.push(format!("its agent was not heard, and this is the operator's last word: {why}"));
    }
    below.extend(instance.message.clone());
    if let Some(says) = instance.status_says {
        below.push(format!("the operator's last word is {says:?}"));
    }
    if let Some(age) = instance.position_age_seconds.filter(|age| *age > OLD) {
        below.push(format!("PostgreSQL has not told its position for {age:.0} s"));
    }
    Row {
        mark: instance_mark(instance),
        cells: vec![
            instance.name.clone(),
            role(instance.role).to_owned(),
            state,
            timeline,
            instance.lsn.clone().unwrap_or_default(),
            lag(instance),
            commits.to_owned(),
            instance.node.clone().unwrap_or_default(),
        ],
        below,
    }
}

/// How an instance is.
pub fn instance_mark(instance: &InstanceReport) -> Mark {
    match (instance.state, instance.ready, instance.source) {
        (InstanceState::Fenced, ..) => Mark::Stopped,
        (_, true, Source::Agent) => Mark::Good,
        (InstanceState::Down | InstanceState::NotStreaming, ..) => Mark::Bad,
        (InstanceState::Leading | InstanceState::Streaming, _, Source::Status) => Mark::Bad,
        _ => Mark::Busy,
    }
}

/// Bytes and time that a standby is behind.
pub fn lag(instance: &InstanceReport) -> String {
    match (instance.lag_bytes, instance.lag_seconds) {
        (Some(bytes), Some(seconds)) => format!("{}, {}", words::size(bytes), seconds_in_words(seconds)),
        (Some(bytes), None) => words::size(bytes),
        (None, _) => String::new(),
    }
}

/// Below a minute tenths matter.
fn seconds_in_words(seconds: f64) -> String {
    if seconds < 60.0 {
        return format!("{:.1} s", seconds.max(0.0));
    }
    words::duration(SignedDuration::try_from_secs_f64(seconds).unwrap_or(SignedDuration::MAX))
}

fn facts(report: &ClusterReport) -> Vec<(&'static str, String)> {
    let primary = match (&report.primary, report.term) {
        (Some(primary), Some(term)) if report.ready.confirmed => format!("{primary}, in term {term}"),
        (Some(primary), term) => {
            let term = term.map(|term| format!(", in term {term}")).unwrap_or_default();
            format!("{primary}{term}, by the operator's last word")
        }
        (None, _) => "none".to_owned(),
    };
    let operation = report.operation.as_ref().map(|operation| {
        let since = words::duration(report.at.duration_since(operation.since));
        format!("{:?}, at {:?} for {since}, waiting on {}", operation.kind, operation.step, operation.waiting_on)
    });
    let mut facts = vec![("primary", primary), ("commits", commits(report))];
    facts.push(("operation", operation.unwrap_or_else(|| "none".to_owned())));
    facts.extend([("backups", backups(report)), ("recoverable", recoverable(report))]);
    facts.push(("status", status(report)));
    facts.extend(report.unseen.iter().map(|what| ("not seen", what.clone())));
    facts
}

fn commits(report: &ClusterReport) -> String {
    let durability = &report.durability;
    let mode = durability.mode.map(|mode| format!(" ({})", format!("{mode:?}").to_lowercase())).unwrap_or_default();
    let waits = match (durability.needed, durability.of.as_slice()) {
        (None, _) => "whom they wait for can't be seen".to_owned(),
        (Some(0), _) => "wait for no standby".to_owned(),
        (Some(needed), of) if needed == of.len() => format!("wait for {}", of.join(" and ")),
        (Some(needed), of) => format!("wait for any {needed} of {}", of.join(", ")),
    };
    let changing = if durability.changing { "; that is being changed" } else { "" };
    let stuck = if durability.commits_wait { "; they are waiting now, because too few stream" } else { "" };
    format!("{waits}{mode}{changing}{stuck}")
}

fn backups(report: &ClusterReport) -> String {
    let backups = &report.backups;
    if !backups.store {
        return "none: spec.backup.store names no store".to_owned();
    }
    let last = backups.last.map_or_else(|| "none yet".to_owned(), |at| format!("last {}", ago(report.at, at)));
    let verified = backups.last_verified;
    let verified =
        verified.map_or_else(|| "none verified yet".to_owned(), |at| format!("last verified {}", ago(report.at, at)));
    format!("{last}, {verified}")
}

fn recoverable(report: &ClusterReport) -> String {
    let backups = &report.backups;
    let archived = backups.archiving.as_deref() == Some("True");
    match (backups.recoverable_from, backups.recoverable_to) {
        _ if !backups.store => "no moment: there is no backup".to_owned(),
        (None, _) if backups.last.is_none() => "no moment yet: there is no backup".to_owned(),
        (None, _) => "not known yet: nobody has looked at what is in the store".to_owned(),
        (Some(from), Some(to)) => format!("from {from} to {to}: the log does not get into the store"),
        (Some(from), None) if archived => format!("from {from} up to the last minutes"),
        (Some(from), None) => {
            format!(
                "from {from}; up to when is not known: the log does not get into the store, or nobody says that it does"
            )
        }
    }
}

fn status(report: &ClusterReport) -> String {
    let asked = report.instances.iter().filter(|instance| instance.source == Source::Agent).count();
    let heard = format!("{asked} of {} heard just now", words::counted(report.instances.len() as u64, "agent"));
    let age = &report.status;
    let written = match age.written {
        Some(at) => format!("the operator wrote last {}; it writes when something changes", ago(report.at, at)),
        None => "no operator has written anything".to_owned(),
    };
    let behind = match (age.observed_generation, age.generation) {
        (Some(seen), Some(there)) if seen != there => {
            format!(", and of an earlier spec (generation {seen} of {there})")
        }
        _ => String::new(),
    };
    format!("{heard}; {written}{behind}")
}

fn ago(now: Timestamp, at: Timestamp) -> String {
    format!("{} ago", words::duration(now.duration_since(at)))
}

/// How a condition is: most are to be true, some are not to be.
pub fn mark(condition: &ConditionReport) -> Mark {
    weight(&condition.type_, &condition.status)
}

/// The same, of its type and its status.
pub fn weight(type_: &str, status: &str) -> Mark {
    match (type_, status) {
        ("Progressing" | "Degraded", "False") => Mark::Good,
        ("Progressing" | "Forced", _) => Mark::Busy,
        ("Degraded", "True") => Mark::Bad,
        ("Paused" | "Fenced", "True") => Mark::Stopped,
        ("Paused" | "Fenced", _) => Mark::Good,
        (_, "True") => Mark::Good,
        ("Ready" | "Archiving" | "BackedUp" | "BackupVerified", "False") => Mark::Bad,
        _ => Mark::Busy,
    }
}
