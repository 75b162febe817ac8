//! Decides whether a stored `PostgresCluster` can be acted on: the second line behind the schema.
//!
//! From: the object as it is stored. The API server's rules come first, but they can't count (whether a stepped range of
//! months ever meets a day), and an object may have been stored under an older CRD or with the CRD's rules removed. Never:
//! panics or corrects; a bad value is named with its field and the fix, and acting on the spec waits.

use crate::retention::{self, Policy};
use crate::schedule::{Schedule, Wrong};
use crate::v1::{BackupStore, DurabilityMode, PostgresCluster};
use crate::{owned, versions};

/// A value that can't be acted on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {value:?} {fix}")]
pub struct Invalid {
    /// Where it is: `spec.backup.schedule`.
    pub field: String,
    /// What is written there.
    pub value: String,
    /// What is wrong with it, and what to write instead.
    pub fix: String,
}

impl Invalid {
    fn new(field: impl Into<String>, value: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { field: field.into(), value: value.into(), fix: fix.into() }
    }
}

/// Everything in `cluster` that can't be acted on; empty when all is fine.
pub fn validate(cluster: &PostgresCluster) -> Vec<Invalid> {
    let spec = &cluster.spec;
    let mut invalid = vec![];
    invalid.extend(version(&spec.version));
    invalid.extend(replicas(spec.replicas));
    invalid.extend(durability(spec.durability.mode, spec.replicas));
    invalid.extend(schedule(&spec.backup.schedule));
    invalid.extend(retention(&spec.backup.retention));
    invalid.extend(spec.backup.store.iter().flat_map(store));
    invalid.extend(spec.parameters.iter().filter_map(|(name, value)| parameter(name, value)));
    invalid
}

fn version(major: &str) -> Option<Invalid> {
    let known = versions::SUPPORTED.map(|version| version.major);
    (!known.contains(&major))
        .then(|| Invalid::new("spec.version", major, format!("isn't supported: write one of {}", known.join(", "))))
}

fn replicas(count: i32) -> Option<Invalid> {
    (!(1..=10).contains(&count))
        .then(|| Invalid::new("spec.replicas", count.to_string(), "is out of range: write a number from 1 to 10"))
}

fn durability(mode: Option<DurabilityMode>, replicas: i32) -> Option<Invalid> {
    (mode == Some(DurabilityMode::Quorum) && replicas < 2).then(|| {
        Invalid::new("spec.durability.mode", "quorum", "needs a standby: set spec.replicas to 3, or the mode to async")
    })
}

fn schedule(expression: &str) -> Option<Invalid> {
    let fix = match Schedule::read(expression) {
        Ok(_) => return None,
        Err(Wrong::Fields) => {
            "doesn't have five fields: write minute, hour, day, month and weekday, such as 0 2 * * *".to_owned()
        }
        Err(Wrong::Unreadable(why)) => format!("is no cron expression ({why}): write five fields, such as 0 2 * * *"),
        Err(Wrong::Never) => {
            "names a date that never comes: choose a day that the month has, such as 0 2 28 2 *".to_owned()
        }
    };
    Some(Invalid::new("spec.backup.schedule", expression, fix))
}

fn retention(text: &str) -> Option<Invalid> {
    text.parse::<Policy>().is_err().then(|| Invalid::new("spec.backup.retention", text, retention::FIX))
}

/// What any agent would fail at, over and over. What the store itself refuses is known only there.
fn store(store: &BackupStore) -> Vec<Invalid> {
    let after = |text: &str, schemes: &[&str]| {
        schemes.iter().find_map(|scheme| text.strip_prefix(scheme)).map(str::to_owned).filter(|rest| !rest.is_empty())
    };
    let mut invalid = vec![];
    if after(&store.url, &["s3://", "gs://", "az://"]).is_none_or(|rest| rest.starts_with('/')) {
        let fix = "is no address of an object store: write s3://bucket/path, gs://bucket/path or az://container/path";
        invalid.push(Invalid::new("spec.backup.store.url", &store.url, fix));
    }
    let endpoint = store.endpoint.iter().filter(|endpoint| after(endpoint, &["https://", "http://"]).is_none());
    invalid.extend(endpoint.map(|endpoint| {
        let fix = "is no address of a service: write https://host:port, such as https://minio.storage.svc:9000";
        Invalid::new("spec.backup.store.endpoint", endpoint, fix)
    }));
    invalid
}

fn parameter(name: &str, value: &str) -> Option<Invalid> {
    let topic = owned::owner_of(name)?;
    let fix = format!("can't be set, because {}: {}", topic.why, topic.instead);
    Some(Invalid::new(format!("spec.parameters.{name}"), value, fix))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::v1::PostgresClusterSpec;

    fn cluster(change: impl FnOnce(&mut PostgresClusterSpec)) -> PostgresCluster {
        let mut spec = PostgresClusterSpec { replicas: 3, ..PostgresClusterSpec::default() };
        change(&mut spec);
        PostgresCluster::new("orders", spec)
    }

    fn refused(change: impl FnOnce(&mut PostgresClusterSpec)) -> String {
        validate(&cluster(change)).iter().map(Invalid::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_defaults_can_be_acted_on() {
        assert_eq!(validate(&cluster(|_| ())), []);
    }

    #[rstest]
    #[case::stepped_months_that_miss_every_long_one("0 2 31 4-6/2 *")]
    #[case::a_range_of_one_short_month("0 2 31 4-4 *")]
    #[case::february("0 2 30 2 *")]
    fn a_schedule_that_never_fires_is_found(#[case] expression: &str) {
        let message = refused(|spec| expression.clone_into(&mut spec.backup.schedule));
        assert!(message.contains("spec.backup.schedule") && message.contains(expression), "{message}");
        assert!(message.contains("choose a day that the month has"), "{message}");
    }

    #[rstest]
    #[case("0 2 29 2 *")]
    #[case("0 2 31 2 MON")]
    #[case("0 2 31 4-7/3 *")]
    fn a_schedule_that_fires_rarely_is_left_alone(#[case] expression: &str) {
        assert_eq!(refused(|spec| expression.clone_into(&mut spec.backup.schedule)), "");
    }

    #[test]
    fn six_fields_are_not_five() {
        let message = refused(|spec| "0 0 2 * * *".clone_into(&mut spec.backup.schedule));
        assert!(message.contains("five fields"), "{message}");
    }

    #[rstest]
    #[case("7 days")]
    #[case("0d")]
    #[case("d")]
    #[case("12345d")]
    #[case("7")]
    #[case("7d,10")]
    #[case("")]
    fn what_is_no_retention_is_named(#[case] length: &str) {
        let message = refused(|spec| length.clone_into(&mut spec.backup.retention));
        assert!(message.contains("spec.backup.retention") && message.contains("7d"), "{message}");
    }

    #[rstest]
    #[case::no_scheme("acme-backups", None, "spec.backup.store.url")]
    #[case::another_scheme("file:///backups", None, "spec.backup.store.url")]
    #[case::no_bucket("s3:///backups", None, "spec.backup.store.url")]
    #[case::nothing("s3://", None, "spec.backup.store.url")]
    #[case::no_address("s3://acme", Some("minio:9000"), "spec.backup.store.endpoint")]
    fn a_store_that_nobody_can_reach_is_named(#[case] url: &str, #[case] endpoint: Option<&str>, #[case] field: &str) {
        let message = refused(|spec| {
            let endpoint = endpoint.map(str::to_owned);
            spec.backup.store = Some(BackupStore { url: url.to_owned(), endpoint, ..BackupStore::default() });
        });
        assert!(message.starts_with(field) && message.contains("write "), "{message}");
        assert_eq!(message.lines().count(), 1, "one mistake, one message: {message}");
    }

    #[test]
    fn everything_wrong_is_named_at_once() {
        let invalid = validate(&cluster(|spec| {
            spec.version = "13".to_owned();
            spec.replicas = 11;
            spec.parameters.insert("Port".to_owned(), "1".to_owned());
        }));
        let fields: Vec<_> = invalid.iter().map(|invalid| invalid.field.as_str()).collect();
        assert_eq!(fields, ["spec.version", "spec.replicas", "spec.parameters.Port"]);
    }

    #[test]
    fn a_quorum_of_one_is_refused() {
        let message = refused(|spec| {
            spec.replicas = 1;
            spec.durability.mode = Some(DurabilityMode::Quorum);
        });
        assert!(message.contains("set spec.replicas to 3"), "{message}");
    }
}
