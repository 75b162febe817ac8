//! Bad input is refused with a message that names the field, the value and the fix: every row of the shared table.
//!
//! What the structural schema refuses (replicas 0, 11 and "three", version 13 and "latest") is worded by the API server; the
//! facts it words are asserted in `shape`, the words in the conformance suite and end to end.

use bellwether_api::testing::refused::{Refusal, Refuser, backup_refusals, refusals as refused};
use serde_json::json;

use super::{manifest, refusals};

/// The rows of both kinds.
fn table() -> Vec<Refusal> {
    refused().into_iter().chain(backup_refusals()).collect()
}

#[test]
fn every_row_of_the_table_is_refused_in_one_message_with_all_its_words() {
    let mut seen = 0;
    for row in table().into_iter().filter(|row| row.by == Refuser::Rule) {
        let messages = refusals(&row.manifest, row.before.as_ref());
        let named = messages.iter().any(|message| row.words.iter().all(|word| message.contains(word)));
        assert!(named, "{}: no message names {:?}: {messages:#?}", row.name, row.words);
        // A value that can't be read leaves only the static message, which starts otherwise.
        assert_eq!(messages.len(), 1, "{}: one mistake, one message: {messages:#?}", row.name);
        seen += 1;
    }
    assert!(seen > 100, "only {seen} rows");
}

#[test]
fn what_a_row_changes_from_is_accepted() {
    for (row, before) in table().iter().filter_map(|row| Some((row, row.before.as_ref()?))) {
        assert_eq!(refusals(before, None), [""; 0], "{}", row.name);
    }
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

#[test]
fn another_major_version_may_be_corrected_before_the_database_exists() {
    let (before, after) = (manifest(&json!({ "version": "16" })), manifest(&json!({ "version": "17" })));
    assert_eq!(refusals(&after, Some(&before)), [""; 0]);
}
