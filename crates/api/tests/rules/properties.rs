//! What holds for every spec that the schema accepts.

use bellwether_api::testing;
use bellwether_api::v1::PostgresCluster;
use bellwether_api::validate::validate;
use proptest::prelude::{ProptestConfig, proptest};
use proptest::{prop_assert, prop_assert_eq};
use serde_json::{Value, json};

use super::{manifest, refusals, stored};

fn json_of(cluster: &PostgresCluster) -> Value {
    serde_json::to_value(cluster).expect("a cluster is JSON")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_the_generator_makes_is_accepted(cluster in testing::clusters()) {
        prop_assert_eq!(refusals(&json_of(&cluster), None), [""; 0]);
        prop_assert_eq!(validate(&cluster), []);
    }

    #[test]
    fn a_cluster_reads_back_as_it_was_written(cluster in testing::clusters()) {
        let read: PostgresCluster = serde_json::from_value(json_of(&cluster)).expect("it reads back");
        prop_assert_eq!(read, cluster);
    }

    #[test]
    fn defaults_are_taken_once(cluster in testing::clusters()) {
        let once = stored(&json_of(&cluster));
        prop_assert_eq!(&stored(&once), &once);
        let read: PostgresCluster = serde_json::from_value(once).expect("it reads back");
        prop_assert_eq!(read, cluster);
    }

    #[test]
    fn writing_the_same_again_is_no_change(cluster in testing::clusters()) {
        let object = json_of(&cluster);
        prop_assert_eq!(refusals(&object, Some(&object)), [""; 0]);
    }

    /// The regular expressions of the schema and the cron parser that will run the schedule agree on every expression of
    /// plain numbers: what the schema accepts parses, and what it calls never-firing never fires.
    #[test]
    fn the_schema_and_the_scheduler_agree(
        minute in 0..70_u8, hour in 0..30_u8, day in 0..35_u8, last in 28..35_u8, month in 0..15_u8, weekday in "[*]|[0-9]",
    ) {
        for expression in [
            format!("{minute} {hour} {day} {month} {weekday}"),
            format!("{minute} {hour} {day}-{last} {month} {weekday}"),
            format!("{minute} {hour} {last} {month},4 {weekday}"),
        ] {
            let object = manifest(&json!({ "backup": { "schedule": expression } }));
            let cluster: PostgresCluster = serde_json::from_value(stored(&object)).expect("it is a cluster");
            let by_schema = refusals(&object, None);
            let by_scheduler = validate(&cluster);
            prop_assert!(by_schema.is_empty() == by_scheduler.is_empty(), "{expression}: {by_schema:?} {by_scheduler:?}");
        }
    }
}
