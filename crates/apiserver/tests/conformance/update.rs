//! Replacing objects: whose write wins, and what can't be changed.

use serde_json::{Value, json};

use crate::custom::{Definition, Resource};
use crate::reply::{uid, version};
use crate::runner::cases;
use crate::world::World;

cases![
    a_replacement_on_an_old_version_conflicts,
    a_replacement_without_a_version_wins_where_the_kind_allows_it,
    a_custom_resource_is_never_replaced_without_a_version,
    a_lease_is_replaced_by_compare_and_swap,
    a_lease_is_never_replaced_without_a_version,
    a_replacement_that_changes_nothing_keeps_the_version,
    generation_grows_with_the_spec_alone,
    a_replacement_with_another_uid_conflicts,
    a_replacement_of_a_missing_object_is_404,
    a_body_of_another_name_is_refused,
    what_the_server_gave_stays,
    an_immutable_config_map_stays_as_it_is,
    the_type_of_a_secret_stays,
    the_cluster_ip_of_a_service_stays,
    the_access_modes_of_a_claim_stay,
    the_image_of_a_pod_may_change_and_its_command_may_not,
];

async fn widgets(w: &World) -> Resource {
    w.install(Definition::with_properties(w, &json!({"size": {"type": "integer"}}))).await
}

async fn a_replacement_on_an_old_version_conflicts(w: World) {
    let first = w.given_config_map("a", &json!({"k": "1"})).await;
    let mut second = first.clone();
    second["data"]["k"] = json!("2");
    w.put(&w.core("configmaps/a"), &second).await.code(200);
    let refusal = w.put(&w.core("configmaps/a"), &second).await.refused(409, "Conflict").saying(
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the \
         latest version and try again",
    );
    assert_eq!(refusal.body["details"], json!({"name": "a", "kind": "configmaps"}));
}

async fn a_replacement_without_a_version_wins_where_the_kind_allows_it(w: World) {
    w.given_config_map("a", &json!({"k": "1"})).await;
    let replaced = w.put(&w.core("configmaps/a"), &w.config_map("a", &json!({"other": "2"}))).await.code(200).object();
    assert_eq!(replaced["data"], json!({"other": "2"}));
}

async fn a_custom_resource_is_never_replaced_without_a_version(w: World) {
    let widgets = widgets(&w).await;
    widgets.given(&w, "a", &json!({"size": 1})).await;
    w.put(&widgets.at("a"), &widgets.object("a", &json!({"size": 2})))
        .await
        .refused(422, "Invalid")
        .mentioning(&["metadata.resourceVersion: Invalid value:", "must be specified for an update"])
        .cause("metadata.resourceVersion", "FieldValueInvalid");
}

async fn given_lease(w: &World) -> Value {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"},
        "spec": {"holderIdentity": "nobody", "leaseTransitions": 0},
    });
    w.post(&w.group("coordination.k8s.io/v1", "leases"), &lease).await.object()
}

async fn a_lease_is_replaced_by_compare_and_swap(w: World) {
    let path = w.group("coordination.k8s.io/v1", "leases/a");
    let seen_by_both = given_lease(&w).await;
    let claim = |holder: &str| {
        let mut claim = seen_by_both.clone();
        claim["spec"]["holderIdentity"] = json!(holder);
        claim["spec"]["leaseTransitions"] = json!(1);
        claim
    };
    let won = w.put(&path, &claim("first")).await.code(200).object();
    w.put(&path, &claim("second")).await.refused(409, "Conflict").saying(
        "Operation cannot be fulfilled on leases.coordination.k8s.io \"a\": the object has been modified; please apply your \
         changes to the latest version and try again",
    );
    let stored = w.get(&path).await.object();
    assert_eq!(stored["spec"]["holderIdentity"], "first");
    assert_eq!(version(&stored), version(&won));
}

async fn a_lease_is_never_replaced_without_a_version(w: World) {
    let mut lease = given_lease(&w).await;
    lease["metadata"]["resourceVersion"] = Value::Null;
    w.put(&w.group("coordination.k8s.io/v1", "leases/a"), &lease)
        .await
        .refused(422, "Invalid")
        .mentioning(&["metadata.resourceVersion", "must be specified for an update"]);
}

async fn a_replacement_that_changes_nothing_keeps_the_version(w: World) {
    let object = w.given_config_map("a", &json!({"k": "1"})).await;
    let again = w.put(&w.core("configmaps/a"), &object).await.code(200).object();
    assert_eq!(version(&again), version(&object));
}

async fn generation_grows_with_the_spec_alone(w: World) {
    let widgets = widgets(&w).await;
    let mut object = widgets.given(&w, "a", &json!({"size": 1})).await;
    assert_eq!(object["metadata"]["generation"], 1);
    object["metadata"]["labels"] = json!({"seen": "yes"});
    object = w.put(&widgets.at("a"), &object).await.object();
    assert_eq!(object["metadata"]["generation"], 1, "labels are not the spec");
    object["spec"]["size"] = json!(2);
    object["metadata"]["generation"] = json!(40);
    object = w.put(&widgets.at("a"), &object).await.object();
    assert_eq!(object["metadata"]["generation"], 2, "the spec changed, and a client's own count is ignored");
}

async fn a_replacement_with_another_uid_conflicts(w: World) {
    let mut object = w.given_config_map("a", &json!({"k": "1"})).await;
    let real = uid(&object);
    object["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000000");
    w.put(&w.core("configmaps/a"), &object).await.refused(409, "Conflict").saying(&format!(
        "Operation cannot be fulfilled on configmaps \"a\": StorageError: invalid object, Code: 4, Key: \
         /registry/configmaps/{}/a, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: \
         00000000-0000-0000-0000-000000000000, UID in object meta: {real}",
        w.ns
    ));
}

async fn a_replacement_of_a_missing_object_is_404(w: World) {
    w.put(&w.core("configmaps/a"), &w.config_map("a", &json!({})))
        .await
        .refused(404, "NotFound")
        .saying("configmaps \"a\" not found");
}

async fn a_body_of_another_name_is_refused(w: World) {
    w.given_config_map("a", &json!({})).await;
    w.put(&w.core("configmaps/a"), &w.config_map("b", &json!({})))
        .await
        .refused(400, "BadRequest")
        .saying("the name of the object (b) does not match the name on the URL (a)");
}

async fn what_the_server_gave_stays(w: World) {
    let object = w.given_config_map("a", &json!({"k": "1"})).await;
    let mut edited = w.config_map("a", &json!({"k": "2"}));
    edited["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
    let stored = w.put(&w.core("configmaps/a"), &edited).await.object();
    assert_eq!(uid(&stored), uid(&object));
    assert_eq!(stored["metadata"]["creationTimestamp"], object["metadata"]["creationTimestamp"]);
    assert!(version(&stored).parse::<u64>().unwrap() > version(&object).parse::<u64>().unwrap());
}

async fn an_immutable_config_map_stays_as_it_is(w: World) {
    let mut body = w.config_map("a", &json!({"k": "1"}));
    body["immutable"] = json!(true);
    let mut object = w.post(&w.core("configmaps"), &body).await.object();
    object["data"]["k"] = json!("2");
    let refusal = w.put(&w.core("configmaps/a"), &object).await.refused(422, "Invalid");
    assert_eq!(refusal.cause("data", "FieldValueForbidden"), "Forbidden: field is immutable when `immutable` is set");
}

async fn the_type_of_a_secret_stays(w: World) {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "stringData": {"k": "v"}});
    let mut object = w.post(&w.core("secrets"), &secret).await.object();
    object["type"] = json!("example.com/other");
    let refusal = w.put(&w.core("secrets/a"), &object).await.refused(422, "Invalid");
    let message = refusal.cause("type", "FieldValueInvalid");
    assert_eq!(message, "Invalid value: \"example.com/other\": field is immutable");
}

async fn the_cluster_ip_of_a_service_stays(w: World) {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
        "spec": {"ports": [{"port": 5432}]},
    });
    let mut object = w.post(&w.core("services"), &service).await.object();
    let given = object["spec"]["clusterIP"].as_str().unwrap_or_default().to_owned();
    let (network, _) = given.rsplit_once('.').unwrap_or_else(|| panic!("an IPv4 address: {object}"));
    let other = if given.ends_with(".250") { format!("{network}.251") } else { format!("{network}.250") };
    object["spec"]["clusterIP"] = json!(other);
    object["spec"]["clusterIPs"] = json!([other]);
    let refusal = w.put(&w.core("services/a"), &object).await.refused(422, "Invalid");
    refusal.mentioning(&["spec.clusterIPs[0]: Invalid value:", &other, "may not change once set"]);
}

async fn the_access_modes_of_a_claim_stay(w: World) {
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "a"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "none",
                 "resources": {"requests": {"storage": "1Gi"}}},
    });
    let mut object = w.post(&w.core("persistentvolumeclaims"), &claim).await.object();
    object["spec"]["accessModes"] = json!(["ReadWriteMany"]);
    let refusal = w.put(&w.core("persistentvolumeclaims/a"), &object).await.refused(422, "Invalid");
    refusal.mentioning(&["spec: Forbidden: spec is immutable after creation except resources.requests"]);
}

async fn the_image_of_a_pod_may_change_and_its_command_may_not(w: World) {
    let mut pod = w.given_pod(&w.pod("a")).await;
    pod["spec"]["containers"][0]["image"] = json!("example.com/main:2");
    let mut pod = w.put(&w.core("pods/a"), &pod).await.code(200).object();
    pod["spec"]["containers"][0]["command"] = json!(["other"]);
    let refusal = w.put(&w.core("pods/a"), &pod).await.refused(422, "Invalid");
    refusal.mentioning(&["spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`"]);
}
