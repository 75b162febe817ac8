//! Who may do what: authentication, and RBAC as the Roles say it.

use serde_json::{Value, json};

use crate::runner::cases;
use crate::world::{Patch, World};

cases![
    a_wrong_token_is_401,
    without_credentials_nothing_is_shown,
    a_service_account_gets_a_token,
    a_service_account_knows_who_it_is,
    a_service_account_may_do_nothing_by_itself,
    a_refusal_names_user_verb_resource_and_namespace,
    a_role_grants_its_verbs_in_its_namespace_alone,
    a_role_grants_named_objects_alone,
    a_role_grants_subresources_apart,
    a_cluster_role_may_be_bound_in_one_namespace,
    a_group_may_be_bound,
    a_token_dies_with_its_service_account,
    nobody_grants_what_they_do_not_have,
    nobody_binds_a_role_they_could_not_write,
    a_review_answers_what_one_may_do,
    a_review_may_ask_for_another,
    a_bound_role_cant_be_exchanged,
    a_role_without_verbs_is_refused,
];

const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// A service account with a token, and the API seen with that token.
async fn account(w: &World, name: &str) -> World {
    let body = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
    w.post(&w.core("serviceaccounts"), &body).await.code(201);
    let token = token(w, name).await;
    w.with_token(Some(&token))
}

async fn token(w: &World, name: &str) -> String {
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}});
    let answer = w.post(&w.core(&format!("serviceaccounts/{name}/token")), &request).await.code(201).object();
    answer["status"]["token"].as_str().unwrap_or_else(|| panic!("no token in {answer}")).to_owned()
}

async fn role(w: &World, name: &str, rules: &Value) {
    let role = json!({"apiVersion": RBAC, "kind": "Role", "metadata": {"name": name}, "rules": rules});
    w.post(&w.group(RBAC, "roles"), &role).await.code(201);
}

fn binding(w: &World, role: &str, account: &str) -> Value {
    json!({
        "apiVersion": RBAC, "kind": "RoleBinding", "metadata": {"name": format!("{role}-{account}")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": w.ns}],
    })
}

/// Gives an account these rules, and waits until they are in force (a kube-apiserver learns of them by a watch).
async fn grant(w: &World, name: &str, rules: &Value) {
    role(w, name, rules).await;
    w.post(&w.group(RBAC, "rolebindings"), &binding(w, name, name)).await.code(201);
    let rule = &rules[0];
    let mut attributes = json!({
        "namespace": w.ns, "verb": rule["verbs"][0], "group": rule["apiGroups"][0], "resource": rule["resources"][0],
    });
    if let Some((resource, subresource)) = rule["resources"][0].as_str().and_then(|r| r.split_once('/')) {
        attributes["resource"] = json!(resource);
        attributes["subresource"] = json!(subresource);
    }
    if let Some(name) = rule["resourceNames"].get(0) {
        attributes["name"] = name.clone();
    }
    in_force(w, &user(w, name), &attributes).await;
}

async fn in_force(w: &World, user: &str, attributes: &Value) {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": ["system:serviceaccounts", format!("system:serviceaccounts:{}", w.ns)],
                 "resourceAttributes": attributes},
    });
    w.until("the grant to be in force", async || {
        let answer = w.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review).await.object();
        (answer["status"]["allowed"] == true).then_some(())
    })
    .await;
}

fn user(w: &World, name: &str) -> String {
    format!("system:serviceaccount:{}:{name}", w.ns)
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

async fn a_wrong_token_is_401(w: World) {
    let stranger = w.with_token(Some("not-a-token"));
    stranger.get(&w.core("configmaps")).await.refused(401, "Unauthorized").saying("Unauthorized");
}

async fn without_credentials_nothing_is_shown(w: World) {
    let nobody = w.with_token(None);
    let reply = nobody.get(&w.core("configmaps")).await;
    // A server may know anonymous users (who may do nothing), or none at all.
    assert!(reply.code == 401 || reply.code == 403, "{}", reply.describe());
    assert_eq!(reply.body["kind"], "Status");
}

async fn a_service_account_gets_a_token(w: World) {
    let body = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}});
    w.post(&w.core("serviceaccounts"), &body).await.code(201);
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}});
    let answer = w.post(&w.core("serviceaccounts/a/token"), &request).await.code(201).object();
    assert_eq!(answer["kind"], "TokenRequest");
    assert!(answer["status"]["expirationTimestamp"].is_string(), "{answer}");
    w.post(&w.core("serviceaccounts/missing/token"), &request).await.refused(404, "NotFound");
}

async fn a_service_account_knows_who_it_is(w: World) {
    let agent = account(&w, "agent").await;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let answer = agent.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review).await.code(201).object();
    let info = &answer["status"]["userInfo"];
    assert_eq!(info["username"], user(&w, "agent"));
    let groups = info["groups"].as_array().cloned().unwrap_or_default();
    for group in [
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{}", w.ns),
        "system:authenticated".to_owned(),
    ] {
        assert!(groups.contains(&json!(group)), "{group} not in {groups:?}");
    }
}

async fn a_service_account_may_do_nothing_by_itself(w: World) {
    let agent = account(&w, "agent").await;
    agent.get(&w.core("configmaps")).await.refused(403, "Forbidden");
    agent.post(&w.core("configmaps"), &w.config_map("a", &json!({}))).await.refused(403, "Forbidden");
    agent.get("/version").await.code(200);
}

async fn a_refusal_names_user_verb_resource_and_namespace(w: World) {
    let agent = account(&w, "agent").await;
    let user = user(&w, "agent");
    let refusal = agent.get(&w.core("secrets/a")).await.refused(403, "Forbidden").saying(&format!(
        "secrets \"a\" is forbidden: User \"{user}\" cannot get resource \"secrets\" in API group \"\" in the namespace \"{}\"",
        w.ns
    ));
    assert_eq!(refusal.body["details"], json!({"name": "a", "kind": "secrets"}));
    agent.get("/apis/coordination.k8s.io/v1/leases").await.refused(403, "Forbidden").saying(&format!(
        "leases.coordination.k8s.io is forbidden: User \"{user}\" cannot list resource \"leases\" in API group \
         \"coordination.k8s.io\" at the cluster scope"
    ));
    agent.patch(Patch::Merge, &w.core("pods/a/status"), &json!({})).await.refused(403, "Forbidden").saying(&format!(
        "pods \"a\" is forbidden: User \"{user}\" cannot patch resource \"pods/status\" in API group \"\" in the namespace \
         \"{}\"",
        w.ns
    ));
}

async fn a_role_grants_its_verbs_in_its_namespace_alone(w: World) {
    let agent = account(&w, "agent").await;
    grant(&w, "agent", &json!([rule("", &["configmaps"], &["get", "create"])])).await;
    agent.post(&w.core("configmaps"), &w.config_map("a", &json!({}))).await.code(201);
    agent.get(&w.core("configmaps/a")).await.code(200);
    agent.get(&w.core("configmaps")).await.refused(403, "Forbidden");
    agent.delete(&w.core("configmaps/a")).await.refused(403, "Forbidden");
    agent.get("/api/v1/namespaces/default/configmaps/a").await.refused(403, "Forbidden");
}

async fn a_role_grants_named_objects_alone(w: World) {
    let agent = account(&w, "agent").await;
    for name in ["mine", "other"] {
        w.given_config_map(name, &json!({})).await;
    }
    let mut named = rule("", &["configmaps"], &["get", "patch"]);
    named["resourceNames"] = json!(["mine"]);
    grant(&w, "agent", &json!([named])).await;
    agent.patch(Patch::Merge, &w.core("configmaps/mine"), &json!({"data": {"k": "v"}})).await.code(200);
    agent
        .get(&w.core("configmaps/other"))
        .await
        .refused(403, "Forbidden")
        .mentioning(&["configmaps \"other\" is forbidden"]);
    agent.get(&w.core("configmaps")).await.refused(403, "Forbidden");
}

async fn a_role_grants_subresources_apart(w: World) {
    let agent = account(&w, "agent").await;
    w.given_pod(&w.pod("a")).await;
    grant(&w, "agent", &json!([rule("", &["pods/status"], &["patch"])])).await;
    let patch = json!({"status": {"message": "hello"}});
    agent.patch(Patch::Merge, &w.core("pods/a/status"), &patch).await.code(200);
    agent.patch(Patch::Merge, &w.core("pods/a"), &patch).await.refused(403, "Forbidden");
}

async fn cluster_role(w: &World, rules: &Value) -> String {
    let name = format!("conformance-{}", w.id);
    let role = json!({"apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules});
    w.post(&format!("/apis/{RBAC}/clusterroles"), &role).await.code(201);
    w.discard(format!("/apis/{RBAC}/clusterroles/{name}"));
    name
}

async fn a_cluster_role_may_be_bound_in_one_namespace(w: World) {
    let agent = account(&w, "agent").await;
    let role = cluster_role(&w, &json!([rule("", &["configmaps"], &["list"])])).await;
    let mut binding = binding(&w, &role, "agent");
    binding["roleRef"]["kind"] = json!("ClusterRole");
    w.post(&w.group(RBAC, "rolebindings"), &binding).await.code(201);
    in_force(&w, &user(&w, "agent"), &json!({"namespace": w.ns, "verb": "list", "resource": "configmaps"})).await;
    agent.get(&w.core("configmaps")).await.code(200);
    agent.get("/api/v1/configmaps").await.refused(403, "Forbidden");
}

async fn a_group_may_be_bound(w: World) {
    let agent = account(&w, "agent").await;
    let role = cluster_role(&w, &json!([rule("", &["configmaps"], &["list"])])).await;
    let name = format!("conformance-{}", w.id);
    let binding = json!({
        "apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": format!("system:serviceaccounts:{}", w.ns)}],
    });
    w.post(&format!("/apis/{RBAC}/clusterrolebindings"), &binding).await.code(201);
    w.discard(format!("/apis/{RBAC}/clusterrolebindings/{name}"));
    in_force(&w, &user(&w, "agent"), &json!({"verb": "list", "resource": "configmaps"})).await;
    agent.get("/api/v1/configmaps?limit=1").await.code(200);
}

async fn a_token_dies_with_its_service_account(w: World) {
    let agent = account(&w, "agent").await;
    agent.get(&w.core("configmaps")).await.refused(403, "Forbidden");
    w.delete(&w.core("serviceaccounts/agent")).await.code(200);
    // A kube-apiserver remembers a token that was good for some seconds.
    w.until("the token to be refused", async || (agent.get(&w.core("configmaps")).await.code == 401).then_some(()))
        .await;
}

async fn nobody_grants_what_they_do_not_have(w: World) {
    let agent = account(&w, "agent").await;
    grant(
        &w,
        "agent",
        &json!([rule("rbac.authorization.k8s.io", &["roles"], &["create"]), rule("", &["configmaps"], &["get"])]),
    )
    .await;
    let wanted =
        |rules: Value| json!({"apiVersion": RBAC, "kind": "Role", "metadata": {"name": "more"}, "rules": rules});
    agent
        .post(&w.group(RBAC, "roles"), &wanted(json!([rule("", &["secrets"], &["get"])])))
        .await
        .refused(403, "Forbidden")
        .mentioning(&[
            &format!("roles.rbac.authorization.k8s.io \"more\" is forbidden: user \"{}\"", user(&w, "agent")),
            "is attempting to grant RBAC permissions not currently held:",
            "{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\"]}",
        ]);
    agent.post(&w.group(RBAC, "roles"), &wanted(json!([rule("", &["configmaps"], &["get"])]))).await.code(201);
}

async fn nobody_binds_a_role_they_could_not_write(w: World) {
    let agent = account(&w, "agent").await;
    role(&w, "reader", &json!([rule("", &["secrets"], &["get"])])).await;
    grant(&w, "agent", &json!([rule("rbac.authorization.k8s.io", &["rolebindings"], &["create"])])).await;
    agent
        .post(&w.group(RBAC, "rolebindings"), &binding(&w, "reader", "agent"))
        .await
        .refused(403, "Forbidden")
        .mentioning(&["is attempting to grant RBAC permissions not currently held:"]);
}

async fn a_review_answers_what_one_may_do(w: World) {
    let agent = account(&w, "agent").await;
    grant(&w, "agent", &json!([rule("", &["configmaps"], &["get"])])).await;
    let ask = async |verb: &str| {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"namespace": w.ns, "verb": verb, "resource": "configmaps"}},
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        agent.post(path, &review).await.code(201).object()["status"]["allowed"].clone()
    };
    assert_eq!(ask("get").await, true);
    assert_eq!(ask("delete").await, false);
}

async fn a_review_may_ask_for_another(w: World) {
    account(&w, "agent").await;
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": user(&w, "agent"), "resourceAttributes": {"namespace": w.ns, "verb": "get", "resource": "pods"}},
    });
    let answer = w.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review).await.code(201).object();
    assert_eq!(answer["status"]["allowed"], false);
}

async fn a_bound_role_cant_be_exchanged(w: World) {
    for name in ["one", "two"] {
        role(&w, name, &json!([rule("", &["configmaps"], &["get"])])).await;
    }
    let mut bound = w.post(&w.group(RBAC, "rolebindings"), &binding(&w, "one", "x")).await.code(201).object();
    bound["roleRef"]["name"] = json!("two");
    w.put(&w.group(RBAC, "rolebindings/one-x"), &bound)
        .await
        .refused(422, "Invalid")
        .mentioning(&["roleRef: Invalid value:", "cannot change roleRef"]);
}

async fn a_role_without_verbs_is_refused(w: World) {
    let body = json!({
        "apiVersion": RBAC, "kind": "Role", "metadata": {"name": "a"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": []}],
    });
    w.post(&w.group(RBAC, "roles"), &body)
        .await
        .refused(422, "Invalid")
        .mentioning(&["rules[0].verbs: Required value: verbs must contain at least one value"]);
}
