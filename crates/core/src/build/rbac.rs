//! The agents' service account and what it may do.

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding, RoleRef, Subject};

use super::Parent;
use crate::object::{Desired, Kind};
use crate::rbac;

/// Service account, Role and RoleBinding of the agents of `instances`.
pub fn agent(parent: &Parent<'_>, instances: &[String]) -> Vec<Desired> {
    let name = parent.names.agent_account();
    let account = ServiceAccount { metadata: parent.owned(&name), ..ServiceAccount::default() };
    let role = Role { metadata: parent.owned(&name), rules: Some(rbac::agent_rules(&parent.names, instances)) };
    let binding = RoleBinding {
        metadata: parent.owned(&name),
        role_ref: RoleRef {
            api_group: "rbac.authorization.k8s.io".to_owned(),
            kind: "Role".to_owned(),
            name: name.clone(),
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name: name.clone(),
            namespace: Some(parent.namespace.clone()),
            ..Subject::default()
        }]),
    };
    vec![
        Desired::of(Kind::ServiceAccount, &name, &account),
        Desired::of(Kind::Role, &name, &role),
        Desired::of(Kind::RoleBinding, &name, &binding),
    ]
}
