//! Nodes that can't reach each other, the API server, or anybody.
//!
//! A cut is a set of rules that drop packets in the network namespace of a node, before anything else sees them: open
//! connections starve as well, and nobody gets an answer that says so. All kinds of traffic between the two ends are
//! concerned: replication, agents, clients on the host, kubelets. Pods on the cut-off node still reach each other.

use std::collections::BTreeSet;

use crate::Error;
use crate::command::Run;
use crate::layout::{API_PORT, CONTROL_ADDRESS, Node, Place};
use crate::network::inside;

/// Ours in the `mangle` table: it sees packets before addresses of Services are replaced, and after.
const INCOMING: &str = "HARNESS-IN";
const OUTGOING: &str = "HARNESS-OUT";

/// What is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Nothing gets in or out.
    Both,
    /// Nothing gets in; what it sends arrives.
    Incoming,
    /// Nothing gets out; it hears the others.
    Outgoing,
    /// It can't reach the API server, nor is reached by it; everything else works.
    Api,
    /// It and one other node can't reach each other.
    From(Node),
}

/// A packet to drop on the node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Drop {
    chain: &'static str,
    matching: String,
}

fn rules(cut: Cut) -> BTreeSet<Drop> {
    let incoming = |matching: String| Drop { chain: INCOMING, matching };
    let outgoing = |matching: String| Drop { chain: OUTGOING, matching };
    // By interface: pods of the node talk to each other over another one.
    let all_in = incoming("-i eth0".into());
    let all_out = outgoing("-o eth0".into());
    match cut {
        Cut::Both => [all_in, all_out].into(),
        Cut::Incoming => [all_in].into(),
        Cut::Outgoing => [all_out].into(),
        // Also what the API server begins itself: exec, logs, webhooks in pods. Not the host, where clients are.
        Cut::Api => [
            outgoing(format!("-o eth0 -d {CONTROL_ADDRESS} -p tcp --dport {API_PORT}")),
            incoming(format!("-i eth0 -s {CONTROL_ADDRESS} -p tcp --sport {API_PORT}")),
            incoming(format!("-i eth0 -s {CONTROL_ADDRESS} -p tcp --dport 10250")),
        ]
        .into(),
        Cut::From(other) => {
            let ends = [other.address().to_string(), other.pod_subnet()];
            let both = |end: &String| [incoming(format!("-i eth0 -s {end}")), outgoing(format!("-o eth0 -d {end}"))];
            ends.iter().flat_map(both).collect()
        }
    }
}

/// Cuts a node off. Cuts add up.
pub fn cut(node: Node, cut: Cut) -> Result<(), Error> {
    for (chain, hook) in [(INCOMING, "PREROUTING"), (OUTGOING, "POSTROUTING")] {
        if iptables(node, &format!("-n -L {chain}")).go().is_err() {
            iptables(node, &format!("-N {chain}")).go()?;
            iptables(node, &format!("-I {hook} -j {chain}")).go()?;
        }
    }
    let present = cuts(node)?;
    for Drop { chain, matching } in rules(cut) {
        let rule = format!("{chain} {matching} -j DROP");
        if !present.contains(&rule) && iptables(node, &format!("-C {rule}")).go().is_err() {
            iptables(node, &format!("-A {rule}")).go()?;
        }
    }
    Ok(())
}

/// Undoes all cuts of a node.
pub fn heal(node: Node) -> Result<(), Error> {
    for chain in [INCOMING, OUTGOING] {
        if iptables(node, &format!("-n -L {chain}")).go().is_ok() {
            iptables(node, &format!("-F {chain}")).go()?;
        }
    }
    Ok(())
}

/// The rules in effect on a node, for people to read.
pub fn cuts(node: Node) -> Result<Vec<String>, Error> {
    let saved = inside(Place::Node(node), "iptables-save -t mangle").output()?;
    let ours = saved.lines().filter_map(|line| line.strip_prefix("-A ")).filter(|line| line.starts_with("HARNESS-"));
    Ok(ours.map(str::to_owned).collect())
}

fn iptables(node: Node, arguments: &str) -> Run {
    inside(Place::Node(node), &format!("iptables -w 5 -t mangle {arguments}"))
}
