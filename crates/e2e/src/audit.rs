//! The API server's audit log, as far as our own service accounts wrote it: what they did, what was refused, which verbs they used.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};

use harness::layout::audit_log;
use serde_json::Value;

use crate::failure::{Failure, Outcome};

/// Which of our accounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Account {
    /// The operator's.
    Operator,
    /// That of a cluster's agents.
    Agent,
}

/// A right: what somebody may do or did to a resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// Whose.
    pub account: Account,
    /// The API group; empty for the core.
    pub group: String,
    /// The resource, with its subresource.
    pub resource: String,
    /// The verb.
    pub verb: String,
}

impl std::fmt::Display for Right {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let who = match self.account {
            Account::Operator => "operator",
            Account::Agent => "agents",
        };
        let group = if self.group.is_empty() { String::new() } else { format!(".{}", self.group) };
        write!(f, "{who}: {} {}{group}", self.verb, self.resource)
    }
}

/// Whether a request failed for want of a permission. A quota or an admission rule answers 403 too, and is no lack of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// It was allowed.
    None,
    /// The operator's own Lease, after whoever uninstalled the operator had removed its rights: its pods are told to stop a moment
    /// later, and a renewal may fall into that moment. Nothing else, and nobody else: an agent's rights outlive its pod.
    Withdrawn,
    /// A right that we were to have.
    Missing,
}

/// Why a request was answered by 403 although it was permitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// A quota is spent.
    Quota,
    /// The namespace is being deleted.
    NamespaceEnds,
    /// The pod's service account was removed before it, with its cluster: that was deleted in the middle of its creation.
    ClusterDeleted,
    /// What should not happen.
    Otherwise(String),
}

/// A request of one of our accounts.
#[derive(Debug, Clone)]
pub struct Request {
    /// What was done.
    pub right: Right,
    /// To what, for people.
    pub object: String,
    /// Whether a permission was missing, and why.
    pub lack: Lack,
    /// What was said against a request that was permitted and still answered by 403.
    pub refused: Option<Refused>,
    /// Whether it made an object. Server-side apply needs `create` for that, and is logged as `patch`.
    pub created: bool,
    /// When it was finished.
    pub time: String,
}

impl Request {
    /// Whether it changed something, or tried to.
    pub fn is_write(&self) -> bool {
        !matches!(self.right.verb.as_str(), "get" | "list" | "watch")
    }

    /// Whether it is the Lease by which operators agree on who leads: the only thing that is written for ever.
    pub fn is_operator_lease(&self) -> bool {
        self.right.account == Account::Operator && self.right.resource == "leases" && self.right.verb != "create"
    }
}

/// A position in the audit log.
#[derive(Debug, Clone, Copy)]
pub struct Mark(u64);

impl Mark {
    /// The log's end.
    pub fn now() -> Outcome<Mark> {
        let path = audit_log();
        let length = std::fs::metadata(&path).map_err(harness::Error::file(&path))?.len();
        Ok(Mark(length))
    }

    /// What our accounts asked for since.
    pub fn requests(self) -> Outcome<Vec<Request>> {
        let path = audit_log();
        let mut file = File::open(&path).map_err(harness::Error::file(&path))?;
        if Mark::now()?.0 < self.0 {
            return Err(Failure::Wrong(format!("{} was begun anew since: what happened is not known", path.display())));
        }
        file.seek(SeekFrom::Start(self.0)).map_err(harness::Error::file(&path))?;
        let lines = BufReader::new(file).lines().map_while(Result::ok);
        // Most lines are of no interest here: parsing only these is a tenth of the work. The last may be half-written.
        let likely =
            lines.filter(|line| line.contains("system:serviceaccount:") || line.contains("rbac.authorization.k8s.io"));
        let mut reader = Reader::default();
        Ok(likely.filter_map(|line| reader.read(&serde_json::from_str(&line).ok()?)).collect())
    }
}

/// Reads entries in their order: a Role that was removed is gone until it is made again.
#[derive(Default)]
struct Reader {
    /// Namespace (none: cluster-wide) and name (none: all) of roles and bindings that were removed and not made again.
    withdrawn: BTreeSet<(String, String)>,
    /// Namespace and name of service accounts that were removed and not made again.
    accounts: BTreeSet<(String, String)>,
}

impl Reader {
    fn read(&mut self, entry: &Value) -> Option<Request> {
        // Discovery and health have no object, and need no right of ours.
        let object = entry.get("objectRef")?;
        let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        let verb = entry["verb"].as_str()?;
        let created = entry["responseStatus"]["code"] == 201;
        if matches!(text("resource").as_str(), "roles" | "rolebindings" | "clusterroles" | "clusterrolebindings") {
            match verb {
                "delete" | "deletecollection" => drop(self.withdrawn.insert((text("namespace"), text("name")))),
                _ if created => self.withdrawn.retain(|(namespace, _)| *namespace != text("namespace")),
                _ => {}
            }
        }
        if text("resource") == "serviceaccounts" {
            let named = (text("namespace"), text("name"));
            match verb {
                "delete" => drop(self.accounts.insert(named)),
                _ if created => drop(self.accounts.remove(&named)),
                _ => {}
            }
        }
        let (namespace, name, account) = account(entry["user"]["username"].as_str()?)?;
        let resource = match text("subresource") {
            none if none.is_empty() => text("resource"),
            subresource => format!("{}/{subresource}", text("resource")),
        };
        // The operator has several roles, whose names all begin with its own.
        let gone = |(place, role): &(String, String)| {
            (place.is_empty() || *place == namespace) && (role.is_empty() || role.starts_with(&name))
        };
        let lack = match entry["annotations"]["authorization.k8s.io/decision"].as_str() {
            Some("forbid")
                if account == Account::Operator && resource == "leases" && self.withdrawn.iter().any(gone) =>
            {
                Lack::Withdrawn
            }
            Some("forbid") => Lack::Missing,
            _ => Lack::None,
        };
        let told = entry["responseStatus"]["message"].as_str().unwrap_or_default();
        let refused = (lack == Lack::None && entry["responseStatus"]["code"] == 403).then(|| self.why(told));
        Some(Request {
            refused,
            object: format!("{verb} {resource} {}/{}", text("namespace"), text("name")),
            right: Right { account, group: text("apiGroup"), resource, verb: verb.to_owned() },
            lack,
            created,
            time: entry["stageTimestamp"].as_str().unwrap_or_default().to_owned(),
        })
    }
}

impl Reader {
    fn why(&self, told: &str) -> Refused {
        let without = |(namespace, name): &(String, String)| {
            told.contains(&format!("error looking up service account {namespace}/{name}:"))
        };
        match told {
            told if told.contains("exceeded quota") => Refused::Quota,
            told if told.contains("because it is being terminated") => Refused::NamespaceEnds,
            _ if self.accounts.iter().any(without) => Refused::ClusterDeleted,
            told => Refused::Otherwise(told.to_owned()),
        }
    }
}

/// Namespace, name and kind of an account of ours.
fn account(user: &str) -> Option<(String, String, Account)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    let account = match name {
        "bellwether-operator" => Account::Operator,
        name if name.ends_with("-agent") => Account::Agent,
        _ => return None,
    };
    Some((namespace.to_owned(), name.to_owned(), account))
}

/// The rights that were used, successfully or not.
pub fn used(requests: &[Request]) -> BTreeSet<Right> {
    let created = requests.iter().filter(|request| request.created);
    let created = created.map(|request| Right { verb: "create".to_owned(), ..request.right.clone() });
    requests.iter().map(|request| request.right.clone()).chain(created).collect()
}

/// How many requests that were permitted were refused for this reason.
pub fn refused(requests: &[Request], why: &Refused) -> usize {
    requests.iter().filter(|request| request.refused.as_ref() == Some(why)).count()
}

/// Fails when a request that was permitted was refused for no reason that there may be.
pub fn nothing_unexplained(requests: &[Request]) -> Outcome {
    for request in requests {
        if let Some(Refused::Otherwise(told)) = &request.refused {
            return Err(Failure::Wrong(format!("{} at {}: {told}", request.object, request.time)));
        }
    }
    Ok(())
}

/// Fails when one of our accounts lacked a permission, naming each lack once.
pub fn nothing_forbidden(requests: &[Request]) -> Outcome {
    let refused: Vec<&Request> = requests.iter().filter(|request| request.lack == Lack::Missing).collect();
    let Some(first) = refused.first() else { return Ok(()) };
    let first = format!("{} at {}", first.object, first.time);
    let lacking: BTreeSet<String> = refused.iter().map(|request| request.right.to_string()).collect();
    let lacking = lacking.into_iter().collect::<Vec<_>>().join(", ");
    Err(Failure::Wrong(format!("refused by RBAC: {lacking}; the first was {first}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const AGENT: &str = "system:serviceaccount:shop:orders-agent";

    fn entry(user: &str, verb: &str, resource: &str, decision: &str, code: u64) -> Value {
        json!({
            "user": {"username": user}, "verb": verb, "responseStatus": {"code": code},
            "objectRef": {"namespace": "shop", "name": "orders-agent", "resource": resource},
            "annotations": {"authorization.k8s.io/decision": decision},
        })
    }

    fn read(entries: &[Value]) -> Vec<Request> {
        let mut reader = Reader::default();
        entries.iter().filter_map(|entry| reader.read(entry)).collect()
    }

    #[test]
    fn only_our_accounts_count() {
        let users =
            ["system:serviceaccount:system:bellwether-operator", AGENT, "system:serviceaccount:shop:other", "admin"];
        let entries = users.map(|user| entry(user, "get", "pods", "allow", 200));
        let accounts: Vec<_> = read(&entries).into_iter().map(|request| request.right.account).collect();
        assert_eq!(accounts, [Account::Operator, Account::Agent]);
    }

    #[test]
    fn a_missing_permission_is_found_and_a_spent_quota_is_none() {
        let quota = entry(AGENT, "create", "pods", "allow", 403);
        nothing_forbidden(&read(std::slice::from_ref(&quota))).unwrap();
        let failure = nothing_forbidden(&read(&[quota, entry(AGENT, "delete", "pods", "forbid", 403)])).unwrap_err();
        assert!(failure.to_string().contains("agents: delete pods"), "{failure}");
    }

    #[test]
    fn what_is_refused_for_no_good_reason_is_found() {
        let told = |message: &str| {
            let mut entry = entry(AGENT, "create", "pods", "allow", 403);
            entry["responseStatus"]["message"] = message.into();
            entry
        };
        let known = [told("pods \"a\" is forbidden: exceeded quota: few"), told("x because it is being terminated")];
        nothing_unexplained(&read(&known)).unwrap();
        assert_eq!(refused(&read(&known), &Refused::Quota), 1);
        assert!(nothing_unexplained(&read(&[told("pods \"a\" is forbidden: violates PodSecurity")])).is_err());
        let orphan = told("forbidden: error looking up service account shop/orders-agent: serviceaccount not found");
        let collected = entry(
            "system:serviceaccount:kube-system:generic-garbage-collector",
            "delete",
            "serviceaccounts",
            "allow",
            200,
        );
        nothing_unexplained(&read(&[collected, orphan.clone()])).unwrap();
        assert!(nothing_unexplained(&read(&[orphan])).is_err(), "nobody removed it");
    }

    #[test]
    fn only_an_operator_that_is_being_removed_may_lack_its_lease_and_only_until_its_rights_are_back() {
        let operator = "system:serviceaccount:shop:bellwether-operator";
        let named = |mut entry: Value| {
            entry["objectRef"]["name"] = "bellwether-operator-leader".into();
            entry
        };
        let lack = entry(operator, "update", "leases", "forbid", 403);
        let removed = named(entry("admin", "delete", "rolebindings", "allow", 200));
        let back = named(entry("admin", "patch", "rolebindings", "allow", 201));
        let other = entry(operator, "patch", "pods", "forbid", 403);
        let agents = entry(AGENT, "update", "leases", "forbid", 403);
        let entries = [lack.clone(), removed, lack.clone(), other, agents, back, lack];
        let lacks: Vec<_> = read(&entries).into_iter().map(|request| request.lack).collect();
        assert_eq!(lacks, [Lack::Missing, Lack::Withdrawn, Lack::Missing, Lack::Missing, Lack::Missing]);
    }

    #[test]
    fn an_apply_that_makes_an_object_uses_create() {
        let used = used(&read(&[entry(AGENT, "patch", "pods", "allow", 201)]));
        assert_eq!(used.iter().map(|right| right.verb.as_str()).collect::<Vec<_>>(), ["create", "patch"]);
    }
}
