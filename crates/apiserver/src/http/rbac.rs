//! Decides whether a user may do something, from Roles and their bindings.
//!
//! From: the RBAC objects, a user and one question. Rules only ever add: there is no deny, and what no rule allows is refused.
//! Never: a rule of a namespace's Role that reaches into another namespace, or a rule with `resourceNames` that allows a request
//! which names no object.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::user::User;

/// One rule of a role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    /// `get`, `list`, … or `*`.
    pub verbs: Vec<String>,
    /// API groups; the core group is the empty string.
    pub api_groups: Vec<String>,
    /// `pods`, `pods/status`, `*/scale`, `*`.
    pub resources: Vec<String>,
    /// Only these objects; empty for all.
    pub resource_names: Vec<String>,
    /// `/healthz`, `/openapi/*`.
    #[serde(rename = "nonResourceURLs")]
    pub non_resource_urls: Vec<String>,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Something of the API's objects.
    Resource {
        /// The verb, such as `list`.
        verb: String,
        /// The API group.
        group: String,
        /// The resource, such as `pods`.
        resource: String,
        /// The subresource, such as `status`.
        subresource: Option<String>,
        /// The namespace; none at cluster scope and for all namespaces.
        namespace: Option<String>,
        /// The object's name, where the request names one.
        name: Option<String>,
    },
    /// A path that is no resource.
    Url {
        /// The HTTP method in lower case.
        verb: String,
        /// The path.
        path: String,
    },
}

/// A role as it stands in a binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleRef {
    /// `Role` or `ClusterRole`.
    pub kind: String,
    /// Its name.
    pub name: String,
}

#[derive(Clone, Debug)]
struct Binding {
    role: RoleRef,
    subjects: Vec<Value>,
}

/// All roles and bindings, ready to be asked.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    cluster_roles: BTreeMap<String, Vec<Rule>>,
    roles: BTreeMap<(String, String), Vec<Rule>>,
    cluster_bindings: Vec<Binding>,
    bindings: BTreeMap<String, Vec<Binding>>,
}

impl Policy {
    /// Takes in one Role, ClusterRole, RoleBinding or ClusterRoleBinding; other kinds are none of its business.
    pub fn add(&mut self, object: &Value) {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
        match text("/kind").as_str() {
            "ClusterRole" => drop(self.cluster_roles.insert(name, rules_of(object))),
            "Role" => drop(self.roles.insert((namespace, name), rules_of(object))),
            "ClusterRoleBinding" => self.cluster_bindings.push(binding_of(object)),
            "RoleBinding" => self.bindings.entry(namespace).or_default().push(binding_of(object)),
            _ => {}
        }
    }

    /// Whether the user may.
    pub fn allows(&self, user: &User, ask: &Ask) -> bool {
        let namespace = match ask {
            Ask::Resource { namespace, .. } => namespace.as_deref(),
            Ask::Url { .. } => None,
        };
        user.is_master() || self.rules_for(user, namespace).any(|rule| rule.allows(ask))
    }

    /// Every rule that applies to the user in a namespace (or, without one, everywhere).
    pub fn rules_for<'a>(&'a self, user: &'a User, namespace: Option<&'a str>) -> impl Iterator<Item = &'a Rule> {
        let everywhere = self
            .cluster_bindings
            .iter()
            .filter(|binding| binding.role.kind == "ClusterRole")
            .map(|binding| (binding, None));
        let here = namespace
            .and_then(|namespace| self.bindings.get(namespace))
            .into_iter()
            .flatten()
            .map(move |binding| (binding, namespace));
        everywhere
            .chain(here)
            .filter(|(binding, namespace)| binding.subjects.iter().any(|subject| is_subject(subject, user, *namespace)))
            .flat_map(|(binding, namespace)| self.rules_of_role(&binding.role, namespace))
    }

    /// The rules of a role that a binding names; none when there is no such role.
    pub fn rules_of_role(&self, role: &RoleRef, namespace: Option<&str>) -> &[Rule] {
        let rules = match (role.kind.as_str(), namespace) {
            ("ClusterRole", _) => self.cluster_roles.get(&role.name),
            (_, Some(namespace)) => self.roles.get(&(namespace.to_owned(), role.name.clone())),
            _ => None,
        };
        rules.map(Vec::as_slice).unwrap_or_default()
    }
}

/// The rules of a Role or ClusterRole.
pub fn rules_of(object: &Value) -> Vec<Rule> {
    object.get("rules").and_then(|rules| Vec::deserialize(rules).ok()).unwrap_or_default()
}

/// The role that a RoleBinding or ClusterRoleBinding names.
pub fn role_ref_of(object: &Value) -> RoleRef {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    RoleRef { kind: text("/roleRef/kind"), name: text("/roleRef/name") }
}

fn binding_of(object: &Value) -> Binding {
    let subjects = object.get("subjects").and_then(Value::as_array).cloned().unwrap_or_default();
    Binding { role: role_ref_of(object), subjects }
}

fn is_subject(subject: &Value, user: &User, binding_namespace: Option<&str>) -> bool {
    let text = |key: &str| subject.get(key).and_then(Value::as_str);
    let Some(name) = text("name") else { return false };
    match text("kind") {
        Some("User") => name == user.name,
        Some("Group") => user.groups.iter().any(|group| group == name),
        Some("ServiceAccount") => text("namespace")
            .filter(|namespace| !namespace.is_empty())
            .or(binding_namespace)
            .is_some_and(|namespace| user.name == format!("system:serviceaccount:{namespace}:{name}")),
        _ => false,
    }
}

impl Rule {
    /// Whether this rule alone allows it.
    pub fn allows(&self, ask: &Ask) -> bool {
        match ask {
            Ask::Resource { verb, group, resource, subresource, name, .. } => {
                has(&self.verbs, verb)
                    && has(&self.api_groups, group)
                    && self.has_resource(resource, subresource.as_deref())
                    && (self.resource_names.is_empty()
                        || name.as_ref().is_some_and(|name| self.resource_names.contains(name)))
            }
            Ask::Url { verb, path } => {
                has(&self.verbs, verb) && self.non_resource_urls.iter().any(|pattern| url_matches(pattern, path))
            }
        }
    }

    /// `pods` does not cover `pods/status`; `*` covers everything, `*/status` the status of everything.
    pub(super) fn has_resource(&self, resource: &str, subresource: Option<&str>) -> bool {
        self.resources.iter().any(|pattern| match (pattern.as_str(), subresource) {
            ("*", _) => true,
            (pattern, None) => pattern == resource,
            (pattern, Some(subresource)) => pattern
                .split_once('/')
                .is_some_and(|(main, sub)| sub == subresource && (main == "*" || main == resource)),
        })
    }
}

pub(super) fn has(patterns: &[String], value: &str) -> bool {
    patterns.iter().any(|pattern| pattern == "*" || pattern == value)
}

pub(super) fn url_matches(pattern: &str, path: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => pattern == path,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn policy(objects: &[Value]) -> Policy {
        let mut policy = Policy::default();
        objects.iter().for_each(|object| policy.add(object));
        policy
    }
    fn role(namespace: &str, rules: &Value) -> Value {
        json!({"kind": "Role", "metadata": {"namespace": namespace, "name": "r"}, "rules": rules})
    }
    fn bound(namespace: &str, subject: &Value) -> Value {
        json!({"kind": "RoleBinding", "metadata": {"namespace": namespace, "name": "b"},
               "roleRef": {"kind": "Role", "name": "r"}, "subjects": [subject]})
    }
    fn ask(verb: &str, resource: &str, namespace: &str) -> Ask {
        let (resource, subresource) = match resource.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
            None => (resource, None),
        };
        Ask::Resource {
            verb: verb.into(),
            group: String::new(),
            resource: resource.into(),
            subresource,
            namespace: (!namespace.is_empty()).then(|| namespace.into()),
            name: Some("x".into()),
        }
    }
    fn alice() -> User {
        User::new("alice", [])
    }
    fn alice_subject() -> Value {
        json!({"kind": "User", "name": "alice"})
    }

    #[test]
    fn what_no_rule_allows_is_refused() {
        assert!(!Policy::default().allows(&alice(), &ask("get", "pods", "a")));
    }

    #[test]
    fn a_role_reaches_no_other_namespace_and_not_the_whole_cluster() {
        let rules = json!([{"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]}]);
        let policy = policy(&[role("a", &rules), bound("a", &alice_subject())]);
        assert!(policy.allows(&alice(), &ask("list", "pods", "a")));
        assert!(!policy.allows(&alice(), &ask("list", "pods", "b")));
        assert!(!policy.allows(&alice(), &ask("list", "pods", "")));
        assert!(!policy.allows(&alice(), &ask("delete", "pods", "a")));
        assert!(!policy.allows(&User::new("bob", []), &ask("list", "pods", "a")));
    }

    #[test]
    fn a_resource_does_not_include_its_subresources() {
        let rules = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["pods", "services/status", "*/scale"]}]);
        let policy = policy(&[role("a", &rules), bound("a", &alice_subject())]);
        assert!(!policy.allows(&alice(), &ask("patch", "pods/status", "a")));
        assert!(policy.allows(&alice(), &ask("patch", "services/status", "a")));
        assert!(!policy.allows(&alice(), &ask("patch", "services", "a")));
        assert!(policy.allows(&alice(), &ask("patch", "anything/scale", "a")));
    }

    #[test]
    fn resource_names_never_allow_a_request_without_a_name() {
        let rules = json!([{"verbs": ["*"], "apiGroups": [""], "resources": ["*"], "resourceNames": ["x"]}]);
        let policy = policy(&[role("a", &rules), bound("a", &alice_subject())]);
        assert!(policy.allows(&alice(), &ask("get", "secrets", "a")));
        let Ask::Resource { verb, group, resource, subresource, namespace, .. } = ask("list", "secrets", "a") else {
            unreachable!()
        };
        let nameless = Ask::Resource { verb, group, resource, subresource, namespace, name: None };
        assert!(!policy.allows(&alice(), &nameless));
    }

    #[test]
    fn a_service_account_without_namespace_is_of_the_bindings_own() {
        let rules = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]);
        let policy = policy(&[role("a", &rules), bound("a", &json!({"kind": "ServiceAccount", "name": "s"}))]);
        assert!(policy.allows(&User::service_account("a", "s"), &ask("get", "pods", "a")));
        assert!(!policy.allows(&User::service_account("b", "s"), &ask("get", "pods", "a")));
    }

    #[test]
    fn a_cluster_role_bound_in_a_namespace_stays_there() {
        let policy = policy(&[
            json!({"kind": "ClusterRole", "metadata": {"name": "c"}, "rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]}),
            json!({"kind": "RoleBinding", "metadata": {"namespace": "a", "name": "b"},
                   "roleRef": {"kind": "ClusterRole", "name": "c"}, "subjects": [{"kind": "Group", "name": "system:authenticated"}]}),
        ]);
        assert!(policy.allows(&alice(), &ask("delete", "pods", "a")));
        assert!(!policy.allows(&alice(), &ask("delete", "nodes", "")));
    }

    #[test]
    fn paths_match_exactly_or_by_prefix() {
        let policy = policy(&[
            json!({"kind": "ClusterRole", "metadata": {"name": "c"}, "rules": [{"verbs": ["get"], "nonResourceURLs": ["/api/*", "/version"]}]}),
            json!({"kind": "ClusterRoleBinding", "metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "c"},
                   "subjects": [alice_subject()]}),
        ]);
        let url = |path: &str| Ask::Url { verb: "get".into(), path: path.into() };
        assert!(policy.allows(&alice(), &url("/api/v1")));
        assert!(policy.allows(&alice(), &url("/version")));
        assert!(!policy.allows(&alice(), &url("/versions")));
    }

    #[test]
    fn masters_need_no_rule() {
        let root = User::new("root", ["system:masters".to_owned()]);
        assert!(Policy::default().allows(&root, &ask("delete", "nodes", "")));
    }
}
