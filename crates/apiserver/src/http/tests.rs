//! The server as its clients see it: permissions, grants, evictions, restarts and shutdown, over real TLS with kube's client.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{AsyncBufReadExt as _, StreamExt as _};
use http::Request;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Api, EvictParams, ListParams, LogParams, Patch, PatchParams, PostParams, WatchParams};
use kube::client::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::Status;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{LogOptions, LogStream, PodLogs, Running, ServeError, Server, ServerConfig};
use crate::error::ApiError;

async fn server() -> Running {
    Server::start(ServerConfig::in_memory()).await.unwrap()
}

async fn client(kubeconfig: &str) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

async fn admin(server: &Running) -> Client {
    client(&server.admin_kubeconfig().unwrap()).await
}

fn parsed<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

async fn created<K>(client: &Client, value: Value) -> K
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::Serialize
        + DeserializeOwned,
    K::DynamicType: Default,
{
    Api::default_namespaced(client.clone()).create(&PostParams::default(), &parsed(value)).await.unwrap()
}

fn refusal<T: std::fmt::Debug>(result: kube::Result<T>) -> Status {
    match result {
        Err(kube::Error::Api(status)) => *status,
        other => panic!("not refused: {other:?}"),
    }
}

/// A service account with a role of these rules, and a client that is it.
async fn somebody(server: &Running, name: &str, rules: Value) -> Client {
    let admin = admin(server).await;
    created::<ServiceAccount>(&admin, json!({"metadata": {"name": name}})).await;
    created::<Role>(&admin, json!({"metadata": {"name": name}, "rules": rules})).await;
    created::<RoleBinding>(&admin, binding(name, name, name)).await;
    client(&server.kubeconfig_for_service_account("default", name).unwrap()).await
}

fn binding(name: &str, role: &str, account: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "default"}],
    })
}

#[tokio::test]
async fn who_has_no_credentials_sees_health_and_version_and_nothing_else() {
    let server = server().await;
    let text = server.admin_kubeconfig().unwrap();
    let anonymous: String =
        text.lines().filter(|line| !line.contains("client-")).map(|line| format!("{line}\n")).collect();
    let client = client(&anonymous).await;
    assert!(client.apiserver_version().await.is_ok());
    let ready = client.request_text(Request::get("/readyz").body(vec![]).unwrap()).await;
    assert_eq!(ready.unwrap(), "ok");
    let refused = refusal(Api::<Pod>::all(client).list(&ListParams::default()).await);
    assert_eq!((refused.code, refused.message.as_str()), (401, "Unauthorized"));
    server.shutdown().await;
}

#[tokio::test]
async fn an_account_does_what_its_role_says_and_the_log_knows() {
    let server = server().await;
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "get"]}]);
    let writer = somebody(&server, "writer", rules).await;
    created::<ConfigMap>(&writer, json!({"metadata": {"name": "a"}})).await;
    let refused = refusal(Api::<ConfigMap>::default_namespaced(writer).list(&ListParams::default()).await);
    assert_eq!(
        refused.message,
        r#"configmaps is forbidden: User "system:serviceaccount:default:writer" cannot list resource "configmaps" in API group "" in the namespace "default""#
    );
    let audit = server.audit();
    let writes = audit.writes_by("system:serviceaccount:default:writer");
    assert_eq!(writes.len(), 1);
    assert_eq!(
        (writes[0].verb.as_str(), writes[0].name.as_deref(), writes[0].code, writes[0].changed),
        ("create", Some("a"), 201, true)
    );
    assert_eq!(audit.refusals_of("system:serviceaccount:default:writer").len(), 1);
    server.shutdown().await;
}

#[tokio::test]
async fn an_apply_that_creates_needs_create() {
    let server = server().await;
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch", "get"]}]);
    let patcher: Api<ConfigMap> = Api::default_namespaced(somebody(&server, "patcher", rules).await);
    let config =
        Patch::Apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "y"}}));
    let refused = refusal(patcher.patch("a", &PatchParams::apply("test"), &config).await);
    assert!(refused.message.contains("cannot create resource \"configmaps\""), "{}", refused.message);
    created::<ConfigMap>(&admin(&server).await, json!({"metadata": {"name": "a"}})).await;
    patcher.patch("a", &PatchParams::apply("test"), &config).await.unwrap();
    server.shutdown().await;
}

#[tokio::test]
async fn nobody_grants_what_they_do_not_hold() {
    let server = server().await;
    let rules = json!([
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": ["create", "update", "get"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
    ]);
    let granter = somebody(&server, "granter", rules).await;
    let role = |verb: &str| json!({"metadata": {"name": format!("may-{verb}")}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}]});
    created::<Role>(&granter, role("get")).await;
    let roles: Api<Role> = Api::default_namespaced(granter.clone());
    let refused = refusal(roles.create(&PostParams::default(), &parsed(role("delete"))).await);
    assert!(
        refused.message.contains("is attempting to grant RBAC permissions not currently held"),
        "{}",
        refused.message
    );
    assert!(
        refused.message.contains(r#"{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}"#),
        "{}",
        refused.message
    );

    created::<Role>(&admin(&server).await, role("delete")).await;
    let bindings: Api<RoleBinding> = Api::default_namespaced(granter.clone());
    let refused =
        refusal(bindings.create(&PostParams::default(), &parsed(binding("self", "may-delete", "granter"))).await);
    assert_eq!(refused.code, 403);
    created::<RoleBinding>(&granter, binding("fine", "may-get", "granter")).await;
    server.shutdown().await;
}

#[tokio::test]
async fn an_eviction_respects_the_disruption_budget() {
    let server = server().await;
    let admin = admin(&server).await;
    let pods: Api<Pod> = Api::default_namespaced(admin.clone());
    for name in ["a", "b"] {
        let pod = json!({"metadata": {"name": name, "labels": {"app": "pg"}}, "spec": {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 0}});
        created::<Pod>(&admin, pod).await;
        let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        pods.patch_status(name, &PatchParams::default(), &Patch::Merge(ready)).await.unwrap();
    }
    let budget =
        json!({"metadata": {"name": "pg"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "pg"}}}});
    created::<PodDisruptionBudget>(&admin, budget).await;
    pods.evict("a", &EvictParams::default()).await.unwrap();
    let refused = refusal(pods.evict("b", &EvictParams::default()).await);
    assert_eq!(
        (refused.code, refused.message.as_str()),
        (429, "Cannot evict pod as it would violate the pod's disruption budget.")
    );
    assert!(pods.get("b").await.is_ok());
    server.shutdown().await;
}

#[tokio::test]
async fn a_busy_port_and_a_busy_directory_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let running =
        Server::start(ServerConfig { dir: Some(dir.path().into()), ..ServerConfig::in_memory() }).await.unwrap();
    let address = running.address();
    match Server::start(ServerConfig { listen: address, dir: None }).await {
        Err(error @ ServeError::Busy { .. }) => assert!(error.to_string().contains(&address.to_string()), "{error}"),
        other => panic!("{:?}", other.err()),
    }
    let second = Server::start(ServerConfig { dir: Some(dir.path().into()), ..ServerConfig::in_memory() }).await;
    assert!(matches!(second, Err(ServeError::DirectoryInUse { .. })));
    running.shutdown().await;
}

#[tokio::test]
async fn objects_certificates_and_tokens_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let config = ServerConfig { dir: Some(dir.path().into()), ..ServerConfig::in_memory() };
    let first = Server::start(config.clone()).await.unwrap();
    let reader = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]);
    somebody(&first, "reader", reader).await;
    created::<ConfigMap>(&admin(&first).await, json!({"metadata": {"name": "kept"}})).await;
    let (address, token) = (first.address(), first.kubeconfig_for_service_account("default", "reader").unwrap());
    first.shutdown().await;
    let second = Server::start(ServerConfig { listen: address, ..config }).await.unwrap();
    let kept = Api::<ConfigMap>::default_namespaced(client(&token).await).get("kept").await;
    assert!(kept.is_ok(), "{kept:?}");
    let log = std::fs::read_to_string(dir.path().join("audit.log")).unwrap();
    assert!(log.lines().any(|line| line.contains(r#""name":"kept""#)));
    second.shutdown().await;
}

#[tokio::test]
async fn a_shutdown_ends_watches_and_takes_no_time() {
    let server = server().await;
    let namespaces: Api<Namespace> = Api::all(admin(&server).await);
    let mut watch = namespaces.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    watch.next().await.unwrap().unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(4), server.shutdown());
    assert!(ended.await.is_ok(), "the watch held the shutdown up");
}

#[tokio::test]
async fn a_streamed_list_ends_with_its_bookmark() {
    let server = server().await;
    let path = "/api/v1/namespaces?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=5";
    let client = admin(&server).await;
    let mut lines = client.request_stream(Request::get(path).body(vec![]).unwrap()).await.unwrap().lines();
    let mut kinds = Vec::new();
    while let Some(line) = lines.next().await {
        let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
        kinds.push(event["type"].as_str().unwrap().to_owned());
        if event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true" {
            break;
        }
    }
    assert_eq!(kinds.first().map(String::as_str), Some("ADDED"));
    assert_eq!(kinds.last().map(String::as_str), Some("BOOKMARK"));
    server.shutdown().await;
}

/// Says which options it was asked with.
struct Echo;

impl PodLogs for Echo {
    fn log(&self, pod: &Value, options: LogOptions) -> BoxFuture<'static, Result<LogStream, ApiError>> {
        let line =
            format!("{} {} {:?} {}\n", pod["metadata"]["name"], options.container, options.tail_lines, options.follow);
        let lines = futures::stream::iter([Ok(line.into())]);
        // A followed log goes on until somebody ends it.
        let stream = if options.follow { lines.chain(futures::stream::pending()).boxed() } else { lines.boxed() };
        Box::pin(std::future::ready(Ok(stream)))
    }
}

#[tokio::test]
async fn logs_come_from_whoever_runs_the_pods_and_a_follower_does_not_outlive_the_server() {
    let server = server().await;
    let admin = admin(&server).await;
    let pods: Api<Pod> = Api::default_namespaced(admin.clone());
    created::<Pod>(
        &admin,
        json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "postgres", "image": "i"}]}}),
    )
    .await;
    let refused = refusal(pods.logs("a", &LogParams::default()).await);
    assert!(refused.message.contains("no kubelet"), "{}", refused.message);
    server.set_pod_logs(Arc::new(Echo));
    let tail = LogParams { tail_lines: Some(3), ..LogParams::default() };
    assert_eq!(pods.logs("a", &tail).await.unwrap(), "\"a\" postgres Some(3) false\n");
    assert_eq!(refusal(pods.logs("missing", &tail).await).code, 404);
    let follow = LogParams { follow: true, ..LogParams::default() };
    let mut lines = pods.log_stream("a", &follow).await.unwrap().lines();
    assert_eq!(lines.next().await.unwrap().unwrap(), "\"a\" postgres None true");
    assert!(
        tokio::time::timeout(Duration::from_secs(4), server.shutdown()).await.is_ok(),
        "the follower held the shutdown up"
    );
}
