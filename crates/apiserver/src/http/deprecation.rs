//! The warning that comes with every answer about a version which its CustomResourceDefinition calls deprecated.

use serde_json::Value;

use super::discovery::priority;
use crate::registry::Resource;
use crate::request::{Subresource, Target};
use crate::store::Store;

/// The warning for a resource's version; none when it is not deprecated.
pub(super) fn warning(store: &Store, resource: &Resource) -> Option<String> {
    if !resource.custom {
        return None;
    }
    let definitions = store.resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")?;
    let target = Target {
        resource: definitions,
        namespace: None,
        name: resource.group_resource(),
        subresource: Subresource::Main,
    };
    of_definition(&*store.get(&target).ok()?, resource)
}

fn of_definition(definition: &Value, resource: &Resource) -> Option<String> {
    let versions = definition.pointer("/spec/versions")?.as_array()?;
    let own = versions.iter().find(|version| version["name"] == resource.version.as_str())?;
    if own["deprecated"] != true {
        return None;
    }
    if let Some(text) = own["deprecationWarning"].as_str() {
        return Some(text.to_owned());
    }
    let current = versions.iter().filter(|version| version["served"] == true && version["deprecated"] != true);
    let best = current.filter_map(|version| version["name"].as_str()).max_by_key(|name| priority(name));
    let (group, kind) = (&resource.group, &resource.kind);
    let instead = best.map(|version| format!("; use {group}/{version} {kind}")).unwrap_or_default();
    Some(format!("{group}/{} {kind} is deprecated{instead}", resource.version))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resource(version: &str) -> Resource {
        Resource {
            group: "bellwether.dev".into(),
            version: version.into(),
            storage: false,
            plural: "postgresclusters".into(),
            singular: "postgrescluster".into(),
            kind: "PostgresCluster".into(),
            list_kind: "PostgresClusterList".into(),
            short_names: vec![],
            categories: vec![],
            namespaced: true,
            has_status: true,
            scale: None,
            schema: json!({}).into(),
            columns: vec![],
            custom: true,
        }
    }

    #[test]
    fn a_deprecated_version_names_the_one_to_use() {
        let definition = json!({"spec": {"versions": [
            {"name": "v1alpha1", "served": true, "deprecated": true}, {"name": "v1", "served": true}, {"name": "v1beta1", "served": true},
        ]}});
        assert_eq!(
            of_definition(&definition, &resource("v1alpha1")).unwrap(),
            "bellwether.dev/v1alpha1 PostgresCluster is deprecated; use bellwether.dev/v1 PostgresCluster"
        );
        assert_eq!(of_definition(&definition, &resource("v1")), None);
    }

    #[test]
    fn the_definitions_own_words_win() {
        let definition = json!({"spec": {"versions": [{"name": "v1", "served": true, "deprecated": true, "deprecationWarning": "gone in May"}]}});
        assert_eq!(of_definition(&definition, &resource("v1")).unwrap(), "gone in May");
    }
}
