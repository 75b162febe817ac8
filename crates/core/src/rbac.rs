//! Who may do what: the least that the code needs, spelled out. No wildcards.
//!
//! The manifest and the chart in `deploy` are rendered from these functions, and the integration tests run the operator under exactly
//! this role: a verb that is missing fails a test, and one that is too many stands here for everybody to see.

use bellwether_api::GROUP;
use bellwether_api::names::Names;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::object::Kind;

/// The name of the operator's ClusterRole, its binding and its service account.
pub const OPERATOR: &str = "bellwether-operator";

/// The name of the Role by which operators agree on who leads, and of its binding.
pub const OPERATOR_LEADER: &str = "bellwether-operator-leader";

/// The Lease by which operators agree on who leads, in their own namespace.
pub const LEADER_LEASE: &str = OPERATOR;

/// What the operator may do.
pub fn operator_role() -> ClusterRole {
    ClusterRole {
        metadata: ObjectMeta { name: Some(OPERATOR.to_owned()), ..ObjectMeta::default() },
        rules: Some(operator_rules()),
        ..ClusterRole::default()
    }
}

/// The rules of [`operator_role`].
pub fn operator_rules() -> Vec<PolicyRule> {
    let mut rules = vec![
        rule(GROUP, &["postgresclusters"], &["get", "list", "watch"]),
        rule(GROUP, &["postgresclusters/status", "backups/status"], &["patch"]),
        rule("", &["events"], &["create", "patch"]),
        // Whether it is being deleted: nothing is made in it then. Of a Role, it is the Role's own namespace that may be read.
        rule("", &["namespaces"], &["get"]),
    ];
    rules.extend(Kind::ALL.iter().map(|kind| {
        let (group, _, _, plural) = kind.coordinates();
        rule(group, &[plural], operator_verbs(*kind))
    }));
    rules
}

/// What operators need, in their own namespace, to agree on who leads. `create` can't be limited to a name: the name is not known to
/// the authorizer then.
pub fn leader_rules() -> Vec<PolicyRule> {
    let lease = |verbs: &[&str]| rule("coordination.k8s.io", &["leases"], verbs);
    vec![
        PolicyRule { resource_names: Some(vec![LEADER_LEASE.to_owned()]), ..lease(&["get", "watch", "update"]) },
        lease(&["create"]),
    ]
}

/// Every kind is cached (list, watch) and applied (patch, and create where there is none yet). Beyond that:
fn operator_verbs(kind: Kind) -> &'static [&'static str] {
    match kind {
        // Looked at afresh before its volume is deleted; told of a new configuration; removed on scale-down, for a rollout or
        // after eviction.
        Kind::Pod => &["get", "list", "watch", "create", "patch", "delete"],
        // Removed where the cluster says `onDelete: Delete`.
        Kind::PersistentVolumeClaim => &["list", "watch", "create", "patch", "delete"],
        // What is in one is not kept in a cache, so it is read when the next one is made from it.
        Kind::Secret => &["get", "list", "watch", "create", "patch"],
        // Created; annotated when a rollout wants another primary; looked at afresh before an instance is restarted. Kubernetes lets nobody
        // grant what they don't have, and the agents get `update` from us.
        Kind::Lease => &["get", "list", "watch", "create", "patch", "update"],
        // Created by the schedule, and never changed or removed: they are people's, and a view of what is in the store. Looked at afresh before a pod is
        // made to verify one.
        Kind::Backup => &["get", "list", "watch", "create"],
        // `get` is the agents' too.
        Kind::EndpointSlice => &["get", "list", "watch", "create", "patch"],
        _ => &["list", "watch", "create", "patch"],
    }
}

/// What the agents of one cluster may do: their Lease, the read-write endpoints, their own pods; and look where each other's are. No
/// Secret: what they need is mounted. But for those with the credentials of object stores, where they are named: the cluster's own, and the one that it is
/// restored from. They are the user's, may be others tomorrow, and no pod is restarted for that.
pub fn agent_rules(names: &Names, instances: &[String], credentials: &[String]) -> Vec<PolicyRule> {
    let named = |rule: PolicyRule, names: Vec<String>| PolicyRule { resource_names: Some(names), ..rule };
    let mut rules = vec![
        named(rule("coordination.k8s.io", &["leases"], &["get", "watch", "update"]), vec![names.lease()]),
        named(rule("discovery.k8s.io", &["endpointslices"], &["get", "patch"]), vec![names.rw()]),
        named(rule("", &["pods"], &["get", "patch"]), instances.to_vec()),
    ];
    // A rule that names nobody would be for all.
    if !credentials.is_empty() {
        rules.push(named(rule("", &["secrets"], &["get"]), credentials.to_vec()));
    }
    rules
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let owned = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>();
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(owned(resources)),
        verbs: owned(verbs),
        ..PolicyRule::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covers(rules: &[PolicyRule], wanted: &PolicyRule) -> bool {
        let has = |list: &Option<Vec<String>>, item: &str| list.iter().flatten().any(|other| other == item);
        wanted.resources.iter().flatten().all(|resource| {
            wanted.verbs.iter().all(|verb| {
                rules.iter().any(|rule| {
                    has(&rule.api_groups, &wanted.api_groups.as_ref().unwrap()[0])
                        && has(&rule.resources, resource)
                        && rule.verbs.contains(verb)
                })
            })
        })
    }

    #[test]
    fn nothing_is_a_wildcard() {
        let agent = agent_rules(&Names::of("a"), &["a-1".to_owned()], &["s".to_owned()]);
        for rule in operator_rules().into_iter().chain(leader_rules()).chain(agent) {
            let lists = [rule.api_groups, rule.resources, Some(rule.verbs), rule.resource_names];
            assert!(!lists.into_iter().flatten().flatten().any(|item| item == "*"));
        }
    }

    #[test]
    fn the_operator_holds_whatever_it_grants_to_agents() {
        for wanted in agent_rules(&Names::of("a"), &["a-1".to_owned()], &["s".to_owned()]) {
            assert!(covers(&operator_rules(), &wanted), "{wanted:?}");
        }
    }

    #[test]
    fn agents_read_the_secret_of_the_store_alone_and_only_where_one_is_named() {
        let secrets = |credentials: &[String]| {
            let rules = agent_rules(&Names::of("a"), &["a-1".to_owned()], credentials);
            rules.into_iter().filter(|rule| rule.resources == Some(vec!["secrets".to_owned()])).collect::<Vec<_>>()
        };
        assert_eq!(secrets(&[]), []);
        let [rule] = &secrets(&["s".to_owned()])[..] else { panic!("one rule") };
        assert_eq!((&rule.verbs[..], &rule.resource_names), (&["get".to_owned()][..], &Some(vec!["s".to_owned()])));
    }

    #[test]
    fn agents_reach_nothing_but_what_is_named() {
        for rule in agent_rules(&Names::of("a"), &["a-1".to_owned()], &["s".to_owned()]) {
            assert!(rule.resource_names.is_some_and(|names| !names.is_empty()));
        }
    }
}
