//! Bad input is refused with a message that names the field, the value and the fix.
//!
//! What the structural schema refuses (replicas 0, 11 and "three", version 13 and "latest") is worded by the API server; the
//! facts it words are asserted in `shape`, the words in the conformance suite.

use rstest::rstest;
use serde_json::{Value, json};

use super::{manifest, refusals};

/// One message has all of these.
fn assert_refused(messages: &[String], wanted: [&str; 3]) {
    let named = messages.iter().any(|message| wanted.iter().all(|part| message.contains(part)));
    assert!(named, "no message names {wanted:?}: {messages:#?}");
    // A value that can't be read leaves only the static message, which starts otherwise.
    assert_eq!(messages.len(), 1, "one mistake, one message: {messages:#?}");
}

#[rstest]
#[case::four_fields("0 2 * *", "doesn't have five fields")]
#[case::six_fields("0 0 2 * * *", "doesn't have five fields")]
#[case::nothing("", "doesn't have five fields")]
#[case::a_nickname("@daily", "doesn't have five fields")]
#[case::the_31st_of_february("0 2 31 2 *", "choose a day that the month has")]
#[case::the_30th_of_february("0 2 30 2 *", "choose a day that the month has")]
#[case::a_range_of_missing_days("0 2 30-31 FEB *", "choose a day that the month has")]
#[case::a_stepped_range_of_missing_days("0 2 30-31/1 2 *", "choose a day that the month has")]
#[case::a_list_of_missing_days("0 2 30,31 02 *", "choose a day that the month has")]
#[case::the_31st_of_april("0 2 31 4 *", "choose a day that the month has")]
#[case::the_31st_of_short_months("0 2 31 apr,6,SEP,11 *", "choose a day that the month has")]
#[case::minute_60("60 2 * * *", "wrong minute: write *, or 0-59")]
#[case::hour_24("0 24 * * *", "wrong hour: write *, or 0-23")]
#[case::day_0("0 2 0 * *", "wrong day of month: write *, or 1-31")]
#[case::day_32("0 2 1,32 * *", "wrong day of month: write *, or 1-31")]
#[case::month_13("0 2 * 1-13 *", "wrong month: write *, or 1-12 or JAN-DEC")]
#[case::a_month_that_is_none("0 2 * FOO *", "wrong month: write *, or 1-12 or JAN-DEC")]
#[case::weekday_8("0 2 * * 8", "wrong day of week: write *, or 0-7 or SUN-SAT")]
#[case::a_step_of_nothing("*/0 2 * * *", "wrong minute")]
#[case::a_step_behind_a_number("5/10 2 * * *", "wrong minute")]
#[case::a_question_mark("0 2 ? * *", "wrong day of month")]
#[case::a_range_backwards("0 5-1 * * *", "write the smaller end first")]
#[case::weekdays_backwards("0 2 * * FRI-SUN", "write the smaller end first")]
fn a_bad_schedule(#[case] schedule: &str, #[case] fix: &str) {
    let spec = json!({ "backup": { "schedule": schedule } });
    assert_refused(&refusals(&manifest(&spec), None), ["spec.backup.schedule", &format!("\"{schedule}\""), fix]);
}

#[rstest]
#[case("7 days")]
#[case("7")]
#[case("0d")]
#[case("7D")]
#[case("1w2d")]
fn a_bad_retention(#[case] retention: &str) {
    let spec = json!({ "backup": { "retention": retention } });
    assert_refused(
        &refusals(&manifest(&spec), None),
        ["spec.backup.retention", &format!("\"{retention}\""), "such as 7d"],
    );
}

#[rstest]
#[case::bytes(json!("100"), "\"100\"")]
#[case::bytes_as_a_number(json!(100), "\"100\"")]
#[case::words(json!("lots"), "\"lots\"")]
#[case::negative(json!("-5Gi"), "\"-5Gi\"")]
#[case::zero(json!("0"), "\"0\"")]
fn a_bad_size(#[case] size: Value, #[case] value: &str) {
    let data = json!({ "storage": { "size": size } });
    assert_refused(&refusals(&manifest(&data), None), ["spec.storage.size", value, "such as 100Gi"]);
    let wal = json!({ "storage": { "wal": { "size": size } } });
    assert_refused(&refusals(&manifest(&wal), None), ["spec.storage.wal.size", value, "such as 100Gi"]);
}

#[rstest]
#[case("listen_addresses", "connect through the Services")]
#[case("port", "connect through the Services")]
#[case("data_directory", "write settings in spec.parameters")]
#[case("include", "write settings in spec.parameters")]
#[case("ssl", "who may log in is said in spec.pgHba")]
#[case("ssl_min_protocol_version", "who may log in is said in spec.pgHba")]
#[case("synchronous_standby_names", "set spec.durability.mode")]
#[case("synchronous_commit", "set spec.durability.mode")]
#[case("fsync", "spec.durability.mode: async")]
#[case("primary_conninfo", "set spec.replicas")]
#[case("recovery_target_time", "use spec.backup")]
#[case("archive_command", "use spec.backup")]
#[case("logging_collector", "kubectl logs")]
#[case("data_checksums", "spec.bootstrap.initdb")]
fn an_owned_parameter(#[case] name: &str, #[case] fix: &str) {
    let spec = json!({ "parameters": { "work_mem": "64MB", name: "mine" } });
    let field = format!("spec.parameters.{name}");
    assert_refused(&refusals(&manifest(&spec), None), [&field, "\"mine\"", fix]);
}

#[test]
fn every_owned_parameter_is_refused() {
    let topics = bellwether_api::owned::TOPICS;
    let prefixed = topics.iter().flat_map(|topic| topic.prefixes).map(|prefix| format!("{prefix}x"));
    for name in topics.iter().flat_map(|topic| topic.names).map(|name| (*name).to_owned()).chain(prefixed) {
        let messages = refusals(&manifest(&json!({ "parameters": { &name: "mine" } })), None);
        assert_eq!(messages.len(), 1, "{name}: {messages:?}");
    }
}

#[rstest]
#[case("Work_Mem")]
#[case("work mem")]
#[case("work-mem")]
#[case("a.b.c")]
#[case("x = 1\ny")]
fn a_name_that_is_no_setting(#[case] name: &str) {
    let messages = refusals(&manifest(&json!({ "parameters": { name: "1" } })), None);
    assert_refused(&messages, ["spec.parameters", "is no name of a PostgreSQL setting", "such as work_mem"]);
}

#[test]
fn a_setting_with_a_line_break() {
    let messages = refusals(&manifest(&json!({ "parameters": { "work_mem": "1MB'\nport = '1" } })), None);
    assert_refused(&messages, ["spec.parameters.work_mem", "line break", "write the value on one line"]);
}

#[rstest]
#[case::too_short("host all all trust", "\"host all all trust\"")]
#[case::an_unknown_type("inside all all trust", "\"inside all all trust\"")]
#[case::an_include("include /etc/passwd", "\"include /etc/passwd\"")]
#[case::only_a_type("host", "\"host\"")]
#[case::a_comment("# host all all all trust", "\"# host all all all trust\"")]
#[case::two_lines("host all all all md5\nlocal all all trust", "")]
fn a_bad_hba_line(#[case] line: &str, #[case] value: &str) {
    let messages = refusals(&manifest(&json!({ "pgHba": [line] })), None);
    assert_refused(&messages, ["spec.pgHba[]", value, "such as hostssl all all 10.0.0.0/8 scram-sha-256"]);
}

#[rstest]
#[case::running_on("host all all all trust \\", "remove the backslash")]
#[case::an_open_quote("host \"all all all trust", "close it")]
#[case::a_file("host @databases all all trust", "write the names themselves")]
fn an_hba_line_that_reaches_beyond_itself(#[case] line: &str, #[case] fix: &str) {
    assert_refused(
        &refusals(&manifest(&json!({ "pgHba": [line] })), None),
        ["spec.pgHba[]", &format!("\"{line}\""), fix],
    );
}

#[rstest]
#[case("postgres", "choose another name")]
#[case("template1", "choose another name")]
#[case("pg_toast", "choose another name")]
#[case("bellwether_replication", "choose another name")]
#[case("replication", "choose another name")]
#[case("Orders", "write lower-case letters")]
#[case("1st", "write lower-case letters")]
#[case("a b", "write lower-case letters")]
#[case("", "write lower-case letters")]
fn a_bad_database_or_owner(#[case] name: &str, #[case] fix: &str) {
    for part in ["database", "owner"] {
        let spec = json!({ "bootstrap": { "initdb": { part: name } } });
        let field = format!("spec.bootstrap.initdb.{part}");
        assert_refused(&refusals(&manifest(&spec), None), [&field, &format!("\"{name}\""), fix]);
    }
}

#[rstest]
#[case("icu", "C.UTF-8", "write a language tag like de-DE")]
#[case("icu", "de_DE.UTF-8", "write a language tag like de-DE")]
#[case("libc", "de-DE", "write C.UTF-8 or one like en_US.UTF-8")]
#[case("libc", "en_US", "write C.UTF-8 or one like en_US.UTF-8")]
#[case("libc", "de_DE.ISO-8859-1", "write C.UTF-8 or one like en_US.UTF-8")]
fn a_locale_of_another_provider(#[case] provider: &str, #[case] locale: &str, #[case] fix: &str) {
    let spec = json!({ "bootstrap": { "initdb": { "localeProvider": provider, "locale": locale } } });
    let messages = refusals(&manifest(&spec), None);
    assert_refused(&messages, ["spec.bootstrap.initdb.locale", &format!("\"{locale}\""), fix]);
}

#[test]
fn a_quorum_of_one() {
    let messages = refusals(&manifest(&json!({ "replicas": 1, "durability": { "mode": "quorum" } })), None);
    assert_refused(&messages, ["spec.durability.mode", "\"quorum\"", "set spec.replicas to 3, or the mode to async"]);
}

#[test]
fn a_request_above_its_limit() {
    let spec =
        json!({ "resources": { "requests": { "cpu": 1, "memory": "2Gi" }, "limits": { "cpu": 2, "memory": "1Gi" } } });
    let messages = refusals(&manifest(&spec), None);
    assert_refused(&messages, ["spec.resources.requests.memory", "\"2Gi\"", "lower the request or raise the limit"]);
}

#[test]
fn a_resource_that_is_no_quantity() {
    let messages = refusals(&manifest(&json!({ "resources": { "limits": { "memory": "much" } } })), None);
    assert_refused(&messages, ["spec.resources.limits.memory", "\"much\"", "512Mi or 4Gi for memory"]);
}

#[test]
fn an_image_with_a_space() {
    let messages = refusals(&manifest(&json!({ "image": "postgres 17" })), None);
    assert_refused(&messages, ["spec.image", "\"postgres 17\"", "such as postgres:17"]);
}

#[rstest]
#[case::a_digit_first("1orders")]
#[case::a_dot("orders.eu")]
#[case::a_hyphen_last("orders-")]
#[case::too_long("o23456789012345678901234567890123456789012345678901")]
fn a_name_that_services_can_not_have(#[case] name: &str) {
    let mut object = manifest(&json!({}));
    object["metadata"]["name"] = json!(name);
    assert_refused(&refusals(&object, None), ["metadata.name", &format!("\"{name}\""), "use at most 50"]);
}

#[rstest]
#[case::shrinking_storage(
    json!({ "storage": { "size": "100Gi" } }), json!({ "storage": { "size": "50Gi" } }),
    ["spec.storage.size", "\"50Gi\" (was \"100Gi\")", "set it back or raise it"])]
#[case::shrinking_in_another_unit(
    json!({ "storage": { "size": "1Ti" } }), json!({ "storage": { "size": "1000G" } }),
    ["spec.storage.size", "\"1000G\" (was \"1Ti\")", "set it back or raise it"])]
#[case::shrinking_to_the_default(
    json!({ "storage": { "size": "100Gi" } }), json!({}),
    ["spec.storage.size", "\"10Gi\" (was \"100Gi\")", "set it back or raise it"])]
#[case::shrinking_wal(
    json!({ "storage": { "wal": { "size": "20Gi" } } }), json!({ "storage": { "wal": { "size": "10Gi" } } }),
    ["spec.storage.wal.size", "\"10Gi\" (was \"20Gi\")", "set it back or raise it"])]
#[case::another_class(
    json!({ "storage": { "storageClass": "ssd" } }), json!({ "storage": { "storageClass": "hdd" } }),
    ["spec.storage.storageClass", "\"hdd\" (was \"ssd\")", "set it back"])]
#[case::a_class_where_none_was_named(
    json!({}), json!({ "storage": { "storageClass": "hdd" } }),
    ["spec.storage.storageClass", "\"hdd\" (was \"none\")", "set it back"])]
#[case::a_class_taken_away(
    json!({ "storage": { "storageClass": "ssd" } }), json!({}),
    ["spec.storage.storageClass", "\"none\" (was \"ssd\")", "set it back"])]
#[case::another_class_for_wal(
    json!({ "storage": { "wal": { "size": "20Gi" } } }),
    json!({ "storage": { "wal": { "size": "20Gi", "storageClass": "hdd" } } }),
    ["spec.storage.wal.storageClass", "\"hdd\" (was \"none\")", "set it back"])]
#[case::a_wal_volume_added(
    json!({}), json!({ "storage": { "wal": { "size": "20Gi" } } }),
    ["spec.storage.wal", "\"set\" (was \"unset\")", "set it back"])]
#[case::a_wal_volume_removed(
    json!({ "storage": { "wal": { "size": "20Gi" } } }), json!({}),
    ["spec.storage.wal", "\"unset\" (was \"set\")", "set it back"])]
#[case::another_database(
    json!({}), json!({ "bootstrap": { "initdb": { "database": "shop" } } }),
    ["spec.bootstrap.initdb.database", "\"shop\" (was \"app\")", "set it back"])]
#[case::another_owner(
    json!({}), json!({ "bootstrap": { "initdb": { "owner": "shop" } } }),
    ["spec.bootstrap.initdb.owner", "\"shop\" (was \"app\")", "set it back"])]
#[case::another_locale(
    json!({}), json!({ "bootstrap": { "initdb": { "locale": "en_US.UTF-8" } } }),
    ["spec.bootstrap.initdb.locale", "\"en_US.UTF-8\" (was \"C.UTF-8\")", "set it back"])]
#[case::no_more_checksums(
    json!({}), json!({ "bootstrap": { "initdb": { "dataChecksums": false } } }),
    ["spec.bootstrap.initdb.dataChecksums", "\"false\" (was \"true\")", "set it back"])]
#[case::more_sql(
    json!({ "bootstrap": { "initdb": { "postInitSql": ["SELECT 1"] } } }),
    json!({ "bootstrap": { "initdb": { "postInitSql": ["SELECT 1", "SELECT 2"] } } }),
    ["spec.bootstrap.initdb.postInitSql", "\"SELECT 2\" (was \"none\")", "run further SQL yourself"])]
#[case::another_password(
    json!({}), json!({ "bootstrap": { "initdb": { "ownerPassword": { "name": "s", "key": "k" } } } }),
    ["spec.bootstrap.initdb.ownerPassword", "\"s/k\" (was \"none\")", "ALTER ROLE"])]
fn a_change_of_what_can_not_change(#[case] before: Value, #[case] after: Value, #[case] wanted: [&str; 3]) {
    assert_refused(&refusals(&manifest(&after), Some(&manifest(&before))), wanted);
}

#[test]
fn another_major_version_once_the_database_exists() {
    let mut before = manifest(&json!({ "version": "16" }));
    let after = manifest(&json!({ "version": "17" }));
    assert_eq!(refusals(&after, Some(&before)), [""; 0], "before that it may be corrected");
    before["status"] = json!({ "systemIdentifier": "7400000000000000000" });
    assert_refused(&refusals(&after, Some(&before)), ["spec.version", "\"17\" (was \"16\")", "set it back"]);
}
