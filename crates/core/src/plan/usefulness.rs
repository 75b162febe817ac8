//! Decides which standby a cluster can best do without.
//!
//! From: what each says of itself and what its kubelet says, who is on its way out already, who shares a node with whom, and their numbers. One that
//! holds no copy goes before one that is broken, that before one that is behind, that before one that streams. Among equals: the one that
//! is on its way out already (a choice that changes its mind gets nowhere), one that shares its node with another, the highest number.
//! Never: calls one useless of which nothing can be read.

use std::cmp::Reverse;
use std::fmt;

use bellwether_api::names::Names;
use bellwether_api::v1::InstanceState;

use crate::contract::InstanceConfig;
use crate::observed::Pod;

/// What a standby is good for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Worth {
    /// It has not joined yet.
    #[default]
    Empty,
    /// It has joined, and does not work.
    Broken,
    /// It is on its way back, or too far behind for readers.
    Behind,
    /// It streams; or what it does can't be read.
    Streams,
}

/// Why one can be done without.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Because {
    worth: Worth,
    shares: Option<(String, String)>,
    /// Whether others are worth as much.
    tied: bool,
}

/// The one of `standbys` that is the least useful, and why. `all` are all that are there, the primary included.
pub fn least_useful<'a>(
    standbys: &[&'a Pod],
    all: &[&Pod],
    told: Option<&InstanceConfig>,
    names: &Names,
) -> Option<(&'a Pod, Because)> {
    let leaves = |pod: &Pod| told.is_some_and(|told| told.is_leaving(&pod.name));
    // A standby that lags now and then is no reason to begin with another.
    let class = |pod: &Pod| worth(pod).min(Worth::Behind);
    let order = |pod: &Pod| {
        let (leaves, shares) = (leaves(pod), neighbour(pod, all).is_some());
        (class(pod), !leaves, worth(pod), !shares, Reverse(names.serial(&pod.name)))
    };
    let least = standbys.iter().min_by_key(|pod| order(pod))?;
    let shares = neighbour(least, all);
    let rank = |pod: &Pod| (worth(pod), neighbour(pod, all).is_some());
    let tied = standbys.iter().any(|other| other.name != least.name && rank(other) == rank(least));
    Some((least, Because { worth: worth(least), shares, tied }))
}

fn worth(pod: &Pod) -> Worth {
    use InstanceState::{Bootstrapping, CatchingUp, Joining, Pending, Starting};
    if pod.report.is_unknown() {
        return Worth::Streams;
    }
    let state = pod.state();
    match state {
        Pending | Joining | Bootstrapping if pod.role().is_none() => Worth::Empty,
        _ if pod.trouble.is_some() || !pod.full().is_empty() => Worth::Broken,
        Starting | CatchingUp => Worth::Behind,
        _ if pod.streams() => Worth::Streams,
        _ => Worth::Broken,
    }
}

/// Its node, and another that is lost together with it.
fn neighbour(pod: &Pod, all: &[&Pod]) -> Option<(String, String)> {
    let node = pod.node.as_ref()?;
    let other = all.iter().find(|other| other.name != pod.name && other.node.as_ref() == Some(node))?;
    Some((node.clone(), other.name.clone()))
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.worth, &self.shares) {
            (Worth::Empty, _) => write!(f, "it has not joined yet")?,
            (Worth::Broken, _) => write!(f, "it does not stream")?,
            (Worth::Behind, _) => write!(f, "it is behind the others")?,
            (Worth::Streams, Some((node, other))) => write!(f, "it is on node {node} as {other} is")?,
            (Worth::Streams, None) if self.tied => return write!(f, "it has the highest number of those as useful"),
            (Worth::Streams, None) => return write!(f, "all others are worse to lose"),
        }
        if self.tied { write!(f, ", and has the highest number of those") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bellwether_api::labels;
    use serde_json::{Value, json};

    fn pod(serial: u32, node: &str, state: &str) -> Pod {
        let role = if state == "Joining" { Value::Null } else { "standby".into() };
        let report = json!({"role": role, "state": state, "acceptsSql": true}).to_string();
        let pod = json!({
            "metadata": {"name": format!("o-{serial}"), "uid": "u", "resourceVersion": "1", "annotations": {labels::REPORT: report}},
            "spec": {"nodeName": node, "containers": []},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        });
        Pod::read(serde_json::from_value(pod).unwrap()).unwrap()
    }
    fn chosen(pods: &[Pod], leaving: Option<&str>) -> (String, String) {
        let all: Vec<_> = pods.iter().collect();
        let leaving = leaving.map(|name| json!({"instance": name, "since": "2026-01-01T00:00:00Z"}));
        let told = serde_json::from_value(json!({"leaving": leaving.into_iter().collect::<Vec<_>>()})).unwrap();
        let (pod, because) = least_useful(&all, &all, Some(&told), &Names::of("o")).unwrap();
        (pod.name.clone(), because.to_string())
    }
    fn is(name: &str, because: &str) -> (String, String) {
        (name.to_owned(), because.to_owned())
    }

    #[test]
    fn what_has_not_joined_goes_before_what_is_broken_before_what_is_behind_before_what_streams() {
        let mut pods = vec![
            pod(2, "a", "Joining"),
            pod(3, "b", "NotStreaming"),
            pod(4, "c", "CatchingUp"),
            pod(5, "d", "Streaming"),
            pod(6, "e", "Streaming"),
        ];
        let mut order = vec![];
        while !pods.is_empty() {
            let (name, because) = chosen(&pods, None);
            pods.retain(|pod| pod.name != name);
            order.push(format!("{name}: {because}"));
        }
        assert_eq!(
            order,
            [
                "o-2: it has not joined yet",
                "o-3: it does not stream",
                "o-4: it is behind the others",
                "o-6: it has the highest number of those as useful",
                "o-5: all others are worse to lose",
            ]
        );
    }

    #[test]
    fn one_that_shares_its_node_goes_before_one_with_a_higher_number() {
        let pods = [pod(2, "a", "Streaming"), pod(3, "a", "Streaming"), pod(4, "b", "Streaming")];
        let because = "it is on node a as o-2 is, and has the highest number of those";
        assert_eq!(chosen(&pods, None), is("o-3", because));
    }

    #[test]
    fn whoever_is_on_its_way_out_stays_so_unless_another_broke() {
        let mut pods = [pod(2, "a", "Streaming"), pod(3, "b", "CatchingUp"), pod(4, "c", "Streaming")];
        assert_eq!(chosen(&pods, Some("o-2")).0, "o-2", "a lag comes and goes");
        pods[1] = pod(3, "b", "Down");
        assert_eq!(chosen(&pods, Some("o-2")).0, "o-3");
    }

    #[test]
    fn one_that_cannot_be_read_is_not_called_useless() {
        let mut unread = pod(4, "c", "Streaming");
        unread.report = crate::fact::Fact::Unknown;
        assert_eq!(chosen(&[unread, pod(3, "b", "CatchingUp")], None).0, "o-3");
    }
}
