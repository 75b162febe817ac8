//! Creating and reading objects.

use http::Method;
use serde_json::{Value, json};

use crate::custom::Definition;
use crate::reply::{name, uid, version};
use crate::runner::cases;
use crate::world::World;

cases![
    a_created_object_has_uid_version_and_creation_time,
    a_created_object_reads_back_the_same,
    a_taken_name_is_refused,
    a_missing_object_is_404_with_details,
    generate_name_appends_five_characters,
    a_body_of_another_namespace_is_refused,
    an_object_in_a_missing_namespace_is_refused,
    a_bad_name_is_refused_with_the_rule,
    an_object_without_a_name_is_refused,
    a_body_of_another_kind_is_refused,
    a_body_of_another_api_version_is_refused,
    what_is_not_json_is_refused,
    an_unknown_field_warns_by_default,
    an_unknown_field_is_ignored_when_asked,
    an_unknown_field_is_refused_when_strict,
    a_duplicate_field_is_refused_when_strict,
    an_unknown_field_of_a_custom_resource_is_refused_when_strict,
    identity_is_the_servers_to_give,
    a_resource_version_in_a_new_object_is_refused,
    a_bad_label_is_refused_with_the_rule,
    a_verb_that_a_path_does_not_know_is_405,
    an_unsupported_body_format_is_415,
    an_unsupported_answer_format_is_406,
];

async fn a_created_object_has_uid_version_and_creation_time(w: World) {
    let reply = w.post(&w.core("configmaps"), &w.config_map("a", &json!({"k": "v"}))).await.code(201);
    let object = reply.object();
    assert_eq!(object["kind"], "ConfigMap");
    assert_eq!(object["apiVersion"], "v1");
    assert_eq!(object["metadata"]["namespace"], w.ns.as_str());
    assert_eq!(uid(&object).len(), 36);
    assert!(version(&object).parse::<u64>().is_ok_and(|v| v > 0), "{object}");
    let created = object["metadata"]["creationTimestamp"].as_str().unwrap_or_default();
    assert!(created.len() == 20 && created.ends_with('Z'), "seconds, in UTC: {created}");
    assert!(object["metadata"].get("generation").is_none(), "a ConfigMap has no generation: {object}");
}

async fn a_created_object_reads_back_the_same(w: World) {
    let created = w.given_config_map("a", &json!({"k": "v"})).await;
    assert_eq!(w.get(&w.core("configmaps/a")).await.code(200).object(), created);
}

async fn a_taken_name_is_refused(w: World) {
    w.given_config_map("a", &json!({})).await;
    let refusal = w
        .post(&w.core("configmaps"), &w.config_map("a", &json!({})))
        .await
        .refused(409, "AlreadyExists")
        .saying("configmaps \"a\" already exists");
    assert_eq!(refusal.body["details"], json!({"name": "a", "kind": "configmaps"}));
}

async fn a_missing_object_is_404_with_details(w: World) {
    let refusal =
        w.get(&w.core("secrets/nothing")).await.refused(404, "NotFound").saying("secrets \"nothing\" not found");
    assert_eq!(refusal.body["details"], json!({"name": "nothing", "kind": "secrets"}));
    let path = w.group("coordination.k8s.io/v1", "leases/nothing");
    let refusal =
        w.get(&path).await.refused(404, "NotFound").saying("leases.coordination.k8s.io \"nothing\" not found");
    assert_eq!(refusal.body["details"], json!({"name": "nothing", "group": "coordination.k8s.io", "kind": "leases"}));
}

async fn generate_name_appends_five_characters(w: World) {
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "made-"}});
    let first = name(&w.post(&w.core("configmaps"), &body).await.code(201).object());
    let second = name(&w.post(&w.core("configmaps"), &body).await.code(201).object());
    assert_ne!(first, second);
    let suffix = first.strip_prefix("made-").unwrap_or_else(|| panic!("{first}"));
    assert!(suffix.len() == 5 && suffix.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()), "{first}");
}

async fn a_body_of_another_namespace_is_refused(w: World) {
    let mut body = w.config_map("a", &json!({}));
    body["metadata"]["namespace"] = json!("elsewhere");
    w.post(&w.core("configmaps"), &body)
        .await
        .refused(400, "BadRequest")
        .saying("the namespace of the provided object does not match the namespace sent on the request");
}

async fn an_object_in_a_missing_namespace_is_refused(w: World) {
    let missing = format!("{}-missing", w.ns);
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let refusal = w.post(&format!("/api/v1/namespaces/{missing}/configmaps"), &body).await.refused(404, "NotFound");
    let refusal = refusal.saying(&format!("namespaces \"{missing}\" not found"));
    assert_eq!(refusal.body["details"], json!({"name": missing, "kind": "namespaces"}));
}

async fn a_bad_name_is_refused_with_the_rule(w: World) {
    let refusal = w.post(&w.core("configmaps"), &w.config_map("Not_A_Name", &json!({}))).await.refused(422, "Invalid");
    let rule = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start \
                and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
                '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    let refusal = refusal
        .saying(&format!("ConfigMap \"Not_A_Name\" is invalid: metadata.name: Invalid value: \"Not_A_Name\": {rule}"));
    assert_eq!(refusal.cause("metadata.name", "FieldValueInvalid"), format!("Invalid value: \"Not_A_Name\": {rule}"));
    assert_eq!(refusal.body["details"]["kind"], "ConfigMap");
    assert_eq!(refusal.body["details"]["name"], "Not_A_Name");
}

async fn an_object_without_a_name_is_refused(w: World) {
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}});
    w.post(&w.core("configmaps"), &body)
        .await
        .refused(422, "Invalid")
        .mentioning(&["name or generateName is required"])
        .cause("metadata.name", "FieldValueRequired");
}

async fn a_body_of_another_kind_is_refused(w: World) {
    let body = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}});
    w.post(&w.core("configmaps"), &body)
        .await
        .refused(400, "BadRequest")
        .mentioning(&["Secret in version \"v1\" cannot be handled as a ConfigMap"]);
}

async fn a_body_of_another_api_version_is_refused(w: World) {
    let body = json!({"apiVersion": "batch/v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let refusal = w.post(&w.core("configmaps"), &body).await.refused(400, "BadRequest");
    refusal.mentioning(&["ConfigMap in version \"v1\" cannot be handled as a ConfigMap"]);
}

async fn what_is_not_json_is_refused(w: World) {
    let headers = [("content-type", "application/json")];
    w.call(Method::POST, &w.core("configmaps"), &headers, Some("{\"kind\": ".to_owned()))
        .await
        .refused(400, "BadRequest");
}

fn misspelt(w: &World) -> Value {
    let mut body = w.config_map("a", &json!({"k": "v"}));
    body["dta"] = json!({"k": "v"});
    body
}

async fn an_unknown_field_warns_by_default(w: World) {
    let reply = w.post(&w.core("configmaps"), &misspelt(&w)).await.code(201);
    assert_eq!(reply.warnings(), ["unknown field \"dta\""]);
    assert!(reply.body.get("dta").is_none(), "{}", reply.describe());
}

async fn an_unknown_field_is_ignored_when_asked(w: World) {
    let path = format!("{}?fieldValidation=Ignore", w.core("configmaps"));
    let reply = w.post(&path, &misspelt(&w)).await.code(201);
    assert!(reply.warnings().is_empty(), "{:?}", reply.warnings());
}

async fn an_unknown_field_is_refused_when_strict(w: World) {
    let path = format!("{}?fieldValidation=Strict", w.core("configmaps"));
    w.post(&path, &misspelt(&w))
        .await
        .refused(400, "BadRequest")
        .mentioning(&["strict decoding error: unknown field \"dta\""]);
    w.get(&w.core("configmaps/a")).await.refused(404, "NotFound");
}

async fn a_duplicate_field_is_refused_when_strict(w: World) {
    let path = format!("{}?fieldValidation=Strict", w.core("configmaps"));
    let body = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"1"},"data":{"k":"2"}}"#;
    w.call(Method::POST, &path, &[("content-type", "application/json")], Some(body.to_owned()))
        .await
        .refused(400, "BadRequest")
        .mentioning(&["duplicate field \"data\""]);
}

async fn an_unknown_field_of_a_custom_resource_is_refused_when_strict(w: World) {
    let widgets = w.install(Definition::with_properties(&w, &json!({"size": {"type": "integer"}}))).await;
    let body = widgets.object("a", &json!({"size": 1, "sise": 2}));
    w.post(&format!("{}?fieldValidation=Strict", widgets.path), &body)
        .await
        .refused(400, "BadRequest")
        .mentioning(&["strict decoding error: unknown field \"spec.sise\""]);
    let reply = w.post(&widgets.path, &body).await.code(201);
    assert_eq!(reply.warnings(), ["unknown field \"spec.sise\""]);
    assert_eq!(reply.body["spec"], json!({"size": 1}));
}

async fn identity_is_the_servers_to_give(w: World) {
    let mut body = w.config_map("a", &json!({}));
    body["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000000");
    body["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
    body["metadata"]["deletionTimestamp"] = json!("2001-01-01T00:00:00Z");
    let object = w.post(&w.core("configmaps"), &body).await.code(201).object();
    assert_ne!(object["metadata"]["uid"], body["metadata"]["uid"]);
    assert_ne!(object["metadata"]["creationTimestamp"], body["metadata"]["creationTimestamp"]);
    assert!(object["metadata"].get("deletionTimestamp").is_none(), "{object}");
}

async fn a_resource_version_in_a_new_object_is_refused(w: World) {
    let mut body = w.config_map("a", &json!({}));
    body["metadata"]["resourceVersion"] = json!("7");
    let reply = w.post(&w.core("configmaps"), &body).await;
    assert!(reply.code >= 400, "{}", reply.describe());
    reply.mentioning(&["resourceVersion should not be set on objects to be created"]);
}

async fn a_bad_label_is_refused_with_the_rule(w: World) {
    let mut body = w.config_map("a", &json!({}));
    body["metadata"]["labels"] = json!({"tier": "not a label!"});
    w.post(&w.core("configmaps"), &body)
        .await
        .refused(422, "Invalid")
        .mentioning(&[
            "metadata.labels: Invalid value: \"not a label!\": a valid label must be an empty string or consist of",
        ])
        .cause("metadata.labels", "FieldValueInvalid");
}

async fn a_verb_that_a_path_does_not_know_is_405(w: World) {
    w.given_config_map("a", &json!({})).await;
    w.post(&w.core("configmaps/a"), &w.config_map("a", &json!({}))).await.refused(405, "MethodNotAllowed");
    w.put(&w.core("configmaps"), &w.config_map("a", &json!({}))).await.refused(405, "MethodNotAllowed");
}

async fn an_unsupported_body_format_is_415(w: World) {
    let body = Some("name = 'a'".to_owned());
    w.call(Method::POST, &w.core("configmaps"), &[("content-type", "application/toml")], body)
        .await
        .refused(415, "UnsupportedMediaType");
}

async fn an_unsupported_answer_format_is_406(w: World) {
    w.get_as(&w.core("configmaps"), "text/csv").await.refused(406, "NotAcceptable");
}
