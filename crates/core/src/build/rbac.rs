//! The agents' service account and what it may do.
//!
//! Each of the three has the cluster's pods among its owners, beside the cluster. The garbage collector removes an object when its last
//! owner is gone: so an agent keeps its rights until its pod is gone too, and can withdraw its endpoint and write its last report
//! when its cluster is deleted. Never: the pods' owner references in the hash. A pod that is gone is taken from the list by the
//! garbage collector, and that is no change for anybody to correct.

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding, RoleRef, Subject};

use serde_json::json;

use super::Parent;
use crate::object::{Desired, Kind};
use crate::observed::Pod;
use crate::rbac;

/// Service account, Role and RoleBinding of the agents of `instances`, who read these Secrets of the user's. They stay until the `pods` are gone.
pub fn agent<'a>(
    parent: &Parent<'_>,
    instances: &[String],
    secrets: &[String],
    pods: impl Iterator<Item = &'a Pod>,
) -> Vec<Desired> {
    let name = parent.names.agent_account();
    let from =
        (instances.to_vec(), secrets.to_vec(), pods.map(|pod| (pod.name.clone(), pod.uid.clone())).collect::<Vec<_>>());
    let built = |kind, build: fn(&Parent<'_>, &str, &[String], &[String]) -> Desired| {
        parent.built(kind, &name, &from, || {
            let owners =
                from.2.iter().map(|(name, uid)| json!({ "apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid }));
            build(parent, &name, instances, secrets).also_owned_by(owners)
        })
    };
    vec![built(Kind::ServiceAccount, account), built(Kind::Role, role), built(Kind::RoleBinding, binding)]
}

fn account(parent: &Parent<'_>, name: &str, _: &[String], _: &[String]) -> Desired {
    let account = ServiceAccount { metadata: parent.owned(name), ..ServiceAccount::default() };
    Desired::of(Kind::ServiceAccount, name, &account)
}

fn role(parent: &Parent<'_>, name: &str, instances: &[String], secrets: &[String]) -> Desired {
    let rules = rbac::agent_rules(&parent.names, instances, secrets);
    let role = Role { metadata: parent.owned(name), rules: Some(rules) };
    Desired::of(Kind::Role, name, &role)
}

fn binding(parent: &Parent<'_>, name: &str, _: &[String], _: &[String]) -> Desired {
    let binding = RoleBinding {
        metadata: parent.owned(name),
        role_ref: RoleRef {
            api_group: "rbac.authorization.k8s.io".to_owned(),
            kind: "Role".to_owned(),
            name: name.to_owned(),
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name: name.to_owned(),
            namespace: Some(parent.namespace.clone()),
            ..Subject::default()
        }]),
    };
    Desired::of(Kind::RoleBinding, name, &binding)
}
