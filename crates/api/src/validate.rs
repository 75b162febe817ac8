//! Decides whether a stored `PostgresCluster` can be acted on: the second line behind the schema.
//!
//! From: the object as it is stored. The API server's rules come first, but they can't count (whether a stepped range of
//! months ever meets a day), and an object may have been stored under an older CRD or with the CRD's rules removed. Never:
//! panics or corrects; a bad value is named with its field and the fix, and acting on the spec waits.

use std::str::FromStr as _;

use croner::Cron;
use jiff::{civil, tz::TimeZone};

use crate::v1::{DurabilityMode, PostgresCluster};
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
    let refuse = |fix: String| Some(Invalid::new("spec.backup.schedule", expression, fix));
    // croner reads six and seven fields too, the first being seconds, which would shift the meaning of all the others.
    if expression.split_whitespace().count() != 5 {
        return refuse(
            "doesn't have five fields: write minute, hour, day, month and weekday, such as 0 2 * * *".to_owned(),
        );
    }
    let cron = match Cron::from_str(expression) {
        Ok(cron) => cron,
        Err(why) => return refuse(format!("is no cron expression ({why}): write five fields, such as 0 2 * * *")),
    };
    // Any start will do: what fires at all fires within the 28 years after which weekdays and leap years repeat.
    let start = civil::date(2000, 1, 1).to_zoned(TimeZone::UTC).ok()?;
    match cron.find_next_occurrence(&start, true) {
        Ok(_) => None,
        Err(_) => {
            refuse("names a date that never comes: choose a day that the month has, such as 0 2 28 2 *".to_owned())
        }
    }
}

fn retention(length: &str) -> Option<Invalid> {
    let number = length.strip_suffix(['h', 'd', 'w', 'm', 'y']).unwrap_or_default();
    let digits = (1..=4).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
    (!digits || number.starts_with('0')).then(|| {
        Invalid::new(
            "spec.backup.retention",
            length,
            "is no length of time: write a number and h, d, w, m or y, such as 7d",
        )
    })
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
    #[case("")]
    fn what_is_no_length_of_time_is_named(#[case] length: &str) {
        let message = refused(|spec| length.clone_into(&mut spec.backup.retention));
        assert!(message.contains("spec.backup.retention") && message.contains("7d"), "{message}");
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
