//! Watching: what comes, in which order, from when, and how it ends.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::custom::Definition;
use crate::reply::version;
use crate::runner::cases;
use crate::world::{Patch, World};

cases![
    a_watch_from_a_version_shows_each_change_in_order,
    a_watch_without_a_version_begins_with_what_there_is,
    a_watch_repeats_nothing_up_to_its_version,
    events_carry_whole_objects_with_kind_and_version,
    a_deleted_object_is_shown_as_it_was_with_a_new_version,
    an_object_that_begins_to_match_is_added_and_one_that_ceases_is_deleted,
    a_watch_of_one_object_is_a_field_selector,
    a_watch_of_a_namespace_sees_no_other,
    a_custom_resource_is_watched_like_any_other,
    a_status_write_is_seen_by_watchers,
    a_no_op_is_not_seen_by_watchers,
    bookmarks_come_when_asked_and_carry_a_version,
    initial_events_end_with_a_marked_bookmark needs WatchProgress,
    initial_events_demand_a_version_match,
    a_timeout_ends_the_watch,
    a_version_that_is_no_number_is_refused,
    a_watch_may_ask_for_metadata_only,
    a_watch_may_ask_for_rows,
    a_forgotten_version_is_410,
];

async fn now(w: &World) -> String {
    version(&w.get(&w.core("configmaps")).await.object())
}

async fn relabel(w: &World, name: &str, label: Value) {
    let patch = json!({"metadata": {"labels": {"l": label}}});
    w.patch(Patch::Merge, &w.core(&format!("configmaps/{name}")), &patch).await.code(200);
}

async fn a_watch_from_a_version_shows_each_change_in_order(w: World) {
    let start = now(&w).await;
    w.given_config_map("a", &json!({})).await;
    w.given_config_map("b", &json!({})).await;
    relabel(&w, "a", json!("x")).await;
    w.delete(&w.core("configmaps/b")).await.code(200);
    let mut watch = w.watch(&w.core("configmaps"), &format!("resourceVersion={start}&timeoutSeconds=30")).await;
    assert_eq!(watch.briefs(4).await, ["ADDED a", "ADDED b", "MODIFIED a", "DELETED b"]);
    w.given_config_map("c", &json!({})).await;
    assert_eq!(watch.briefs(1).await, ["ADDED c"], "and goes on with what happens now");
}

async fn a_watch_without_a_version_begins_with_what_there_is(w: World) {
    w.given_config_map("a", &json!({})).await;
    relabel(&w, "a", json!("x")).await;
    let mut watch = w.watch(&w.core("configmaps"), "fieldSelector=metadata.name%3Da&timeoutSeconds=30").await;
    let event = watch.event().await;
    assert_eq!(event.brief(), "ADDED a");
    assert_eq!(event.object["metadata"]["labels"]["l"], "x", "as it is now");
}

async fn a_watch_repeats_nothing_up_to_its_version(w: World) {
    let object = w.given_config_map("a", &json!({})).await;
    let mut watch =
        w.watch(&w.core("configmaps"), &format!("resourceVersion={}&timeoutSeconds=30", version(&object))).await;
    w.given_config_map("b", &json!({})).await;
    assert_eq!(watch.briefs(1).await, ["ADDED b"]);
}

async fn events_carry_whole_objects_with_kind_and_version(w: World) {
    let start = now(&w).await;
    let created = w.given_config_map("a", &json!({"k": "v"})).await;
    let query = format!("resourceVersion={start}&fieldSelector=metadata.name%3Da&timeoutSeconds=30");
    let mut watch = w.watch(&w.core("configmaps"), &query).await;
    assert_eq!(watch.event().await.object, created);
}

async fn a_deleted_object_is_shown_as_it_was_with_a_new_version(w: World) {
    let created = w.given_config_map("a", &json!({"k": "v"})).await;
    let query = format!("resourceVersion={}&fieldSelector=metadata.name%3Da&timeoutSeconds=30", version(&created));
    let mut watch = w.watch(&w.core("configmaps"), &query).await;
    w.delete(&w.core("configmaps/a")).await.code(200);
    let event = watch.event().await;
    assert_eq!(event.kind, "DELETED");
    assert_eq!(event.object["data"], json!({"k": "v"}));
    assert!(version(&event.object).parse::<u64>().unwrap() > version(&created).parse::<u64>().unwrap());
}

async fn an_object_that_begins_to_match_is_added_and_one_that_ceases_is_deleted(w: World) {
    let start = now(&w).await;
    w.given_config_map("a", &json!({})).await;
    relabel(&w, "a", json!("x")).await;
    relabel(&w, "a", json!("y")).await;
    relabel(&w, "a", json!("x")).await;
    w.patch(Patch::Merge, &w.core("configmaps/a"), &json!({"data": {"k": "v"}})).await.code(200);
    w.delete(&w.core("configmaps/a")).await.code(200);
    let query = format!("resourceVersion={start}&labelSelector=l%3Dx&timeoutSeconds=30");
    let mut watch = w.watch(&w.core("configmaps"), &query).await;
    assert_eq!(watch.briefs(5).await, ["ADDED a", "DELETED a", "ADDED a", "MODIFIED a", "DELETED a"]);
}

async fn a_watch_of_one_object_is_a_field_selector(w: World) {
    let start = now(&w).await;
    w.given_config_map("a", &json!({})).await;
    w.given_config_map("b", &json!({})).await;
    relabel(&w, "b", json!("x")).await;
    let query = format!("resourceVersion={start}&fieldSelector=metadata.name%3Db&timeoutSeconds=30");
    let mut watch = w.watch(&w.core("configmaps"), &query).await;
    assert_eq!(watch.briefs(2).await, ["ADDED b", "MODIFIED b"]);
}

async fn a_watch_of_a_namespace_sees_no_other(w: World) {
    let other = format!("{}-other", w.ns);
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}});
    w.post("/api/v1/namespaces", &namespace).await.code(201);
    w.discard(format!("/api/v1/namespaces/{other}"));
    let start = now(&w).await;
    let body =
        |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"l": "x"}}});
    w.post(&format!("/api/v1/namespaces/{other}/configmaps"), &body("elsewhere")).await.code(201);
    w.post(&w.core("configmaps"), &body("here")).await.code(201);
    let query = format!("resourceVersion={start}&labelSelector=l%3Dx&timeoutSeconds=30");
    let mut watch = w.watch(&w.core("configmaps"), &query).await;
    assert_eq!(watch.briefs(1).await, ["ADDED here"]);
    let query = format!("{query}&fieldSelector=metadata.namespace%3D{other}");
    let mut everywhere = w.watch("/api/v1/configmaps", &query).await;
    assert_eq!(everywhere.briefs(1).await, ["ADDED elsewhere"]);
}

async fn a_custom_resource_is_watched_like_any_other(w: World) {
    let widgets = w.install(Definition::with_properties(&w, &json!({"size": {"type": "integer"}}))).await;
    let start = version(&w.get(&widgets.path).await.object());
    widgets.given(&w, "a", &json!({"size": 1})).await;
    w.patch(Patch::Merge, &widgets.at("a"), &json!({"spec": {"size": 2}})).await.code(200);
    w.delete(&widgets.at("a")).await.code(200);
    let mut watch = w.watch(&widgets.path, &format!("resourceVersion={start}&timeoutSeconds=30")).await;
    assert_eq!(watch.briefs(3).await, ["ADDED a", "MODIFIED a", "DELETED a"]);
}

async fn a_status_write_is_seen_by_watchers(w: World) {
    let widgets = w.install(Definition::with_properties(&w, &json!({}))).await;
    let object = widgets.given(&w, "a", &json!({})).await;
    w.patch(Patch::Merge, &widgets.at("a/status"), &json!({"status": {"phase": "Ready"}})).await.code(200);
    let mut watch = w.watch(&widgets.path, &format!("resourceVersion={}&timeoutSeconds=30", version(&object))).await;
    let event = watch.event().await;
    assert_eq!(event.brief(), "MODIFIED a");
    assert_eq!(event.object["status"]["phase"], "Ready");
}

async fn a_no_op_is_not_seen_by_watchers(w: World) {
    let object = w.given_config_map("a", &json!({"k": "v"})).await;
    w.patch(Patch::Merge, &w.core("configmaps/a"), &json!({"data": {"k": "v"}})).await.code(200);
    relabel(&w, "a", json!("x")).await;
    let query = format!("resourceVersion={}&fieldSelector=metadata.name%3Da&timeoutSeconds=30", version(&object));
    let mut watch = w.watch(&w.core("configmaps"), &query).await;
    let event = watch.event().await;
    assert_eq!(event.object["metadata"]["labels"]["l"], "x", "the first change is the first real one");
}

async fn bookmarks_come_when_asked_and_carry_a_version(w: World) {
    let start = now(&w).await;
    // A bookmark comes at the latest just before the watch times out.
    let query = format!("resourceVersion={start}&allowWatchBookmarks=true&timeoutSeconds=4");
    let mut watch = w.watch(&w.core("configmaps"), &query).await;
    while let Some(event) = watch.next().await {
        if event.kind == "BOOKMARK" {
            assert_eq!(event.object["kind"], "ConfigMap");
            assert!(version(&event.object).parse::<u64>().unwrap() >= start.parse::<u64>().unwrap());
            return;
        }
    }
    panic!("no bookmark came");
}

async fn initial_events_end_with_a_marked_bookmark(w: World) {
    w.given_config_map("a", &json!({})).await;
    w.given_config_map("b", &json!({})).await;
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=30";
    let mut watch = w.watch(&w.core("configmaps"), query).await;
    let mut seen = vec![];
    let bookmark = loop {
        let event = watch.event().await;
        if event.kind == "BOOKMARK" {
            break event;
        }
        assert_eq!(event.kind, "ADDED");
        seen.push(event.object["metadata"]["name"].clone());
    };
    assert!(seen.contains(&json!("a")) && seen.contains(&json!("b")), "{seen:?}");
    assert_eq!(bookmark.object["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    w.given_config_map("c", &json!({})).await;
    loop {
        if watch.event().await.brief() == "ADDED c" {
            break;
        }
    }
}

async fn initial_events_demand_a_version_match(w: World) {
    let refusal = w.get(&format!("{}?watch=true&sendInitialEvents=true", w.core("configmaps"))).await;
    refusal.refused(422, "Invalid").mentioning(&[
        "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
    ]);
}

async fn a_timeout_ends_the_watch(w: World) {
    let began = Instant::now();
    let start = now(&w).await;
    let mut watch = w.watch(&w.core("secrets"), &format!("resourceVersion={start}&timeoutSeconds=1")).await;
    assert!(watch.next().await.is_none(), "nothing happens to secrets here");
    assert!(began.elapsed() >= Duration::from_millis(900), "{:?}", began.elapsed());
}

async fn a_version_that_is_no_number_is_refused(w: World) {
    let refusal = w.get(&format!("{}?watch=true&resourceVersion=x&timeoutSeconds=1", w.core("configmaps"))).await;
    assert!(refusal.code >= 400, "{}", refusal.describe());
    refusal.mentioning(&["resourceVersion: Invalid value: \"x\""]);
}

async fn a_watch_may_ask_for_metadata_only(w: World) {
    let start = now(&w).await;
    w.given_config_map("a", &json!({"k": "v"})).await;
    let path = format!("{}?watch=true&resourceVersion={start}&timeoutSeconds=2", w.core("configmaps"));
    let reply = w.get_as(&path, "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").await.code(200);
    let events: Vec<Value> = reply.text.lines().map(|line| serde_json::from_str(line).expect("an event")).collect();
    let event = events.iter().find(|event| event["object"]["metadata"]["name"] == "a").expect("the event of a");
    assert_eq!(event["object"]["kind"], "PartialObjectMetadata");
    assert!(event["object"].get("data").is_none(), "{event}");
}

async fn a_watch_may_ask_for_rows(w: World) {
    let start = now(&w).await;
    w.given_config_map("a", &json!({"k": "v"})).await;
    let path = format!("{}?watch=true&resourceVersion={start}&timeoutSeconds=2", w.core("configmaps"));
    let reply = w.get_as(&path, "application/json;as=Table;g=meta.k8s.io;v=v1").await.code(200);
    let first: Value = serde_json::from_str(reply.text.lines().next().unwrap_or_default()).expect("an event");
    assert_eq!(first["object"]["kind"], "Table");
    assert!(first["object"]["columnDefinitions"].is_array(), "{first}");
    assert_eq!(first["object"]["rows"].as_array().map(Vec::len), Some(1), "{first}");
}

/// A server keeps some history. How much is its own affair, so this case writes until the first version is forgotten.
async fn a_forgotten_version_is_410(w: World) {
    let path = format!("{}?watch=true&resourceVersion=1&timeoutSeconds=1", w.core("configmaps"));
    for round in 0..40 {
        let reply = w.get(&path).await.code(200);
        let last: Value =
            reply.text.lines().next_back().map_or(Value::Null, |line| serde_json::from_str(line).expect("an event"));
        if last["type"] == "ERROR" {
            let status = &last["object"];
            assert_eq!((&status["code"], &status["reason"]), (&json!(410), &json!("Expired")), "{status}");
            assert!(
                status["message"].as_str().is_some_and(|m| m.starts_with("too old resource version: 1 (")),
                "{status}"
            );
            return;
        }
        // Several at once, each to an object of its own: history is one for all.
        let writers = (0..20).map(|writer| {
            let w = w.clone();
            async move {
                for n in 0..25 {
                    let patch = json!({"metadata": {"labels": {"l": format!("{round}-{n}")}}});
                    let body = w.config_map(&format!("w{writer}"), &json!({}));
                    if round == 0 && n == 0 {
                        w.post(&w.core("configmaps"), &body).await.code(201);
                    }
                    w.patch(Patch::Merge, &w.core(&format!("configmaps/w{writer}")), &patch).await.code(200);
                }
            }
        });
        futures::future::join_all(writers).await;
    }
    panic!("20,000 changes later, the first is still not forgotten");
}
