//! CustomResourceDefinitions of a case's own: `widgets` in a group that nobody else uses.

use serde_json::{Value, json};

use crate::world::World;

/// A definition on its way to the server.
#[derive(Clone, Debug)]
pub struct Definition {
    pub body: Value,
}

/// A resource that is served.
#[derive(Clone, Debug)]
pub struct Resource {
    pub group: String,
    pub api_version: String,
    /// The collection in the case's namespace.
    pub path: String,
    /// The definition itself.
    pub definition: String,
    ns: String,
}

impl Definition {
    /// `Widget`, namespaced, one version `v1`, status subresource, with this schema of `spec`.
    pub fn new(world: &World, spec: &Value) -> Self {
        let group = format!("{}.conformance.example.com", world.id);
        let status = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        Self {
            body: json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": format!("widgets.{group}")},
                "spec": {
                    "group": group, "scope": "Namespaced",
                    "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
                    "versions": [{
                        "name": "v1", "served": true, "storage": true,
                        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
                        "subresources": {"status": {}},
                    }],
                },
            }),
        }
    }

    /// A definition whose `spec` is an object with these properties.
    pub fn with_properties(world: &World, properties: &Value) -> Self {
        Self::new(world, &json!({"type": "object", "properties": properties}))
    }

    /// The first version, for changes.
    pub fn version(&mut self) -> &mut Value {
        &mut self.body["spec"]["versions"][0]
    }

    /// With the scale subresource on `.spec.replicas`.
    pub fn scaled(mut self) -> Self {
        self.version()["subresources"]["scale"] = json!({
            "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        });
        self
    }

    /// Creates it and waits until the API serves its objects.
    pub async fn install(self, world: &World) -> Resource {
        let name = crate::reply::name(&self.body);
        let definition = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
        world.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &self.body).await.object();
        world.discard(definition.clone());
        let spec = &self.body["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (group, plural, version) =
            (text(&spec["group"]), text(&spec["names"]["plural"]), text(&spec["versions"][0]["name"]));
        let api_version = format!("{group}/{version}");
        let path = world.group(&api_version, &plural);
        world.until("the definition to be served", async || (world.get(&path).await.code == 200).then_some(())).await;
        Resource { group, api_version, path, definition, ns: world.ns.clone() }
    }
}

impl Resource {
    /// A widget.
    pub fn object(&self, name: &str, spec: &Value) -> Value {
        json!({
            "apiVersion": self.api_version, "kind": "Widget",
            "metadata": {"name": name, "namespace": self.ns}, "spec": spec,
        })
    }

    /// The path of one widget, or of its subresource: `a/status`.
    pub fn at(&self, rest: &str) -> String {
        format!("{}/{rest}", self.path)
    }

    /// Creates a widget.
    pub async fn given(&self, world: &World, name: &str, spec: &Value) -> Value {
        world.post(&self.path, &self.object(name, spec)).await.object()
    }
}
