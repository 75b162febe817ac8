//! Deleting: at once, on conditions, gracefully, with dependents; and writing without writing (dry runs).

use serde_json::{Value, json};

use crate::custom::Definition;
use crate::reply::{names, uid, version};
use crate::runner::cases;
use crate::world::{Patch, World};

cases![
    a_delete_answers_with_a_status_that_names_the_object,
    a_delete_of_a_missing_object_is_404,
    a_delete_with_another_uid_conflicts,
    a_delete_with_an_old_version_conflicts,
    a_delete_whose_preconditions_hold_happens,
    a_finalizer_holds_the_object,
    a_held_object_goes_with_its_last_finalizer,
    a_held_object_takes_no_new_finalizer,
    a_deletion_cant_be_undone,
    a_deletion_counts_as_a_generation,
    a_second_delete_of_a_held_object_is_accepted,
    a_pod_on_no_node_goes_at_once,
    a_pod_on_a_node_waits_for_its_grace_period,
    a_grace_period_of_zero_removes_a_pod_at_once,
    a_collection_is_deleted_by_selector,
    orphan_and_foreground_hold_the_owner_by_a_finalizer,
    an_unknown_propagation_is_refused,
    dependents_go_with_their_owner needs Controllers,
    orphans_stay_and_lose_their_owner needs Controllers,
    a_foreground_deletion_waits_for_its_dependents needs Controllers,
    a_dependent_of_another_incarnation_is_collected needs Controllers,
    a_dry_create_stores_nothing,
    a_dry_update_and_patch_store_nothing,
    a_dry_delete_deletes_nothing,
    an_unknown_dry_run_is_refused,
    a_terminating_namespace_takes_no_new_objects,
    a_deleted_namespace_takes_its_objects_along needs Controllers,
];

async fn held(w: &World) -> Value {
    let mut body = w.config_map("a", &json!({"k": "v"}));
    body["metadata"]["finalizers"] = json!(["example.com/hold"]);
    w.post(&w.core("configmaps"), &body).await.code(201).object()
}

async fn release(w: &World, path: &str) {
    w.patch(Patch::Merge, path, &json!({"metadata": {"finalizers": null}})).await;
}

async fn a_delete_answers_with_a_status_that_names_the_object(w: World) {
    let object = w.given_config_map("a", &json!({})).await;
    let status = w.delete(&w.core("configmaps/a")).await.code(200).object();
    assert_eq!(status["kind"], "Status");
    assert_eq!(status["status"], "Success");
    assert_eq!(status["details"], json!({"name": "a", "kind": "configmaps", "uid": uid(&object)}));
    w.get(&w.core("configmaps/a")).await.refused(404, "NotFound");
}

async fn a_delete_of_a_missing_object_is_404(w: World) {
    w.delete(&w.core("configmaps/a")).await.refused(404, "NotFound").saying("configmaps \"a\" not found");
}

async fn a_delete_with_another_uid_conflicts(w: World) {
    let object = w.given_config_map("a", &json!({})).await;
    let other = "00000000-0000-0000-0000-000000000000";
    let options = json!({"preconditions": {"uid": other}});
    w.delete_with(&w.core("configmaps/a"), &options).await.refused(409, "Conflict").saying(&format!(
        "Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition ({other}) does not match the UID in \
         record ({}). The object might have been deleted and then recreated",
        uid(&object)
    ));
    w.get(&w.core("configmaps/a")).await.code(200);
}

async fn a_delete_with_an_old_version_conflicts(w: World) {
    let first = w.given_config_map("a", &json!({})).await;
    let second = w.patch(Patch::Merge, &w.core("configmaps/a"), &json!({"data": {"k": "v"}})).await.object();
    let options = json!({"preconditions": {"resourceVersion": version(&first)}});
    w.delete_with(&w.core("configmaps/a"), &options).await.refused(409, "Conflict").saying(&format!(
        "Operation cannot be fulfilled on ConfigMap \"a\": the ResourceVersion in the precondition ({}) does not match the \
         ResourceVersion in record ({}). The object might have been modified",
        version(&first),
        version(&second)
    ));
}

async fn a_delete_whose_preconditions_hold_happens(w: World) {
    let object = w.given_config_map("a", &json!({})).await;
    let options = json!({"preconditions": {"uid": uid(&object), "resourceVersion": version(&object)}});
    w.delete_with(&w.core("configmaps/a"), &options).await.code(200);
    w.get(&w.core("configmaps/a")).await.code(404);
}

async fn a_finalizer_holds_the_object(w: World) {
    held(&w).await;
    let object = w.delete(&w.core("configmaps/a")).await.code(200).object();
    assert_eq!(object["kind"], "ConfigMap", "what is held is shown, not a Status");
    assert!(object["metadata"]["deletionTimestamp"].is_string(), "{object}");
    assert_eq!(object["metadata"]["deletionGracePeriodSeconds"], 0);
    w.get(&w.core("configmaps/a")).await.code(200);
    release(&w, &w.core("configmaps/a")).await;
}

async fn a_held_object_goes_with_its_last_finalizer(w: World) {
    let object = held(&w).await;
    let path = w.core("configmaps/a");
    w.delete(&path).await.code(200);
    let query = format!("resourceVersion={}&fieldSelector=metadata.name%3Da&timeoutSeconds=30", version(&object));
    let mut watch = w.watch(&w.core("configmaps"), &query).await;
    let last = w.patch(Patch::Merge, &path, &json!({"metadata": {"finalizers": []}})).await.code(200).object();
    assert!(last["metadata"].get("finalizers").is_none(), "{last}");
    w.get(&path).await.refused(404, "NotFound");
    assert_eq!(watch.briefs(2).await, ["MODIFIED a", "DELETED a"]);
}

async fn a_held_object_takes_no_new_finalizer(w: World) {
    held(&w).await;
    let path = w.core("configmaps/a");
    w.delete(&path).await.code(200);
    let more = json!({"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}});
    w.patch(Patch::Merge, &path, &more).await.refused(422, "Invalid").mentioning(&[
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers",
        "example.com/more",
    ]);
    release(&w, &path).await;
}

async fn a_deletion_cant_be_undone(w: World) {
    held(&w).await;
    let path = w.core("configmaps/a");
    w.delete(&path).await.code(200);
    let mut object = w.get(&path).await.object();
    let marked = object["metadata"]["deletionTimestamp"].clone();
    object["metadata"]["deletionTimestamp"] = Value::Null;
    object["data"]["k"] = json!("changed");
    let object = w.put(&path, &object).await.code(200).object();
    assert_eq!(object["metadata"]["deletionTimestamp"], marked);
    assert_eq!(object["data"]["k"], "changed", "while it is held it can still be written");
    release(&w, &path).await;
}

async fn a_deletion_counts_as_a_generation(w: World) {
    let widgets = w.install(Definition::with_properties(&w, &json!({}))).await;
    let mut body = widgets.object("a", &json!({}));
    body["metadata"]["finalizers"] = json!(["example.com/hold"]);
    w.post(&widgets.path, &body).await.code(201);
    let object = w.delete(&widgets.at("a")).await.code(200).object();
    assert_eq!(object["metadata"]["generation"], 2);
    release(&w, &widgets.at("a")).await;
    w.get(&widgets.at("a")).await.code(404);
}

async fn a_second_delete_of_a_held_object_is_accepted(w: World) {
    held(&w).await;
    let path = w.core("configmaps/a");
    let first = w.delete(&path).await.code(200).object();
    let second = w.delete(&path).await.code(200).object();
    assert_eq!(first["metadata"]["deletionTimestamp"], second["metadata"]["deletionTimestamp"]);
    release(&w, &path).await;
}

async fn a_pod_on_no_node_goes_at_once(w: World) {
    w.given_pod(&w.pod("a")).await;
    w.delete(&w.core("pods/a")).await.code(200);
    w.get(&w.core("pods/a")).await.refused(404, "NotFound");
}

fn placed(w: &World) -> Value {
    let mut pod = w.pod("a");
    pod["spec"]["nodeName"] = json!(format!("node-{}", w.id));
    pod["spec"]["terminationGracePeriodSeconds"] = json!(120);
    pod
}

async fn a_pod_on_a_node_waits_for_its_grace_period(w: World) {
    w.given_pod(&placed(&w)).await;
    let pod = w.delete(&w.core("pods/a")).await.code(200).object();
    assert_eq!(pod["kind"], "Pod");
    assert!(pod["metadata"]["deletionTimestamp"].is_string(), "{pod}");
    assert_eq!(pod["metadata"]["deletionGracePeriodSeconds"], 120);
    assert_eq!(w.get(&w.core("pods/a")).await.code(200).object()["metadata"]["deletionGracePeriodSeconds"], 120);
    let shorter = w.delete_with(&w.core("pods/a"), &json!({"gracePeriodSeconds": 5})).await.code(200).object();
    assert_eq!(shorter["metadata"]["deletionGracePeriodSeconds"], 5, "a grace period may be shortened");
    w.delete_with(&w.core("pods/a"), &json!({"gracePeriodSeconds": 0})).await.code(200);
}

async fn a_grace_period_of_zero_removes_a_pod_at_once(w: World) {
    w.given_pod(&placed(&w)).await;
    w.delete_with(&w.core("pods/a"), &json!({"gracePeriodSeconds": 0})).await.code(200);
    w.get(&w.core("pods/a")).await.refused(404, "NotFound");
}

async fn a_collection_is_deleted_by_selector(w: World) {
    for (name, label) in [("a", "x"), ("b", "x"), ("c", "y")] {
        let mut body = w.config_map(name, &json!({}));
        body["metadata"]["labels"] = json!({"l": label});
        w.post(&w.core("configmaps"), &body).await.code(201);
    }
    let deleted = w.delete(&format!("{}?labelSelector=l%3Dx", w.core("configmaps"))).await.code(200).object();
    assert_eq!(deleted["kind"], "ConfigMapList");
    assert_eq!(names(&deleted), ["a", "b"]);
    let left = w.get(&format!("{}?labelSelector=l", w.core("configmaps"))).await.object();
    assert_eq!(names(&left), ["c"]);
}

async fn orphan_and_foreground_hold_the_owner_by_a_finalizer(w: World) {
    for (policy, finalizer) in [("Orphan", "orphan"), ("Foreground", "foregroundDeletion")] {
        // Held by a finalizer of ours too, so that a collector is not quicker than this case.
        held(&w).await;
        let path = w.core("configmaps/a");
        let object = w.delete_with(&path, &json!({"propagationPolicy": policy})).await.code(200).object();
        let finalizers = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        assert!(finalizers.contains(&json!(finalizer)), "{policy}: {finalizers:?}");
        release(&w, &path).await;
        w.until("the object to go", async || (w.get(&path).await.code == 404).then_some(())).await;
    }
}

async fn an_unknown_propagation_is_refused(w: World) {
    w.given_config_map("a", &json!({})).await;
    w.delete_with(&w.core("configmaps/a"), &json!({"propagationPolicy": "Sideways"}))
        .await
        .refused(422, "Invalid")
        .mentioning(&["propagationPolicy: Unsupported value: \"Sideways\": supported values: \"Foreground\", \"Background\", \"Orphan\""]);
}

async fn owner_and_dependent(w: &World) -> Value {
    let owner = w.given_config_map("owner", &json!({})).await;
    let mut dependent = w.config_map("dependent", &json!({}));
    dependent["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid(&owner), "blockOwnerDeletion": true,
    }]);
    w.post(&w.core("configmaps"), &dependent).await.code(201);
    owner
}

async fn dependents_go_with_their_owner(w: World) {
    owner_and_dependent(&w).await;
    w.delete(&w.core("configmaps/owner")).await.code(200);
    let dependent = w.core("configmaps/dependent");
    w.until("the dependent to go", async || (w.get(&dependent).await.code == 404).then_some(())).await;
}

async fn orphans_stay_and_lose_their_owner(w: World) {
    owner_and_dependent(&w).await;
    w.delete_with(&w.core("configmaps/owner"), &json!({"propagationPolicy": "Orphan"})).await.code(200);
    let owner = w.core("configmaps/owner");
    w.until("the owner to go", async || (w.get(&owner).await.code == 404).then_some(())).await;
    let dependent = w.get(&w.core("configmaps/dependent")).await.code(200).object();
    assert!(dependent["metadata"].get("ownerReferences").is_none(), "{dependent}");
}

async fn a_foreground_deletion_waits_for_its_dependents(w: World) {
    owner_and_dependent(&w).await;
    let dependent = w.core("configmaps/dependent");
    w.patch(Patch::Merge, &dependent, &json!({"metadata": {"finalizers": ["example.com/hold"]}})).await.code(200);
    w.delete_with(&w.core("configmaps/owner"), &json!({"propagationPolicy": "Foreground"})).await.code(200);
    w.until("the dependent to be marked", async || {
        w.get(&dependent).await.object()["metadata"]["deletionTimestamp"].is_string().then_some(())
    })
    .await;
    w.get(&w.core("configmaps/owner")).await.code(200);
    release(&w, &dependent).await;
    let owner = w.core("configmaps/owner");
    w.until("the owner to go", async || (w.get(&owner).await.code == 404).then_some(())).await;
}

async fn a_dependent_of_another_incarnation_is_collected(w: World) {
    w.given_config_map("owner", &json!({})).await;
    let mut dependent = w.config_map("dependent", &json!({}));
    dependent["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "00000000-0000-0000-0000-000000000000",
    }]);
    w.post(&w.core("configmaps"), &dependent).await.code(201);
    let dependent = w.core("configmaps/dependent");
    w.until("the dependent to go", async || (w.get(&dependent).await.code == 404).then_some(())).await;
}

async fn a_dry_create_stores_nothing(w: World) {
    let path = format!("{}?dryRun=All", w.core("configmaps"));
    let object = w.post(&path, &w.config_map("a", &json!({"k": "v"}))).await.code(201).object();
    assert_eq!(object["data"], json!({"k": "v"}));
    assert_eq!(uid(&object).len(), 36, "it answers as if it had been stored");
    w.get(&w.core("configmaps/a")).await.refused(404, "NotFound");
    w.post(&path, &w.config_map("Bad_Name", &json!({}))).await.refused(422, "Invalid");
}

async fn a_dry_update_and_patch_store_nothing(w: World) {
    let before = w.given_config_map("a", &json!({"k": "1"})).await;
    let path = format!("{}?dryRun=All", w.core("configmaps/a"));
    let answered = w.put(&path, &w.config_map("a", &json!({"k": "2"}))).await.code(200).object();
    assert_eq!(answered["data"]["k"], "2");
    let answered = w.patch(Patch::Merge, &path, &json!({"data": {"k": "3"}})).await.code(200).object();
    assert_eq!(answered["data"]["k"], "3");
    assert_eq!(w.get(&w.core("configmaps/a")).await.object(), before);
}

async fn a_dry_delete_deletes_nothing(w: World) {
    let before = w.given_config_map("a", &json!({"k": "1"})).await;
    w.delete(&format!("{}?dryRun=All", w.core("configmaps/a"))).await.code(200);
    w.delete_with(&w.core("configmaps/a"), &json!({"dryRun": ["All"]})).await.code(200);
    assert_eq!(w.get(&w.core("configmaps/a")).await.object(), before);
}

async fn an_unknown_dry_run_is_refused(w: World) {
    let refusal = w.post(&format!("{}?dryRun=Some", w.core("configmaps")), &w.config_map("a", &json!({}))).await;
    refusal.refused(422, "Invalid").mentioning(&["dryRun: Unsupported value: [\"Some\"]: supported values: \"All\""]);
}

async fn a_terminating_namespace_takes_no_new_objects(w: World) {
    let ns = format!("{}-ending", w.ns);
    let path = format!("/api/v1/namespaces/{ns}");
    let body =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ns, "finalizers": ["example.com/hold"]}});
    w.post("/api/v1/namespaces", &body).await.code(201);
    w.discard(path.clone());
    let ending = w.delete(&path).await.code(200).object();
    assert_eq!(ending["status"]["phase"], "Terminating");
    let refusal = w
        .post(&format!("{path}/configmaps"), &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}))
        .await
        .refused(403, "Forbidden")
        .saying(&format!(
            "configmaps \"a\" is forbidden: unable to create new content in namespace {ns} because it is being terminated"
        ));
    assert_eq!(
        refusal.cause("metadata.namespace", "NamespaceTerminating"),
        format!("namespace {ns} is being terminated")
    );
    release(&w, &path).await;
}

async fn a_deleted_namespace_takes_its_objects_along(w: World) {
    let ns = format!("{}-ending", w.ns);
    let path = format!("/api/v1/namespaces/{ns}");
    w.post("/api/v1/namespaces", &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ns}}))
        .await
        .code(201);
    w.discard(path.clone());
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    w.post(&format!("{path}/configmaps"), &body).await.code(201);
    w.delete(&path).await.code(200);
    w.until("the namespace to go", async || (w.get(&path).await.code == 404).then_some(())).await;
    w.get(&format!("{path}/configmaps/a")).await.code(404);
}
