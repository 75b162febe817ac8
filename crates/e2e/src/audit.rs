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

/// A request of one of our accounts.
#[derive(Debug, Clone)]
pub struct Request {
    /// What was done.
    pub right: Right,
    /// To what, for people.
    pub object: String,
    /// Whether it failed for want of a permission. A quota or an admission rule answers 403 too, and is no lack of ours.
    pub forbidden: bool,
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
        file.seek(SeekFrom::Start(self.0)).map_err(harness::Error::file(&path))?;
        let lines = BufReader::new(file).lines().map_while(Result::ok);
        // Most lines are other accounts': parsing only ours is a tenth of the work. The last may be half-written.
        let ours = lines.filter(|line| line.contains("system:serviceaccount:"));
        Ok(ours.filter_map(|line| request(&serde_json::from_str(&line).ok()?)).collect())
    }
}

fn request(entry: &Value) -> Option<Request> {
    let account = account(entry["user"]["username"].as_str()?)?;
    // Discovery and health have no object, and need no right of ours.
    let object = entry.get("objectRef")?;
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let subresource = text("subresource");
    let resource = match subresource {
        "" => text("resource").to_owned(),
        _ => format!("{}/{subresource}", text("resource")),
    };
    let verb = entry["verb"].as_str()?;
    Some(Request {
        object: format!("{verb} {resource} {}/{}", text("namespace"), text("name")),
        right: Right { account, group: text("apiGroup").to_owned(), resource, verb: verb.to_owned() },
        forbidden: entry["annotations"]["authorization.k8s.io/decision"] == "forbid",
        time: entry["stageTimestamp"].as_str().unwrap_or_default().to_owned(),
    })
}

fn account(user: &str) -> Option<Account> {
    let name = user.strip_prefix("system:serviceaccount:")?.split_once(':')?.1;
    match name {
        "bellwether-operator" => Some(Account::Operator),
        name if name.ends_with("-agent") => Some(Account::Agent),
        _ => None,
    }
}

/// The rights that were used, successfully or not.
pub fn used(requests: &[Request]) -> BTreeSet<Right> {
    requests.iter().map(|request| request.right.clone()).collect()
}

/// Fails when one of our accounts lacked a permission, naming each lack once.
pub fn nothing_forbidden(requests: &[Request]) -> Outcome {
    let lacking: BTreeSet<String> =
        requests.iter().filter(|request| request.forbidden).map(|request| request.right.to_string()).collect();
    if lacking.is_empty() {
        return Ok(());
    }
    let first = requests.iter().find(|request| request.forbidden);
    let first = first.map(|request| format!("{} at {}", request.object, request.time)).unwrap_or_default();
    let lacking = lacking.into_iter().collect::<Vec<_>>().join(", ");
    Err(Failure::Wrong(format!("refused by RBAC: {lacking}; the first was {first}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(user: &str, verb: &str, decision: &str, code: u64) -> Option<Request> {
        request(&json!({
            "user": {"username": user}, "verb": verb, "responseStatus": {"code": code},
            "objectRef": {"apiGroup": "bellwether.dev", "resource": "postgresclusters", "subresource": "status"},
            "annotations": {"authorization.k8s.io/decision": decision},
        }))
    }

    #[test]
    fn only_our_accounts_count() {
        assert!(entry("system:serviceaccount:bellwether-system:bellwether-operator", "patch", "allow", 200).is_some());
        assert!(entry("system:serviceaccount:shop:orders-agent", "get", "allow", 200).is_some());
        assert!(entry("system:serviceaccount:kube-system:job-controller", "get", "allow", 200).is_none());
        assert!(entry("admin", "patch", "allow", 200).is_none());
    }

    #[test]
    fn a_missing_permission_is_found_and_a_spent_quota_is_none() {
        let agent = "system:serviceaccount:shop:orders-agent";
        let quota = entry(agent, "create", "allow", 403).unwrap();
        nothing_forbidden(&[quota.clone()]).unwrap();
        let lack = entry(agent, "delete", "forbid", 403).unwrap();
        let failure = nothing_forbidden(&[quota, lack]).unwrap_err().to_string();
        assert!(failure.contains("agents: delete postgresclusters/status.bellwether.dev"), "{failure}");
    }
}
