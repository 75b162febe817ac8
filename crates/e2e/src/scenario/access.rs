//! What the API server's audit log says of our accounts over the whole run: nothing was refused, and no right is one too many.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::audit::{self, Account, Lack, Refused, Right};
use crate::failure::{Failure, Outcome, ensure};
use crate::install;
use crate::output::say;
use crate::world::World;

/// Rights that the operator holds and never uses. Kubernetes lets nobody grant what they don't have: the agents' Role holds each of
/// these, and the operator makes that Role.
const HELD_FOR_AGENTS: &[(&str, &str)] = &[("leases", "get"), ("leases", "update"), ("endpointslices", "get")];

pub fn nothing_forbidden(world: &World) -> Outcome {
    let requests = requests(world)?;
    ensure(!requests.is_empty(), || "our accounts asked for nothing: is this their log?".to_owned())?;
    let count = |account| requests.iter().filter(|request| request.right.account == account).count();
    let withdrawn = requests.iter().filter(|request| request.lack == Lack::Withdrawn).count();
    let refused = |why| audit::refused(&requests, &why);
    say(&format!(
        "         {} requests of the operator, {} of agents; 403 by RBAC: {withdrawn}; by the quota that is tested: {}; in a namespace \
         that was deleted that very moment: {}; for a cluster that was: {}",
        count(Account::Operator),
        count(Account::Agent),
        refused(Refused::Quota),
        refused(Refused::NamespaceEnds),
        refused(Refused::ClusterDeleted),
    ));
    audit::nothing_unexplained(&requests)?;
    audit::nothing_forbidden(&requests)
}

fn requests(world: &World) -> Outcome<Vec<audit::Request>> {
    world.began.ok_or_else(|| Failure::Wrong("there is no audit log".to_owned()))?.requests()
}

pub fn every_verb_used(world: &World) -> Outcome {
    let used = audit::used(&requests(world)?);
    let namespace = world.namespace("rights")?;
    namespace.ready_cluster("demo", &serde_json::json!({"replicas": 1}))?;
    let mut granted = BTreeSet::new();
    for role in world.target.list(["clusterroles", "-l", "app.kubernetes.io/name=bellwether"])? {
        granted.extend(rights(Account::Operator, &role));
    }
    for role in world.target.list(["roles", "-n", install::NAMESPACE, "-l", "app.kubernetes.io/name=bellwether"])? {
        granted.extend(rights(Account::Operator, &role));
    }
    granted.extend(rights(Account::Agent, &namespace.get(["role", "demo-agent"])?));
    ensure(granted.len() > 20, || format!("these can't be all rights: {granted:?}"))?;

    let held = |right: &Right| {
        right.account == Account::Operator && HELD_FOR_AGENTS.contains(&(right.resource.as_str(), right.verb.as_str()))
    };
    for (resource, verb) in HELD_FOR_AGENTS {
        let theirs = granted.iter().any(|r| r.account == Account::Agent && r.resource == *resource && r.verb == *verb);
        ensure(theirs, || format!("the operator holds {verb} {resource} for agents that don't have it"))?;
    }
    let unused: Vec<String> = granted.difference(&used).filter(|right| !held(right)).map(ToString::to_string).collect();
    ensure(unused.is_empty(), || format!("granted and not used in this run: {}", unused.join("; ")))
}

fn rights(account: Account, role: &Value) -> Vec<Right> {
    let words = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(|word| word.as_str().map(str::to_owned)).collect()
    };
    let mut all = vec![];
    for rule in role["rules"].as_array().into_iter().flatten() {
        for group in words(&rule["apiGroups"]) {
            for resource in words(&rule["resources"]) {
                let right = |verb| Right { account, group: group.clone(), resource: resource.clone(), verb };
                all.extend(words(&rule["verbs"]).into_iter().map(right));
            }
        }
    }
    all
}
