//! Reads manifests and applies them, as `kubectl apply --server-side` would.
//!
//! Every refusal names the file, the object and what the API said about the field: somebody who starts with `up -f` has no
//! kubectl at hand to find out.

use std::path::{Path, PathBuf};

use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::{GroupVersionKind, TypeMeta};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

/// The field manager of what `up` applies for its user: kubectl's, so that a later `kubectl apply --server-side` of the same
/// manifest doesn't conflict with it.
const MANAGER: &str = "kubectl";
/// Where objects without a namespace go.
pub const NAMESPACE: &str = "default";

/// One object of a manifest, and where it stands.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// The file.
    pub origin: String,
    /// The object.
    pub object: DynamicObject,
}

/// Why a manifest was not applied.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The file can't be read.
    #[error("{}: {source}; name a file that exists with -f", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It isn't YAML or JSON.
    #[error("{origin}: not valid YAML: {problem}")]
    Syntax {
        /// The file.
        origin: String,
        /// What is wrong, and where.
        problem: String,
    },
    /// An object lacks what every object has.
    #[error("{origin}: document {number} has no {field}; every object needs apiVersion, kind and metadata.name")]
    Incomplete {
        /// The file.
        origin: String,
        /// Which document of the file, from 1.
        number: usize,
        /// The field.
        field: &'static str,
    },
    /// The API doesn't know the kind.
    #[error(
        "{origin}: {api_version} {kind} is not a kind that `bellwether up` serves; a database is apiVersion: \
             bellwether.dev/v1, kind: PostgresCluster"
    )]
    UnknownKind {
        /// The file.
        origin: String,
        /// As written.
        api_version: String,
        /// As written.
        kind: String,
    },
    /// The API refused it.
    #[error("{origin}: {kind} {name:?} was refused: {message}")]
    Refused {
        /// The file.
        origin: String,
        /// The object's kind.
        kind: String,
        /// The object's name.
        name: String,
        /// What the API said: field, value and fix.
        message: String,
    },
    /// The API didn't answer.
    #[error(transparent)]
    Api(#[from] kube::Error),
}

/// The objects in a file.
pub fn read(path: &Path) -> Result<Vec<Manifest>, ManifestError> {
    let text = std::fs::read_to_string(path).map_err(|source| ManifestError::Read { path: path.to_owned(), source })?;
    parse(&path.display().to_string(), &text)
}

/// The objects in a text.
pub fn parse(origin: &str, text: &str) -> Result<Vec<Manifest>, ManifestError> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)
        .map_err(|error| ManifestError::Syntax { origin: origin.to_owned(), problem: error.to_string() })?;
    let objects = documents.into_iter().enumerate().filter(|(_, document)| !document.is_null());
    objects.map(|(index, document)| object(origin, index + 1, document)).collect()
}

fn object(origin: &str, number: usize, document: Value) -> Result<Manifest, ManifestError> {
    let origin = origin.to_owned();
    for (pointer, field) in [("/apiVersion", "apiVersion"), ("/kind", "kind"), ("/metadata/name", "metadata.name")] {
        if document.pointer(pointer).and_then(Value::as_str).is_none_or(str::is_empty) {
            return Err(ManifestError::Incomplete { origin, number, field });
        }
    }
    match serde_json::from_value(document) {
        Ok(object) => Ok(Manifest { origin, object }),
        Err(error) => Err(ManifestError::Syntax { origin, problem: format!("document {number}: {error}") }),
    }
}

/// The cluster that `up` creates when no manifest is given.
pub fn default_cluster(name: &str, version: &str, replicas: i32) -> Manifest {
    let types = TypeMeta { api_version: "bellwether.dev/v1".into(), kind: "PostgresCluster".into() };
    let mut object = DynamicObject {
        types: Some(types),
        metadata: kube::core::ObjectMeta { name: Some(name.to_owned()), ..Default::default() },
        data: json!({"spec": {"version": version, "replicas": replicas}}),
    };
    object.metadata.namespace = Some(NAMESPACE.to_owned());
    Manifest { origin: "the default cluster".to_owned(), object }
}

/// Applies an object. Returns it as it is stored.
pub async fn apply(client: &Client, manifest: &Manifest) -> Result<DynamicObject, ManifestError> {
    let Manifest { origin, object } = manifest;
    let types = object.types.clone().unwrap_or_default();
    let unknown = || ManifestError::UnknownKind {
        origin: origin.clone(),
        api_version: types.api_version.clone(),
        kind: types.kind.clone(),
    };
    let kind = GroupVersionKind::try_from(&types).map_err(|_| unknown())?;
    let found = kube::discovery::pinned_kind(client, &kind).await;
    let (resource, capabilities) = found.map_err(|error| match error {
        kube::Error::Discovery(_) => unknown(),
        kube::Error::Api(status) if status.code == 404 => unknown(),
        other => ManifestError::Api(other),
    })?;
    let api: Api<DynamicObject> = match capabilities.scope {
        kube::discovery::Scope::Cluster => Api::all_with(client.clone(), &resource),
        kube::discovery::Scope::Namespaced => {
            Api::namespaced_with(client.clone(), object.namespace().as_deref().unwrap_or(NAMESPACE), &resource)
        }
    };
    let parameters = PatchParams::apply(MANAGER);
    api.patch(&object.name_any(), &parameters, &Patch::Apply(object)).await.map_err(|error| match error {
        kube::Error::Api(status) => ManifestError::Refused {
            origin: origin.clone(),
            kind: types.kind.clone(),
            name: object.name_any(),
            message: status.message.clone(),
        },
        other => ManifestError::Api(other),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_hold_several_objects() {
        let text = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: b}\n";
        let names: Vec<_> = parse("f.yaml", text).unwrap().iter().map(|m| m.object.name_any()).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn what_is_missing_is_named_with_the_file_and_the_document() {
        let text = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\nkind: PostgresCluster\n";
        let message = parse("f.yaml", text).unwrap_err().to_string();
        assert!(message.starts_with("f.yaml: document 2 has no apiVersion"), "{message}");
    }

    #[test]
    fn what_is_not_yaml_says_where() {
        let message = parse("f.yaml", "a: [1\nb: 2").unwrap_err().to_string();
        assert!(message.starts_with("f.yaml: not valid YAML") && message.contains("line"), "{message}");
    }
}
