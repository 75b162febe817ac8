//! What users install, from one source: the plain manifest `deploy/bellwether.yaml`, and the templates of the Helm chart.
//!
//! Each object is built once, in a typed form, with the default values of the chart (`values.yaml`, the only part written by
//! hand besides `NOTES.txt`). The manifest holds these objects; a template is the same object with slots that Helm fills. So the chart
//! with its defaults *is* the manifest, and a test with a real Helm holds it to that.
//!
//! Never: a right, a probe or a limit that one of the two has and the other hasn't.

mod access;
mod chart;
mod network;
mod slots;
mod values;
mod workload;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde_json::Value;

use crate::generate::File;
use crate::yaml;
use values::Values;

/// Where the plain manifest installs the operator.
pub const NAMESPACE: &str = "bellwether-system";
/// Where the chart does.
const NAMESPACE_SLOT: &str = ".Release.Namespace";
/// The chart's defaults, which are the manifest's too.
const VALUES: &str = include_str!("../../../../deploy/chart/bellwether/values.yaml");

/// The manifest and the generated files of the chart.
pub fn files() -> Result<Vec<File>, String> {
    let values: Values = serde_saphyr::from_str(VALUES).map_err(|why| format!("values.yaml: {why}"))?;
    let mut files = vec![File { path: "deploy/bellwether.yaml", content: yaml::documents(&manifest(&values))? }];
    files.extend(chart::files(&values)?);
    Ok(files)
}

/// Every object of the plain manifest, in the order in which they can be applied. The custom resource definitions are files of their own:
/// whoever deletes what is in this one must not delete every cluster with it.
fn manifest(values: &Values) -> Vec<Value> {
    let mut objects = vec![workload::namespace(), access::account()];
    objects.extend(access::everywhere());
    objects.extend(access::leader());
    objects.push(network::policy(values));
    objects.push(workload::metrics_service());
    objects.push(workload::disruption_budget());
    objects.push(workload::deployment(values));
    objects
}

/// The custom resource definitions.
fn crds() -> Vec<Value> {
    bellwether_api::v1::crds().iter().map(json).collect()
}

/// An object as JSON.
fn json(object: &impl Serialize) -> Value {
    serde_json::to_value(object).expect("Kubernetes' types are JSON")
}

/// Name, namespace and labels of an object of the operator's.
fn metadata(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(NAMESPACE.to_owned()),
        labels: Some(labels()),
        ..ObjectMeta::default()
    }
}

/// The labels of everything here. Not `managed-by: bellwether`: that is how the operator knows what it made for a cluster.
fn labels() -> BTreeMap<String, String> {
    let mut labels = selector();
    labels.insert("app.kubernetes.io/version".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    labels
}

/// Those that never change, by which the operator's pods are found.
fn selector() -> BTreeMap<String, String> {
    [("name", "bellwether"), ("component", "operator")]
        .map(|(key, value)| (format!("app.kubernetes.io/{key}"), value.to_owned()))
        .into()
}
