//! Who the operator is and what it may do. The rules are `core`'s; here is where they apply.
//!
//! Never: a ClusterRole where the operator looks after a list of namespaces.

use bellwether_core::rbac;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject};
use serde_json::Value;

use super::slots::{Place, Slot, slot};
use super::{NAMESPACE, NAMESPACE_SLOT, json, metadata};

/// The operator's service account.
pub fn account() -> Value {
    json(&core::ServiceAccount { metadata: metadata(rbac::OPERATOR), ..core::ServiceAccount::default() })
}

/// What the chart fills in.
pub fn account_slots() -> Vec<Place> {
    vec![
        slot("/metadata/namespace", Slot::Value(NAMESPACE_SLOT.to_owned())),
        slot("/metadata/annotations", Slot::Block(".Values.serviceAccount.annotations".to_owned())),
    ]
}

/// Its rights in every namespace.
pub fn everywhere() -> [Value; 2] {
    let mut role = metadata(rbac::OPERATOR);
    role.namespace = None;
    let binding = role.clone();
    [
        json(&ClusterRole { metadata: role, rules: Some(rbac::operator_rules()), aggregation_rule: None }),
        json(&ClusterRoleBinding {
            metadata: binding,
            role_ref: refers("ClusterRole", rbac::OPERATOR),
            subjects: subjects(),
        }),
    ]
}

/// What the chart fills in of [`everywhere`]'s binding.
pub fn everywhere_slots() -> Vec<Place> {
    vec![slot("/subjects/0/namespace", Slot::Value(NAMESPACE_SLOT.to_owned()))]
}

/// Its rights in one namespace; the chart makes these for each of a list.
pub fn in_one() -> [Value; 2] {
    role(rbac::OPERATOR, rbac::operator_rules())
}

/// What the chart fills in of [`in_one`], where `.` is the namespace; the second is the binding.
pub fn in_one_slots() -> [Vec<Place>; 2] {
    let namespace = || slot("/metadata/namespace", Slot::Value(".".to_owned()));
    let subject = slot("/subjects/0/namespace", Slot::Value("$.Release.Namespace".to_owned()));
    [vec![namespace()], vec![namespace(), subject]]
}

/// The Lease by which operators agree on who leads.
pub fn leader() -> [Value; 2] {
    role(rbac::OPERATOR_LEADER, rbac::leader_rules())
}

/// What the chart fills in of [`leader`]; the second is the binding.
pub fn leader_slots() -> [Vec<Place>; 2] {
    let namespace = || slot("/metadata/namespace", Slot::Value(NAMESPACE_SLOT.to_owned()));
    let subject = slot("/subjects/0/namespace", Slot::Value(NAMESPACE_SLOT.to_owned()));
    [vec![namespace()], vec![namespace(), subject]]
}

fn role(name: &str, rules: Vec<PolicyRule>) -> [Value; 2] {
    [
        json(&Role { metadata: metadata(name), rules: Some(rules) }),
        json(&RoleBinding { metadata: metadata(name), role_ref: refers("Role", name), subjects: subjects() }),
    ]
}

fn refers(kind: &str, name: &str) -> RoleRef {
    RoleRef { api_group: "rbac.authorization.k8s.io".to_owned(), kind: kind.to_owned(), name: name.to_owned() }
}

fn subjects() -> Option<Vec<Subject>> {
    Some(vec![Subject {
        kind: "ServiceAccount".to_owned(),
        name: rbac::OPERATOR.to_owned(),
        namespace: Some(NAMESPACE.to_owned()),
        api_group: None,
    }])
}
