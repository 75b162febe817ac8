//! Listing: which objects, in which pieces, as of when.

use serde_json::{Value, json};

use crate::reply::{names, version};
use crate::runner::cases;
use crate::world::World;

cases![
    a_list_is_ordered_by_name_and_has_a_version,
    items_of_a_list_do_not_repeat_kind_and_version,
    an_empty_list_has_no_items_and_a_version,
    a_list_over_all_namespaces_includes_this_one,
    labels_select_by_equality,
    labels_select_by_inequality,
    labels_select_by_membership,
    labels_select_by_existence,
    label_requirements_are_all_demanded,
    a_bad_label_selector_is_refused,
    fields_select_by_name_and_namespace,
    pods_select_by_node_and_phase,
    secrets_select_by_type,
    an_unknown_field_of_a_selector_is_refused,
    a_limit_yields_pages_that_add_up,
    pages_show_one_moment,
    a_broken_continue_token_is_refused,
    a_list_not_older_than_a_version_is_answered,
    a_list_of_the_future_is_refused_or_times_out,
    an_exact_list_shows_the_past,
    version_match_without_a_version_is_refused,
    an_unknown_version_match_is_refused,
];

async fn labelled(w: &World) {
    for (name, labels) in [
        ("a", json!({"tier": "front", "env": "prod"})),
        ("b", json!({"tier": "back", "env": "prod"})),
        ("c", json!({"tier": "back"})),
        ("d", json!({})),
    ] {
        let mut body = w.config_map(name, &json!({}));
        body["metadata"]["labels"] = labels;
        w.post(&w.core("configmaps"), &body).await.code(201);
    }
}

/// The names that a selector picks among the case's own objects; `kube-root-ca.crt` appears where controllers run.
async fn select(w: &World, selector: &str) -> Vec<String> {
    let list = w.get(&format!("{}?{selector}", w.core("configmaps"))).await.code(200).object();
    names(&list).into_iter().filter(|name| name != "kube-root-ca.crt").collect()
}

async fn a_list_is_ordered_by_name_and_has_a_version(w: World) {
    let mut newest = Value::Null;
    for name in ["b", "c", "a"] {
        newest = w.given_config_map(name, &json!({})).await;
    }
    let list = w.get(&w.core("configmaps")).await.code(200).object();
    assert_eq!(list["kind"], "ConfigMapList");
    assert_eq!(list["apiVersion"], "v1");
    assert_eq!(select(&w, "").await, ["a", "b", "c"]);
    assert!(version(&list).parse::<u64>().unwrap() >= version(&newest).parse::<u64>().unwrap());
}

async fn items_of_a_list_do_not_repeat_kind_and_version(w: World) {
    w.given_config_map("a", &json!({})).await;
    let list = w.get(&format!("{}?fieldSelector=metadata.name=a", w.core("configmaps"))).await.object();
    assert!(list["items"][0].get("kind").is_none(), "{list}");
    assert!(list["items"][0].get("apiVersion").is_none(), "{list}");
}

async fn an_empty_list_has_no_items_and_a_version(w: World) {
    let list = w.get(&w.group("coordination.k8s.io/v1", "leases")).await.object();
    assert_eq!(list["items"], json!([]));
    assert!(version(&list).parse::<u64>().is_ok());
    assert!(list["metadata"].get("continue").is_none(), "{list}");
}

async fn a_list_over_all_namespaces_includes_this_one(w: World) {
    w.given_config_map("a", &json!({})).await;
    let list = w.get(&format!("/api/v1/configmaps?fieldSelector=metadata.namespace={}", w.ns)).await.object();
    assert!(names(&list).contains(&"a".to_owned()), "{list}");
}

async fn labels_select_by_equality(w: World) {
    labelled(&w).await;
    assert_eq!(select(&w, "labelSelector=tier%3Dback").await, ["b", "c"]);
    assert_eq!(select(&w, "labelSelector=tier%3D%3Dfront").await, ["a"]);
}

async fn labels_select_by_inequality(w: World) {
    labelled(&w).await;
    assert_eq!(select(&w, "labelSelector=tier!%3Dback").await, ["a", "d"], "what has no such label is unequal too");
}

async fn labels_select_by_membership(w: World) {
    labelled(&w).await;
    assert_eq!(select(&w, "labelSelector=tier%20in%20(front,back)").await, ["a", "b", "c"]);
    assert_eq!(select(&w, "labelSelector=tier%20notin%20(front)").await, ["b", "c", "d"]);
}

async fn labels_select_by_existence(w: World) {
    labelled(&w).await;
    assert_eq!(select(&w, "labelSelector=env").await, ["a", "b"]);
    assert_eq!(select(&w, "labelSelector=!env").await, ["c", "d"]);
}

async fn label_requirements_are_all_demanded(w: World) {
    labelled(&w).await;
    assert_eq!(select(&w, "labelSelector=tier%3Dback,!env").await, ["c"]);
}

async fn a_bad_label_selector_is_refused(w: World) {
    let refusal = w.get(&format!("{}?labelSelector=tier%20in", w.core("configmaps"))).await.refused(400, "BadRequest");
    refusal.mentioning(&["unable to parse requirement"]);
}

async fn fields_select_by_name_and_namespace(w: World) {
    labelled(&w).await;
    assert_eq!(select(&w, "fieldSelector=metadata.name%3Db").await, ["b"]);
    assert_eq!(select(&w, "fieldSelector=metadata.name!%3Db").await, ["a", "c", "d"]);
    let elsewhere = select(&w, "fieldSelector=metadata.namespace%3Delsewhere").await;
    assert!(elsewhere.is_empty(), "{elsewhere:?}");
}

async fn pods_select_by_node_and_phase(w: World) {
    w.given_pod(&w.pod("a")).await;
    let mut placed = w.pod("b");
    placed["spec"]["nodeName"] = json!(format!("node-{}", w.id));
    w.given_pod(&placed).await;
    let select = async |selector: String| {
        names(&w.get(&format!("{}?fieldSelector={selector}", w.core("pods"))).await.code(200).object())
    };
    assert_eq!(select(format!("spec.nodeName=node-{}", w.id)).await, ["b"]);
    assert_eq!(select("spec.nodeName=".to_owned()).await, ["a"]);
    assert_eq!(select("status.phase=Pending,spec.nodeName=".to_owned()).await, ["a"]);
    assert!(select("status.phase=Running".to_owned()).await.is_empty());
}

async fn secrets_select_by_type(w: World) {
    let secret = |name: &str, kind: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": kind});
    w.post(&w.core("secrets"), &secret("a", "example.com/a")).await.code(201);
    w.post(&w.core("secrets"), &secret("b", "example.com/b")).await.code(201);
    let list = w.get(&format!("{}?fieldSelector=type=example.com/b", w.core("secrets"))).await.object();
    assert_eq!(names(&list), ["b"]);
}

async fn an_unknown_field_of_a_selector_is_refused(w: World) {
    let refusal = w.get(&format!("{}?fieldSelector=data.k%3D1", w.core("configmaps"))).await.refused(400, "BadRequest");
    refusal.mentioning(&["\"data.k\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""]);
}

async fn leases(w: &World, count: usize) {
    for n in 0..count {
        let body =
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": format!("l{n}")}});
        w.post(&w.group("coordination.k8s.io/v1", "leases"), &body).await.code(201);
    }
}

async fn a_limit_yields_pages_that_add_up(w: World) {
    leases(&w, 5).await;
    let path = w.group("coordination.k8s.io/v1", "leases");
    let first = w.get(&format!("{path}?limit=2")).await.object();
    assert_eq!(names(&first), ["l0", "l1"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    let token = |page: &Value| page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
    let second = w.get(&format!("{path}?limit=2&continue={}", token(&first))).await.object();
    assert_eq!(names(&second), ["l2", "l3"]);
    assert_eq!(second["metadata"]["remainingItemCount"], 1);
    let third = w.get(&format!("{path}?limit=2&continue={}", token(&second))).await.object();
    assert_eq!(names(&third), ["l4"]);
    assert!(
        third["metadata"].get("continue").is_none() && third["metadata"].get("remainingItemCount").is_none(),
        "{third}"
    );
}

async fn pages_show_one_moment(w: World) {
    leases(&w, 3).await;
    let path = w.group("coordination.k8s.io/v1", "leases");
    let first = w.get(&format!("{path}?limit=1")).await.object();
    w.delete(&format!("{path}/l2")).await.code(200);
    let token = first["metadata"]["continue"].as_str().unwrap_or_default();
    let rest = w.get(&format!("{path}?continue={token}")).await.object();
    assert_eq!(names(&rest), ["l1", "l2"], "deleted after the first page, but not at its moment");
    assert_eq!(version(&rest), version(&first));
}

async fn a_broken_continue_token_is_refused(w: World) {
    let refusal =
        w.get(&format!("{}?limit=1&continue=nonsense", w.core("configmaps"))).await.refused(400, "BadRequest");
    refusal.mentioning(&["continue key is not valid"]);
}

async fn a_list_not_older_than_a_version_is_answered(w: World) {
    let object = w.given_config_map("a", &json!({})).await;
    let path = w.core("configmaps");
    let query = format!("resourceVersion={}&resourceVersionMatch=NotOlderThan", version(&object));
    let list = w.get(&format!("{path}?{query}")).await.code(200).object();
    assert!(names(&list).contains(&"a".to_owned()));
    w.get(&format!("{path}?resourceVersion=0")).await.code(200);
}

async fn a_list_of_the_future_is_refused_or_times_out(w: World) {
    let object = w.given_config_map("a", &json!({})).await;
    let future = version(&object).parse::<u64>().unwrap() + 1_000_000;
    let query = format!("resourceVersion={future}&resourceVersionMatch=NotOlderThan");
    let reply = w.get(&format!("{}?{query}", w.core("configmaps"))).await.refused(504, "Timeout");
    assert!(reply.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge", "{}", reply.describe());
}

async fn an_exact_list_shows_the_past(w: World) {
    let first = w.given_config_map("a", &json!({})).await;
    w.given_config_map("b", &json!({})).await;
    let query = format!("resourceVersion={}&resourceVersionMatch=Exact", version(&first));
    let past = select(&w, &query).await;
    assert_eq!(past, ["a"]);
}

async fn version_match_without_a_version_is_refused(w: World) {
    let refusal = w.get(&format!("{}?resourceVersionMatch=NotOlderThan", w.core("configmaps"))).await;
    refusal
        .refused(422, "Invalid")
        .mentioning(&["resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless \
                                                  resourceVersion is provided"]);
}

async fn an_unknown_version_match_is_refused(w: World) {
    let refusal = w.get(&format!("{}?resourceVersion=1&resourceVersionMatch=Sometimes", w.core("configmaps"))).await;
    refusal.refused(422, "Invalid").mentioning(&["resourceVersionMatch: Unsupported value: \"Sometimes\""]);
}
