//! What one case works with: a namespace of its own, and requests whose every detail can be asserted.
//!
//! Names are unique to the case and the run, so that cases run side by side and can be repeated. Never: shares an object with
//! another case, or leaves one behind when the case fails.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderMap, Method, Request};
use kube::client::Body;
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::custom::Definition;
use crate::reply::Reply;
use crate::server::Access;
use crate::watching::Watch;

/// Where namespaces are.
const NAMESPACES: &str = "/api/v1/namespaces/";

/// One case's corner of the API.
#[derive(Clone)]
pub struct World {
    /// The namespace of the case.
    pub ns: String,
    /// Unique to the case and the run; a valid DNS label.
    pub id: String,
    client: Client,
    access: Arc<Access>,
    rubbish: Arc<Mutex<Vec<String>>>,
}

/// The kinds of patch, by content type.
#[derive(Clone, Copy, Debug)]
pub enum Patch {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl Patch {
    pub fn content_type(self) -> &'static str {
        match self {
            Patch::Json => "application/json-patch+json",
            Patch::Merge => "application/merge-patch+json",
            Patch::Strategic => "application/strategic-merge-patch+json",
            Patch::Apply => "application/apply-patch+yaml",
        }
    }
}

impl World {
    pub async fn create(access: Arc<Access>, case: &'static str) -> Result<Self, String> {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let nth = COUNTER.fetch_add(1, Ordering::Relaxed);
        let id = format!("c{}-{nth}", access.run);
        let world = Self {
            ns: format!("conformance-{id}"),
            id,
            client: access.client.clone(),
            access,
            rubbish: Arc::default(),
        };
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": world.ns, "annotations": {"case": case}},
        });
        let reply = world.post("/api/v1/namespaces", &namespace).await;
        if reply.code != 201 {
            return Err(reply.describe());
        }
        world.discard(format!("/api/v1/namespaces/{}", world.ns));
        if world.access.controllers && world.access.remote {
            // Pods are refused until the namespace's default service account exists.
            let account = world.core("serviceaccounts/default");
            world
                .until("the default service account", async || (world.get(&account).await.code == 200).then_some(()))
                .await;
        }
        Ok(world)
    }

    /// Marks a path for deletion at the end of the case.
    pub fn discard(&self, path: String) {
        self.rubbish.lock().expect("no panic while locked").push(path);
    }

    /// Removes what the case left, namespaces apart.
    pub async fn clean_up(&self) {
        let namespaces = |path: &String| path.starts_with(NAMESPACES);
        let rubbish: Vec<_> = std::mem::take(&mut *self.rubbish.lock().expect("no panic while locked"));
        let (namespaces, rest): (Vec<_>, Vec<_>) = rubbish.into_iter().partition(namespaces);
        self.rubbish.lock().expect("no panic while locked").extend(namespaces);
        for path in rest.iter().rev() {
            self.delete(path).await;
        }
    }

    /// Removes its namespaces. When all cases are done: on a real server each takes a hundred requests of a controller, and three
    /// hundred of them would stand in line before the one whose end a case waits for.
    pub async fn leave(&self) {
        let rubbish: Vec<_> = std::mem::take(&mut *self.rubbish.lock().expect("no panic while locked"));
        for path in rubbish.iter().rev() {
            self.delete(path).await;
            if !self.access.controllers && path.starts_with(NAMESPACES) {
                // Nobody else ends a namespace on a server without controllers.
                let name = path.rsplit('/').next().unwrap_or_default();
                let done = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "spec": {"finalizers": []}});
                self.put(&format!("{path}/finalize"), &done).await;
            }
        }
    }

    /// The path of something of the core group in this namespace: `configmaps/a`.
    pub fn core(&self, rest: &str) -> String {
        format!("/api/v1/namespaces/{}/{rest}", self.ns)
    }

    /// The path of something of another group in this namespace.
    pub fn group(&self, group_version: &str, rest: &str) -> String {
        format!("/apis/{group_version}/namespaces/{}/{rest}", self.ns)
    }

    /// A ConfigMap of this namespace.
    pub fn config_map(&self, name: &str, data: &Value) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": self.ns}, "data": data})
    }

    /// Creates a ConfigMap.
    pub async fn given_config_map(&self, name: &str, data: &Value) -> Value {
        self.post(&self.core("configmaps"), &self.config_map(name, data)).await.object()
    }

    /// A pod that no scheduler takes, so that it stays as it was written, on every kind of server.
    pub fn pod(&self, name: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": self.ns},
            "spec": {
                "schedulerName": "nobody", "automountServiceAccountToken": false,
                "containers": [{"name": "main", "image": "example.com/main:1"}],
            },
        })
    }

    /// Creates a pod.
    pub async fn given_pod(&self, pod: &Value) -> Value {
        self.post(&self.core("pods"), pod).await.object()
    }

    /// Installs a CustomResourceDefinition and waits until its objects are served.
    pub async fn install(&self, definition: Definition) -> crate::custom::Resource {
        definition.install(self).await
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.call(Method::GET, path, &[], None).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Reply {
        self.call(Method::POST, path, &[("content-type", "application/json")], Some(body.to_string())).await
    }

    pub async fn put(&self, path: &str, body: &Value) -> Reply {
        self.call(Method::PUT, path, &[("content-type", "application/json")], Some(body.to_string())).await
    }

    pub async fn delete(&self, path: &str) -> Reply {
        self.call(Method::DELETE, path, &[], None).await
    }

    pub async fn delete_with(&self, path: &str, options: &Value) -> Reply {
        let mut options = options.clone();
        options["apiVersion"] = json!("v1");
        options["kind"] = json!("DeleteOptions");
        self.call(Method::DELETE, path, &[("content-type", "application/json")], Some(options.to_string())).await
    }

    pub async fn patch(&self, kind: Patch, path: &str, body: &Value) -> Reply {
        self.call(Method::PATCH, path, &[("content-type", kind.content_type())], Some(body.to_string())).await
    }

    /// Server-side apply.
    pub async fn apply(&self, path: &str, manager: &str, body: &Value) -> Reply {
        self.patch(Patch::Apply, &format!("{path}?fieldManager={manager}"), body).await
    }

    /// Server-side apply that takes what others own.
    pub async fn apply_by_force(&self, path: &str, manager: &str, body: &Value) -> Reply {
        self.patch(Patch::Apply, &format!("{path}?fieldManager={manager}&force=true"), body).await
    }

    /// A GET with an `Accept` header.
    pub async fn get_as(&self, path: &str, accept: &str) -> Reply {
        self.call(Method::GET, path, &[("accept", accept)], None).await
    }

    /// Any request at all.
    pub async fn call(&self, method: Method, path: &str, headers: &[(&str, &str)], body: Option<String>) -> Reply {
        send(&self.client, method, path, headers, body).await
    }

    /// Opens a watch; `query` without the `watch=true`.
    pub async fn watch(&self, path: &str, query: &str) -> Watch {
        Watch::open(&self.client, &format!("{path}?watch=true&{query}")).await
    }

    /// The same API, spoken to with other credentials.
    pub fn with_token(&self, token: Option<&str>) -> Self {
        let mut config: Config = self.access.config.clone();
        config.auth_info = kube::config::AuthInfo { token: token.map(|t| t.to_owned().into()), ..Default::default() };
        Self { client: Client::try_from(config).expect("a client from a config that worked before"), ..self.clone() }
    }

    /// Waits for a condition; the wait is bounded by the case's own time limit, and here by a complaint that says what for.
    pub async fn until<T>(&self, what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
        for _ in 0..1200 {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("waited 60 s in vain for {what}");
    }
}

/// A kube-apiserver that exchanges the storage of a custom resource, because its definition changed or has just been
/// established, answers this for a moment, before it looks at the request. Clients retry it, and so does the suite.
pub const EXCHANGED: &str = "apiserver is shutting down";

async fn send(client: &Client, method: Method, path: &str, headers: &[(&str, &str)], body: Option<String>) -> Reply {
    let body = body.unwrap_or_default().into_bytes();
    for _ in 0..100 {
        let reply = send_once(client, &method, path, headers, body.clone()).await;
        if reply.code != 503 || reply.body["message"] != EXCHANGED {
            return reply;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{method} {path}: {EXCHANGED:?} for 5 s");
}

async fn send_once(client: &Client, method: &Method, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Reply {
    let mut request = Request::builder().method(method.clone()).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::from(body)).expect("a well-formed request");
    let asked = format!("{method} {path}");
    let response = client.send(request).await.unwrap_or_else(|error| panic!("{asked}: {error}"));
    let (head, body) = response.into_parts();
    let bytes = body.collect_bytes().await.unwrap_or_else(|error| panic!("{asked}: {error}"));
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let headers: HeaderMap = head.headers;
    Reply { asked, code: head.status.as_u16(), headers, body: serde_json::from_str(&text).unwrap_or(Value::Null), text }
}
