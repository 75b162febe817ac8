//! The resources that a CustomResourceDefinition adds: one for each served version.

use serde_json::Value;

use super::{Resource, ScalePaths};

/// The served versions of a CRD. `crd` has passed validation and carries its defaults (singular, listKind).
pub fn resources_of(crd: &Value) -> Vec<Resource> {
    let spec = &crd["spec"];
    let names = &spec["names"];
    let kind = text(&names["kind"]);
    let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    versions
        .iter()
        .filter(|version| version["served"] == Value::Bool(true))
        .map(|version| Resource {
            group: text(&spec["group"]),
            version: text(&version["name"]),
            storage: version["storage"] == Value::Bool(true),
            plural: text(&names["plural"]),
            singular: or(text(&names["singular"]), || kind.to_lowercase()),
            list_kind: or(text(&names["listKind"]), || format!("{kind}List")),
            kind: kind.clone(),
            short_names: texts(&names["shortNames"]),
            categories: texts(&names["categories"]),
            namespaced: spec["scope"] == "Namespaced",
            has_status: version["subresources"].get("status").is_some(),
            scale: version["subresources"].get("scale").map(scale),
            schema: version["schema"]["openAPIV3Schema"].clone().into(),
            columns: version["additionalPrinterColumns"].as_array().cloned().unwrap_or_default(),
            custom: true,
        })
        .collect()
}

fn scale(paths: &Value) -> ScalePaths {
    ScalePaths {
        spec: text(&paths["specReplicasPath"]),
        status: text(&paths["statusReplicasPath"]),
        selector: paths["labelSelectorPath"].as_str().map(ToOwned::to_owned),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().map(|items| items.iter().map(text).collect()).unwrap_or_default()
}

fn or(text: String, otherwise: impl FnOnce() -> String) -> String {
    if text.is_empty() { otherwise() } else { text }
}
