//! The OpenAPI v3 documents: what `kubectl explain`, `apply` and `diff` read.
//!
//! From: the registry's schemas. Each kind is one component with its schema inline; the operations name the query parameters by which
//! kubectl decides that the server validates fields and can do dry runs. OpenAPI v2 exists only in a protobuf form for kubectl's old
//! versions, and is answered with 404: kubectl then takes v3 (explain, validation) and its own types (strategic merge).

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::discovery::Discovery;
use crate::registry::Resource;

/// All documents for one state of the registry.
pub struct OpenApi {
    documents: BTreeMap<(String, String), Document>,
}

/// One group version's document.
pub struct Document {
    /// The JSON text.
    pub body: Bytes,
    /// Its fingerprint: clients keep a document until it changes.
    pub etag: String,
}

impl OpenApi {
    /// Of these resources.
    pub fn of(resources: &[Arc<Resource>]) -> OpenApi {
        let versions = Discovery::of(resources).versions();
        let documents = versions.into_iter().map(|(group, version)| {
            let members = resources.iter().filter(|resource| resource.group == group && resource.version == version);
            let body = Bytes::from(document(members, resources).to_string());
            let etag = Sha256::digest(&body).iter().map(|byte| format!("{byte:02X}")).collect();
            ((group, version), Document { body, etag })
        });
        OpenApi { documents: documents.collect() }
    }

    /// `/openapi/v3`
    pub fn index(&self) -> Value {
        let paths = self.documents.iter().map(|((group, version), document)| {
            let path = if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") };
            let url = format!("/openapi/v3/{path}?hash={}", document.etag);
            (path, json!({"serverRelativeURL": url}))
        });
        json!({"paths": paths.collect::<Map<_, _>>()})
    }

    /// `/openapi/v3/apis/<group>/<version>`
    pub fn document(&self, group: &str, version: &str) -> Option<&Document> {
        self.documents.get(&(group.to_owned(), version.to_owned()))
    }
}

fn document<'a>(members: impl Iterator<Item = &'a Arc<Resource>>, all: &[Arc<Resource>]) -> Value {
    let object_meta = all.iter().find(|r| !r.custom).and_then(|r| r.schema.pointer("/properties/metadata")).cloned();
    let mut schemas = Map::new();
    let mut paths = Map::new();
    for resource in members {
        schemas.insert(component(resource), schema(resource, object_meta.as_ref()));
        schemas.insert(format!("{}List", component(resource)), list_schema(resource));
        add_paths(&mut paths, resource);
    }
    json!({
        "openapi": "3.0.0", "info": {"title": "Kubernetes", "version": super::VERSION},
        "paths": paths, "components": {"schemas": schemas},
    })
}

/// `dev.bellwether.v1.PostgresCluster`
fn component(resource: &Resource) -> String {
    let group = if resource.group.is_empty() { "core.api.k8s.io" } else { &resource.group };
    let reversed: Vec<&str> = group.split('.').rev().collect();
    format!("{}.{}.{}", reversed.join("."), resource.version, resource.kind)
}

fn schema(resource: &Resource, object_meta: Option<&Value>) -> Value {
    let mut schema = Value::clone(&resource.schema);
    if !schema.is_object() {
        schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    }
    let named = [
        ("apiVersion", "The group and version of this representation of the object.".to_owned()),
        ("kind", format!("The kind of the object: {}.", resource.kind)),
    ];
    for (field, description) in named {
        if schema.pointer(&format!("/properties/{field}/description")).is_none() {
            schema["properties"][field] = json!({"type": "string", "description": description});
        }
    }
    if let Some(object_meta) = object_meta
        && schema.pointer("/properties/metadata/properties").is_none()
    {
        schema["properties"]["metadata"] = object_meta.clone();
    }
    schema["x-kubernetes-group-version-kind"] = json!([gvk(resource, &resource.kind)]);
    schema
}

fn list_schema(resource: &Resource) -> Value {
    let items = json!({"type": "array", "items": {"$ref": format!("#/components/schemas/{}", component(resource))}});
    json!({
        "type": "object", "description": format!("A list of {}.", resource.kind), "required": ["items"],
        "properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}, "items": items},
        "x-kubernetes-group-version-kind": [gvk(resource, &resource.list_kind)],
    })
}

fn gvk(resource: &Resource, kind: &str) -> Value {
    json!({"group": resource.group, "version": resource.version, "kind": kind})
}

fn add_paths(paths: &mut Map<String, Value>, resource: &Resource) {
    let root = if resource.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", resource.group) };
    let root = format!("{root}/{}", resource.version);
    let (scope, mut collection_parameters) = match resource.namespaced {
        true => ("/namespaces/{namespace}", vec![path_parameter("namespace")]),
        false => ("", vec![]),
    };
    if resource.namespaced {
        paths.insert(format!("{root}/{}", resource.plural), json!({"get": operation(resource, "list", &[])}));
    }
    let collection = format!("{root}{scope}/{}", resource.plural);
    paths.insert(
        collection.clone(),
        json!({
            "get": operation(resource, "list", &[]),
            "post": operation(resource, "post", &["dryRun", "fieldManager", "fieldValidation"]),
            "delete": operation(resource, "deletecollection", &["dryRun"]),
            "parameters": collection_parameters,
        }),
    );
    collection_parameters.push(path_parameter("name"));
    let item = |path: String, paths: &mut Map<String, Value>, with_delete: bool| {
        let mut operations = json!({
            "get": operation(resource, "get", &[]),
            "put": operation(resource, "put", &["dryRun", "fieldManager", "fieldValidation"]),
            "patch": operation(resource, "patch", &["dryRun", "fieldManager", "fieldValidation", "force"]),
            "parameters": collection_parameters,
        });
        if with_delete {
            operations["delete"] =
                operation(resource, "delete", &["dryRun", "gracePeriodSeconds", "propagationPolicy"]);
        }
        paths.insert(path, operations);
    };
    item(format!("{collection}/{{name}}"), paths, true);
    if resource.has_status {
        item(format!("{collection}/{{name}}/status"), paths, false);
    }
}

fn operation(resource: &Resource, action: &str, parameters: &[&str]) -> Value {
    let schema = json!({"$ref": format!("#/components/schemas/{}{}", component(resource), if action == "list" { "List" } else { "" })});
    let content = json!({"application/json": {"schema": schema}, "application/yaml": {"schema": schema}});
    let parameters: Vec<Value> = parameters
        .iter()
        .map(|name| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}}))
        .collect();
    let mut operation = json!({
        "description": format!("{action} {}", resource.kind),
        "parameters": parameters,
        "responses": {"200": {"description": "OK", "content": content}, "401": {"description": "Unauthorized"}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": gvk(resource, &resource.kind),
    });
    match action {
        "post" | "put" => operation["requestBody"] = json!({"content": content, "required": true}),
        "patch" => operation["requestBody"] = json!({"content": patch_content(resource), "required": true}),
        _ => {}
    }
    operation
}

/// Strategic merge is for built-in kinds only, here as everywhere.
fn patch_content(resource: &Resource) -> Value {
    let any = json!({"schema": {"type": "object"}});
    let mut content = json!({"application/apply-patch+yaml": any, "application/json-patch+json": any, "application/merge-patch+json": any});
    if !resource.custom {
        content["application/strategic-merge-patch+json"] = any;
    }
    content
}

fn path_parameter(name: &str) -> Value {
    json!({"name": name, "in": "path", "required": true, "schema": {"type": "string", "uniqueItems": true}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(custom: bool) -> Arc<Resource> {
        Arc::new(Resource {
            group: "bellwether.dev".into(),
            version: "v1".into(),
            storage: true,
            plural: "postgresclusters".into(),
            singular: "postgrescluster".into(),
            kind: "PostgresCluster".into(),
            list_kind: "PostgresClusterList".into(),
            short_names: vec![],
            categories: vec![],
            namespaced: true,
            has_status: true,
            scale: None,
            schema: json!({"type": "object", "properties": {"spec": {"type": "object"}}}).into(),
            columns: vec![],
            custom,
        })
    }
    fn parsed(custom: bool) -> Value {
        let openapi = OpenApi::of(&[resource(custom)]);
        serde_json::from_slice(&openapi.document("bellwether.dev", "v1").unwrap().body).unwrap()
    }

    #[test]
    fn kubectl_finds_the_query_parameters_on_the_patch_of_a_kind() {
        let document = parsed(true);
        let patch =
            &document["paths"]["/apis/bellwether.dev/v1/namespaces/{namespace}/postgresclusters/{name}"]["patch"];
        assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "PostgresCluster");
        let names: Vec<&str> =
            patch["parameters"].as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap()).collect();
        assert!(names.contains(&"fieldValidation") && names.contains(&"dryRun"));
        assert!(patch["requestBody"]["content"].get("application/strategic-merge-patch+json").is_none());
    }

    #[test]
    fn a_schema_is_found_by_its_kind_and_has_the_common_fields() {
        let document = parsed(true);
        let schema = &document["components"]["schemas"]["dev.bellwether.v1.PostgresCluster"];
        assert_eq!(schema["x-kubernetes-group-version-kind"][0]["group"], "bellwether.dev");
        assert_eq!(schema["properties"]["kind"]["type"], "string");
        assert_eq!(schema["properties"]["spec"]["type"], "object");
    }

    #[test]
    fn the_index_names_each_document_with_its_fingerprint() {
        let openapi = OpenApi::of(&[resource(true)]);
        let url = openapi.index()["paths"]["apis/bellwether.dev/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
        assert!(url.ends_with(&openapi.document("bellwether.dev", "v1").unwrap().etag), "{url}");
    }
}
