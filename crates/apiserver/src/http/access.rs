//! Knows what the RBAC objects in the store say, and asks them.
//!
//! The policy is kept ready and made anew only when one of its objects has changed, which a watch on each of the four kinds tells.
//! Never: a decision by a policy that is older than the store the request will see (both are read under the store's lock).

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::escalation;
use super::rbac::{Ask, Policy, role_ref_of, rules_of};
use super::refusal;
use super::user::User;
use crate::error::ApiError;
use crate::registry::Resource;
use crate::request::ListOptions;
use crate::store::{Cursor, Store, WatchFrom};

const GROUP: &str = "rbac.authorization.k8s.io";
const KINDS: [&str; 4] = ["roles", "clusterroles", "rolebindings", "clusterrolebindings"];

/// The policy of the moment.
#[derive(Default)]
pub(super) struct Access {
    known: Mutex<Option<Known>>,
}

struct Known {
    policy: Arc<Policy>,
    cursors: Vec<Cursor>,
}

impl Access {
    /// The policy that the store's objects make.
    pub(super) fn policy(&self, store: &Store) -> Result<Arc<Policy>, ApiError> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(current) = known.as_mut()
            && current.is_current(store)
        {
            return Ok(current.policy.clone());
        }
        let fresh = Known::read(store)?;
        let policy = fresh.policy.clone();
        *known = Some(fresh);
        Ok(policy)
    }
}

impl Known {
    fn read(store: &Store) -> Result<Known, ApiError> {
        let mut policy = Policy::default();
        let mut cursors = Vec::new();
        let everything = ListOptions::default();
        for kind in KINDS {
            let Some(resource) = store.resource(GROUP, "v1", kind) else { continue };
            let page = store.list(&resource, None, &everything)?;
            page.items.iter().for_each(|object| policy.add(object));
            cursors.push(store.watch(&resource, None, &everything, WatchFrom::Revision(page.resource_version))?);
        }
        Ok(Known { policy: Arc::new(policy), cursors })
    }

    /// Whether nothing has changed since; a watch that has lost its place knows nothing.
    fn is_current(&mut self, store: &Store) -> bool {
        self.cursors.iter_mut().all(|cursor| matches!(store.poll(cursor), Ok(events) if events.is_empty()))
    }
}

/// Refuses what the policy does not allow.
pub(super) fn require(policy: &Policy, user: &User, ask: &Ask) -> Result<(), ApiError> {
    if policy.allows(user, ask) { Ok(()) } else { Err(refusal::forbidden(user, ask)) }
}

/// Whether writes of this resource hand out permissions.
pub(super) fn grants(resource: &Resource) -> bool {
    resource.group == GROUP && KINDS.contains(&resource.plural.as_str())
}

/// Refuses a role or binding by which its author would hand out what they do not hold. `before` is the object as it is stored.
pub(super) fn may_grant(
    policy: &Policy,
    user: &User,
    resource: &Resource,
    before: Option<&Value>,
    after: &Value,
) -> Result<(), ApiError> {
    if user.is_master() {
        return Ok(());
    }
    let text = |pointer: &str| after.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (name, namespace) =
        (text("/metadata/name"), Some(text("/metadata/namespace")).filter(|namespace| !namespace.is_empty()));
    let ask = |verb: &str, resource: &str, name: &str| Ask::Resource {
        verb: verb.into(),
        group: GROUP.into(),
        resource: resource.into(),
        subresource: None,
        namespace: namespace.map(str::to_owned),
        name: Some(name.into()),
    };
    let granted = if resource.kind.ends_with("Binding") {
        if before.is_some_and(|before| before["roleRef"] == after["roleRef"] && before["subjects"] == after["subjects"])
        {
            return Ok(());
        }
        let role = role_ref_of(after);
        let plural = if role.kind == "ClusterRole" { "clusterroles" } else { "roles" };
        if policy.allows(user, &ask("bind", plural, &role.name)) {
            return Ok(());
        }
        policy.rules_of_role(&role, namespace).to_vec()
    } else {
        if before.is_some_and(|before| before["rules"] == after["rules"])
            || policy.allows(user, &ask("escalate", &resource.plural, name))
        {
            return Ok(());
        }
        rules_of(after)
    };
    let held: Vec<_> = policy.rules_for(user, namespace).collect();
    match escalation::not_held(&held, &granted) {
        missing if missing.is_empty() => Ok(()),
        missing => Err(ApiError::forbidden(resource, name, &escalation::refusal(user, &missing))),
    }
}
