//! Tells clients which groups, versions, resources, subresources and verbs there are.
//!
//! From: the registry's resources and those that exist only as requests (reviews, tokens, evictions). Both forms of discovery say the
//! same: the old one (a document for each group version) and the aggregated one (one answer for everything).

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::registry::Resource;

const ALL: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const ALL_BUT_COLLECTION: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];
const STATUS: &[&str] = &["get", "patch", "update"];
const CREATE: &[&str] = &["create"];

/// A resource that is only ever created, and answered at once.
struct Review {
    group: &'static str,
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
}

const REVIEWS: [Review; 4] = [
    Review {
        group: "authorization.k8s.io",
        plural: "selfsubjectaccessreviews",
        singular: "selfsubjectaccessreview",
        kind: "SelfSubjectAccessReview",
    },
    Review {
        group: "authorization.k8s.io",
        plural: "selfsubjectrulesreviews",
        singular: "selfsubjectrulesreview",
        kind: "SelfSubjectRulesReview",
    },
    Review {
        group: "authorization.k8s.io",
        plural: "subjectaccessreviews",
        singular: "subjectaccessreview",
        kind: "SubjectAccessReview",
    },
    Review {
        group: "authentication.k8s.io",
        plural: "selfsubjectreviews",
        singular: "selfsubjectreview",
        kind: "SelfSubjectReview",
    },
];

/// One line of a discovery document, before it takes either form.
struct Line {
    resource: String,
    singular: String,
    namespaced: bool,
    kind: Kind,
    verbs: &'static [&'static str],
    short_names: Vec<String>,
    categories: Vec<String>,
    subresources: Vec<Sub>,
}

struct Sub {
    name: &'static str,
    kind: Kind,
    verbs: &'static [&'static str],
}

/// A kind; with group and version where they are not the resource's own.
#[derive(Clone)]
struct Kind {
    group: Cow<'static, str>,
    version: Cow<'static, str>,
    kind: String,
}

/// The served API, by group and version.
pub struct Discovery {
    groups: BTreeMap<String, Versions>,
}

/// The resources of each version of a group, the preferred version first.
type Versions = BTreeMap<Reverse<Priority>, (String, Vec<Line>)>;

/// `v2` before `v1` before `v1beta2` before `v1alpha1` before anything else.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Priority(u8, u32, u32, String);

impl Discovery {
    /// Of these resources.
    pub fn of(resources: &[Arc<Resource>]) -> Discovery {
        let mut discovery = Discovery { groups: BTreeMap::new() };
        for resource in resources {
            discovery.add(&resource.group, &resource.version, line(resource));
        }
        for review in &REVIEWS {
            discovery.add(review.group, "v1", review_line(review));
        }
        discovery
    }

    fn add(&mut self, group: &str, version: &str, line: Line) {
        let versions = self.groups.entry(group.to_owned()).or_default();
        versions.entry(Reverse(priority(version))).or_insert_with(|| (version.to_owned(), Vec::new())).1.push(line);
    }

    /// `/apis`
    pub fn group_list(&self) -> Value {
        let groups: Vec<Value> =
            self.groups.keys().filter(|group| !group.is_empty()).filter_map(|group| self.entry(group)).collect();
        json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
    }

    /// `/apis/<group>`
    pub fn group(&self, group: &str) -> Option<Value> {
        let mut entry = self.entry(group)?;
        entry["kind"] = "APIGroup".into();
        entry["apiVersion"] = "v1".into();
        Some(entry)
    }

    fn entry(&self, group: &str) -> Option<Value> {
        let versions = self
            .groups
            .get(group)?
            .values()
            .map(|(version, _)| json!({"groupVersion": format!("{group}/{version}"), "version": version}));
        let versions: Vec<Value> = versions.collect();
        Some(json!({"name": group, "preferredVersion": versions.first(), "versions": versions}))
    }

    /// `/api/v1` and `/apis/<group>/<version>`
    pub fn resource_list(&self, group: &str, version: &str) -> Option<Value> {
        let (_, lines) = self.groups.get(group)?.get(&Reverse(priority(version)))?;
        let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        let resources: Vec<Value> = lines.iter().flat_map(legacy).collect();
        Some(
            json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources}),
        )
    }

    /// All groups but the core group, or only the core group (which `/api` serves), in the aggregated form.
    pub fn aggregated(&self, core: bool) -> Value {
        let groups = self.groups.iter().filter(|(group, _)| group.is_empty() == core);
        let items: Vec<Value> = groups.map(|(group, versions)| aggregated_group(group, versions.values())).collect();
        json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
    }

    /// The versions that exist, as `(group, version)`.
    pub fn versions(&self) -> Vec<(String, String)> {
        let all = self
            .groups
            .iter()
            .flat_map(|(group, versions)| versions.values().map(move |(version, _)| (group.clone(), version.clone())));
        all.collect()
    }
}

fn line(resource: &Resource) -> Line {
    // For its own kinds a kube-apiserver leaves group and version out of the aggregated form; for those of CRDs it does not.
    let named = |text: &String| if resource.custom { Cow::from(text.clone()) } else { Cow::default() };
    let own = Kind { group: named(&resource.group), version: named(&resource.version), kind: resource.kind.clone() };
    let other = |group: &'static str, version: &'static str, kind: &str| Kind {
        group: group.into(),
        version: version.into(),
        kind: kind.into(),
    };
    let mut subresources = Vec::new();
    if resource.has_status {
        subresources.push(Sub { name: "status", kind: own.clone(), verbs: STATUS });
    }
    if resource.scale.is_some() {
        subresources.push(Sub { name: "scale", kind: other("autoscaling", "v1", "Scale"), verbs: STATUS });
    }
    if resource.is("", "pods") {
        subresources.push(Sub { name: "binding", kind: other("", "v1", "Binding"), verbs: CREATE });
        subresources.push(Sub { name: "eviction", kind: other("policy", "v1", "Eviction"), verbs: CREATE });
        subresources.push(Sub { name: "log", kind: own.clone(), verbs: &["get"] });
    }
    if resource.is("", "serviceaccounts") {
        subresources.push(Sub {
            name: "token",
            kind: other("authentication.k8s.io", "v1", "TokenRequest"),
            verbs: CREATE,
        });
    }
    Line {
        resource: resource.plural.clone(),
        singular: resource.singular.clone(),
        namespaced: resource.namespaced,
        kind: own,
        verbs: if resource.is("", "namespaces") { ALL_BUT_COLLECTION } else { ALL },
        short_names: resource.short_names.clone(),
        categories: resource.categories.clone(),
        subresources,
    }
}

fn review_line(review: &Review) -> Line {
    Line {
        resource: review.plural.into(),
        singular: review.singular.into(),
        namespaced: false,
        kind: Kind { group: Cow::default(), version: Cow::default(), kind: review.kind.into() },
        verbs: CREATE,
        short_names: vec![],
        categories: vec![],
        subresources: vec![],
    }
}

/// A resource and its subresources as entries of an APIResourceList, which names group and version only where they are another's.
fn legacy(line: &Line) -> Vec<Value> {
    let entry = |name: &str, singular: &str, kind: &Kind, verbs: &[&str]| {
        let mut entry = json!({"name": name, "singularName": singular, "namespaced": line.namespaced, "kind": kind.kind, "verbs": verbs});
        if (&kind.group, &kind.version) != (&line.kind.group, &line.kind.version) {
            entry["group"] = kind.group.as_ref().into();
            entry["version"] = kind.version.as_ref().into();
        }
        entry
    };
    let mut main = entry(&line.resource, &line.singular, &line.kind, line.verbs);
    add_names(&mut main, line);
    let subresources =
        line.subresources.iter().map(|sub| entry(&format!("{}/{}", line.resource, sub.name), "", &sub.kind, sub.verbs));
    std::iter::once(main).chain(subresources).collect()
}

fn add_names(entry: &mut Value, line: &Line) {
    for (key, values) in [("shortNames", &line.short_names), ("categories", &line.categories)] {
        if !values.is_empty() {
            entry[key] = json!(values);
        }
    }
}

fn aggregated_group<'a>(group: &str, versions: impl Iterator<Item = &'a (String, Vec<Line>)>) -> Value {
    let versions: Vec<Value> = versions
        .map(|(version, lines)| {
            let resources: Vec<Value> = lines.iter().map(aggregated_resource).collect();
            json!({"version": version, "resources": resources, "freshness": "Current"})
        })
        .collect();
    let metadata = if group.is_empty() { json!({}) } else { json!({"name": group}) };
    json!({"metadata": metadata, "versions": versions})
}

fn aggregated_resource(line: &Line) -> Value {
    let kind = |kind: &Kind| json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
    let mut entry = json!({
        "resource": line.resource, "responseKind": kind(&line.kind), "scope": if line.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": line.singular, "verbs": line.verbs,
    });
    add_names(&mut entry, line);
    if !line.subresources.is_empty() {
        let subresources = line
            .subresources
            .iter()
            .map(|sub| json!({"subresource": sub.name, "responseKind": kind(&sub.kind), "verbs": sub.verbs}));
        entry["subresources"] = subresources.collect();
    }
    entry
}

/// The place of a version in the order of preference.
pub(super) fn priority(version: &str) -> Priority {
    let parsed = version.strip_prefix('v').and_then(|rest| {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let major = rest[..digits].parse().ok()?;
        match &rest[digits..] {
            "" => Some((3, major, 0)),
            suffix => {
                let (stage, minor) = suffix
                    .strip_prefix("beta")
                    .map(|minor| (2, minor))
                    .or_else(|| Some((1, suffix.strip_prefix("alpha")?)))?;
                Some((stage, major, minor.parse().ok()?))
            }
        }
    });
    match parsed {
        Some((stage, major, minor)) => Priority(stage, major, minor, String::new()),
        None => Priority(0, 0, 0, version.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::ScalePaths;

    fn cluster(version: &str) -> Arc<Resource> {
        Arc::new(Resource {
            group: "bellwether.dev".into(),
            version: version.into(),
            storage: true,
            plural: "postgresclusters".into(),
            singular: "postgrescluster".into(),
            kind: "PostgresCluster".into(),
            list_kind: "PostgresClusterList".into(),
            short_names: vec!["pgc".into()],
            categories: vec!["all".into()],
            namespaced: true,
            has_status: true,
            scale: Some(ScalePaths {
                spec: ".spec.replicas".into(),
                status: ".status.replicas".into(),
                selector: None,
            }),
            schema: json!({}).into(),
            columns: vec![],
            custom: true,
        })
    }

    #[test]
    fn the_stable_version_is_preferred() {
        let discovery = Discovery::of(&[cluster("v1alpha1"), cluster("v1")]);
        let group = discovery.group("bellwether.dev").unwrap();
        assert_eq!(group["preferredVersion"]["groupVersion"], "bellwether.dev/v1");
        assert_eq!(group["versions"][1]["version"], "v1alpha1");
    }

    #[test]
    fn a_resource_is_listed_with_its_subresources() {
        let list = Discovery::of(&[cluster("v1")]).resource_list("bellwether.dev", "v1").unwrap();
        let names: Vec<&str> =
            list["resources"].as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["postgresclusters", "postgresclusters/status", "postgresclusters/scale"]);
        assert_eq!(list["resources"][0]["shortNames"], json!(["pgc"]));
        assert_eq!(list["resources"][2]["group"], "autoscaling");
    }

    #[test]
    fn both_forms_agree() {
        let discovery = Discovery::of(&[cluster("v1")]);
        let aggregated = discovery.aggregated(false);
        let ours = aggregated["items"]
            .as_array()
            .unwrap()
            .iter()
            .find(|item| item["metadata"]["name"] == "bellwether.dev")
            .unwrap();
        let resource = &ours["versions"][0]["resources"][0];
        assert_eq!(
            resource["verbs"],
            discovery.resource_list("bellwether.dev", "v1").unwrap()["resources"][0]["verbs"]
        );
        assert_eq!(resource["subresources"][1]["responseKind"]["kind"], "Scale");
        assert_eq!(discovery.aggregated(true)["items"], json!([]));
    }

    #[test]
    fn what_is_not_served_is_none() {
        assert!(Discovery::of(&[]).resource_list("bellwether.dev", "v1").is_none());
        assert!(Discovery::of(&[]).group("nope").is_none());
    }
}
