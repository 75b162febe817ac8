//! `bellwether events`: what happened to a cluster and to all that is its own, in order, each piece of news once.
//!
//! From the namespace's Events. Whose they are is decided by name, because what an event is about may be gone by now. Never: the events of
//! another cluster whose name only begins alike.

use std::collections::BTreeMap;
use std::process::ExitCode;

use bellwether_api::names::Names;
use bellwether_api::v1::Backup;
use bellwether_core::words;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

use crate::args::Events;
use crate::cluster::{ClusterError, Space, told};
use crate::output::page::{Column, Mark, Row, Screen, table};

const COLUMNS: [Column; 4] = [
    Column { head: "LAST SEEN", gives_way: 0 },
    Column { head: "TIMES", gives_way: 1 },
    Column { head: "ABOUT", gives_way: 0 },
    Column { head: "REASON", gives_way: 0 },
];

/// A piece of news.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// When it was told last.
    pub last: Timestamp,
    /// When it was told first.
    pub first: Timestamp,
    /// How often.
    pub times: i32,
    /// Whether it is bad.
    pub warning: bool,
    /// Kind and name of what it is about.
    pub about: (String, String),
    /// A word.
    pub reason: String,
    /// A sentence.
    pub message: String,
}

/// Runs it.
pub fn run(options: &Events) -> ExitCode {
    told(events(options))
}

async fn events(options: &Events) -> Result<String, ClusterError> {
    let space = Space::at(&options.place).await?;
    let (client, namespace) = (space.client.clone(), space.namespace.clone());
    let cluster = space.cluster(&options.cluster);
    let found = of(&client, &namespace, &options.cluster).await?;
    // Events outlive what they are about.
    if found.is_empty() {
        cluster.get().await?;
    }
    let news: Vec<_> = found.into_iter().filter(|news| news.warning || !options.warnings).collect();
    Ok(page(Screen::here(), &options.cluster, Timestamp::now(), &news))
}

/// Everything that is known to have happened to a cluster.
pub async fn of(client: &Client, namespace: &str, cluster: &str) -> Result<Vec<News>, ClusterError> {
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let backups: Api<Backup> = Api::namespaced(client.clone(), namespace);
    let events = events.list(&ListParams::default()).await?.items;
    // Who may not see them sees the rest.
    let backups = backups.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default();
    let backups: Vec<_> =
        backups.iter().filter(|backup| backup.spec.cluster == cluster).map(ResourceExt::name_any).collect();
    Ok(gathered(&events, &Names::of(cluster), &backups))
}

/// Those of one cluster, in order; the same news of the same object is one.
fn gathered(events: &[Event], names: &Names, backups: &[String]) -> Vec<News> {
    let mut all: BTreeMap<(String, String, String, String), News> = BTreeMap::new();
    for event in events.iter().filter(|event| is_ours(event, names, backups)) {
        let Some(news) = read(event) else { continue };
        let key = (news.about.0.clone(), news.about.1.clone(), news.reason.clone(), news.message.clone());
        match all.get_mut(&key) {
            Some(known) => {
                known.times = known.times.saturating_add(news.times);
                (known.first, known.last) = (known.first.min(news.first), known.last.max(news.last));
            }
            None => drop(all.insert(key, news)),
        }
    }
    let mut all: Vec<_> = all.into_values().collect();
    all.sort_by(|one, other| (one.last, one.first, &one.about).cmp(&(other.last, other.first, &other.about)));
    all
}

fn is_ours(event: &Event, names: &Names, backups: &[String]) -> bool {
    let about = &event.involved_object;
    let name = about.name.as_deref().unwrap_or_default();
    let of_instance = |name: &str| names.serial(name).is_some();
    match about.kind.as_deref() {
        Some("PostgresCluster") => name == names.cluster(),
        Some("Pod") => of_instance(name) || backups.iter().any(|backup| name.starts_with(backup.as_str())),
        Some("PersistentVolumeClaim") => {
            let instance = name.strip_suffix("-data").or_else(|| name.strip_suffix("-wal"));
            instance.is_some_and(of_instance)
        }
        Some("Backup") => backups.iter().any(|backup| backup == name),
        Some("Lease") => name == names.lease(),
        Some("Service" | "EndpointSlice") => {
            [names.rw(), names.ro(), names.r(), names.pods()].iter().any(|own| own == name)
        }
        Some("PodDisruptionBudget") => name == names.disruption_budget(),
        _ => false,
    }
}

fn read(event: &Event) -> Option<News> {
    let series = event.series.as_ref();
    let at = |time: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Time| time.0;
    let created = event.metadata.creation_timestamp.as_ref().map(at);
    let began = event.event_time.as_ref().map(|time| time.0);
    let first = event.first_timestamp.as_ref().map(at).or(began).or(created);
    let observed = series.and_then(|series| series.last_observed_time.as_ref()).map(|time| time.0);
    let last = observed.or(event.last_timestamp.as_ref().map(at)).or(first)?;
    let about = &event.involved_object;
    Some(News {
        last,
        first: first.unwrap_or(last),
        times: series.and_then(|series| series.count).or(event.count).unwrap_or(1).max(1),
        warning: event.type_.as_deref() == Some("Warning"),
        about: (about.kind.clone().unwrap_or_default(), about.name.clone().unwrap_or_default()),
        reason: event.reason.clone().unwrap_or_default(),
        message: event.message.clone().unwrap_or_default().trim().to_owned(),
    })
}

fn page(screen: Screen, cluster: &str, now: Timestamp, news: &[News]) -> String {
    if news.is_empty() {
        return format!(
            "nothing is known to have happened to {cluster} lately: an API server keeps events for an hour by default"
        );
    }
    table(screen, &COLUMNS, &news.iter().map(|news| row(news, now)).collect::<Vec<_>>()).join("\n")
}

/// A row of a table of news.
fn row(news: &News, now: Timestamp) -> Row {
    let last = format!("{} ago", words::duration(now.duration_since(news.last)));
    let times = match news.times {
        1 => String::new(),
        times => format!("{times} in {}", words::duration(news.last.duration_since(news.first))),
    };
    let about = match news.about.0.as_str() {
        "PostgresCluster" => news.about.1.clone(),
        kind => format!("{kind} {}", news.about.1),
    };
    Row {
        mark: if news.warning { Mark::Bad } else { Mark::Plain },
        cells: vec![last, times, about, news.reason.clone()],
        below: vec![news.message.clone()],
    }
}

/// The lines of a table of news, without its heading.
pub fn lines(screen: Screen, now: Timestamp, news: &[News]) -> Vec<String> {
    table(screen, &COLUMNS, &news.iter().map(|news| row(news, now)).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn event(kind: &str, name: &str, reason: &str, message: &str, at: &str) -> Value {
        json!({
            "metadata": {"name": "e"}, "involvedObject": {"kind": kind, "name": name}, "type": "Normal",
            "reason": reason, "message": message, "count": 1, "firstTimestamp": at, "lastTimestamp": at,
        })
    }

    fn told(events: &[Value]) -> Vec<News> {
        let events: Vec<Event> = events.iter().map(|event| serde_json::from_value(event.clone()).unwrap()).collect();
        gathered(&events, &Names::of("orders"), &["before-the-migration".to_owned()])
    }

    const NINE: &str = "2026-03-01T09:00:00Z";
    const TEN: &str = "2026-03-01T10:00:00Z";

    #[test]
    fn what_is_the_clusters_own_is_told_in_order_and_what_is_anothers_is_not() {
        let told = told(&[
            event("Pod", "orders-2", "Started", "started", TEN),
            event("PostgresCluster", "orders", "Ready", "it accepts writes", NINE),
            event("Backup", "before-the-migration", "BackupBegun", "begun", TEN),
            event("PersistentVolumeClaim", "orders-2-data", "Resizing", "resizing", TEN),
            event("Pod", "orders-eu-1", "Started", "another's", TEN),
            event("Pod", "orders-2-debug", "Started", "nobody's", TEN),
            event("PostgresCluster", "orders-eu", "Ready", "another's", TEN),
            event("Backup", "other", "BackupBegun", "another's", TEN),
        ]);
        let reasons: Vec<_> = told.iter().map(|news| news.reason.as_str()).collect();
        assert_eq!(reasons, ["Ready", "BackupBegun", "Resizing", "Started"]);
    }

    #[test]
    fn the_same_news_is_one_with_a_count() {
        let mut series = event("Pod", "orders-2", "Unhealthy", "the standby does not stream", TEN);
        series["series"] = json!({"count": 5, "lastObservedTime": "2026-03-01T11:00:00.000000Z"});
        let told = told(&[event("Pod", "orders-2", "Unhealthy", "the standby does not stream", NINE), series]);
        assert_eq!((told.len(), told[0].times), (1, 6));
        assert_eq!(told[0].last.duration_since(told[0].first).as_hours(), 2);
    }

    #[test]
    fn news_at_80_and_at_200_columns() {
        let mut bad = event(
            "Pod",
            "orders-2",
            "Unhealthy",
            "Readiness probe failed: the standby does not stream (NotStreaming): requested WAL segment 000000010000000000000003 has already been removed",
            TEN,
        );
        bad["type"] = "Warning".into();
        bad["count"] = 12.into();
        bad["firstTimestamp"] = NINE.into();
        let news = told(&[bad, event("PostgresCluster", "orders", "Degraded", "orders-2 does not stream", NINE)]);
        let now = "2026-03-01T10:03:00Z".parse().unwrap();
        insta::assert_snapshot!("events_80", page(Screen::plain(80), "orders", now, &news));
        insta::assert_snapshot!("events_200", page(Screen::plain(200), "orders", now, &news));
    }
}
