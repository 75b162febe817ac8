//! Decides which instances are fenced, from the annotation in which people write their names.
//!
//! Never: takes a name that no instance has for one that has: what is not understood is said, and stops nothing.

use std::collections::BTreeSet;

use bellwether_api::labels;
use bellwether_api::v1::PostgresCluster;
use kube::ResourceExt;

/// The names in the annotation, whether or not there are such instances.
pub fn wished(cluster: &PostgresCluster) -> BTreeSet<String> {
    let text = cluster.annotations().get(labels::FENCED).map(String::as_str).unwrap_or_default();
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The annotation that names these; none for nobody.
pub fn written(names: &BTreeSet<String>) -> Option<String> {
    (!names.is_empty()).then(|| names.iter().map(String::as_str).collect::<Vec<_>>().join(","))
}

/// Who is fenced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fences {
    /// Instances whose PostgreSQL is to be stopped.
    pub instances: Vec<String>,
    /// Names in the annotation that no instance has.
    pub strangers: Vec<String>,
}

/// Who of those that there should be is fenced.
pub fn fences(cluster: &PostgresCluster, there: &[String]) -> Fences {
    let (instances, strangers) = wished(cluster).into_iter().partition(|name| there.contains(name));
    Fences { instances, strangers }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cluster(annotation: Option<&str>) -> PostgresCluster {
        let metadata = json!({"name": "orders", "annotations": {labels::FENCED: annotation.unwrap_or_default()}});
        serde_json::from_value(json!({
            "apiVersion": "bellwether.dev/v1", "kind": "PostgresCluster", "metadata": metadata, "spec": {},
        }))
        .unwrap()
    }
    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn several_are_separated_by_commas_and_what_no_instance_is_called_is_told_apart() {
        let cluster = cluster(Some("orders-2, orders-9,,orders-1 "));
        let found = fences(&cluster, &names(&["orders-1", "orders-2", "orders-3"]));
        assert_eq!(found.instances, ["orders-1", "orders-2"]);
        assert_eq!(found.strangers, ["orders-9"]);
    }

    #[test]
    fn nobody_is_fenced_by_an_empty_annotation() {
        assert_eq!(fences(&cluster(Some(" ")), &names(&["orders-1"])), Fences::default());
        assert_eq!(fences(&cluster(None), &names(&["orders-1"])), Fences::default());
    }

    #[test]
    fn what_is_written_reads_back() {
        let all: BTreeSet<_> = names(&["orders-1", "orders-3"]).into_iter().collect();
        assert_eq!(wished(&cluster(written(&all).as_deref())), all);
        assert_eq!(written(&BTreeSet::new()), None);
    }
}
