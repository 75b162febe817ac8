//! The RBAC objects that every cluster has from its first moment: discovery for all who are known, everything for administrators.

use serde_json::{Value, json};

use crate::error::ApiError;
use crate::request::{FieldValidation, Subresource, Target, Write};
use crate::store::Store;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Creates those that are missing. What an administrator has changed stays changed.
pub(super) fn create_missing(store: &mut Store, now: jiff::Timestamp) -> Result<(), ApiError> {
    let write = Write {
        now,
        manager: "kube-apiserver".into(),
        dry_run: false,
        force: false,
        validation: FieldValidation::Strict,
    };
    for (plural, object) in objects() {
        let Some(resource) = store.resource(GROUP, "v1", plural) else { continue };
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let target = Target { resource, namespace: None, name, subresource: Subresource::Main };
        match store.get(&target) {
            Ok(_) => {}
            Err(error) if error.code == 404 => drop(store.create(&target, object, &write)?),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn objects() -> Vec<(&'static str, Value)> {
    let api = [
        "/api",
        "/api/*",
        "/apis",
        "/apis/*",
        "/healthz",
        "/livez",
        "/openapi",
        "/openapi/*",
        "/readyz",
        "/version",
        "/version/",
    ];
    let everything = json!([
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ]);
    let ask_about_oneself = json!([
        {"apiGroups": ["authorization.k8s.io"], "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"], "verbs": ["create"]},
        {"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"]},
    ]);
    let discovery = json!([{"nonResourceURLs": api, "verbs": ["get"]}]);
    [
        ("cluster-admin", "system:masters", everything),
        ("system:discovery", "system:authenticated", discovery),
        ("system:basic-user", "system:authenticated", ask_about_oneself),
    ]
    .into_iter()
    .flat_map(|(name, group, rules)| {
        [("clusterroles", role(name, &rules)), ("clusterrolebindings", binding(name, group))]
    })
    .collect()
}

fn role(name: &str, rules: &Value) -> Value {
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules})
}

fn binding(name: &str, group: &str) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": GROUP, "kind": "Group", "name": group}],
    })
}
