//! Decides which standbys commits wait for: the value of `synchronous_standby_names`.
//!
//! From: the durability in force, the cluster's instances, the standbys that stream, and what is in force already. Never:
//! turns synchronous replication off under `quorum` once it was on (an acknowledged commit would then be lost with the
//! primary), and never waits for standbys that have not joined yet (bootstrap would hang on its first commit).

use std::collections::BTreeSet;

use bellwether_api::v1::DurabilityMode;
use serde::{Deserialize, Serialize};

use crate::contract::InstanceConfig;

/// Commits wait for any `needed` of `voters`. Nobody to wait for is `None` of this type, not zero of nobody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quorum {
    /// How many must have the commit.
    pub needed: usize,
    /// Who may be counted: names of instances, which are also the standbys' application names.
    pub voters: BTreeSet<String>,
}

/// What the decision is made from.
#[derive(Clone, Copy, Debug)]
pub struct Voters<'a> {
    /// The durability in force.
    pub mode: DurabilityMode,
    /// The cluster's instances other than this one.
    pub others: &'a BTreeSet<String>,
    /// Those that stream now.
    pub streaming: &'a BTreeSet<String>,
    /// What is in force.
    pub in_force: Option<&'a Quorum>,
}

/// The durability in force. The operator says; where an older one doesn't, the number of instances does.
pub fn mode(config: &InstanceConfig) -> DurabilityMode {
    config.durability.unwrap_or(match config.instances.len() {
        0 | 1 => DurabilityMode::Async,
        2 => DurabilityMode::Preferred,
        _ => DurabilityMode::Quorum,
    })
}

/// Whom commits wait for.
pub fn quorum(from: Voters<'_>) -> Option<Quorum> {
    let needed = majority_less_primary(from.others.len());
    let streaming: BTreeSet<String> = from.streaming.intersection(from.others).cloned().collect();
    match from.mode {
        DurabilityMode::Async => None,
        _ if from.others.is_empty() => None,
        DurabilityMode::Quorum if from.in_force.is_some() || streaming.len() >= needed => {
            Some(Quorum { needed, voters: from.others.clone() })
        }
        // The standbys are still being copied from this very primary: waiting for them would be waiting for ourselves.
        DurabilityMode::Quorum => None,
        DurabilityMode::Preferred if streaming.is_empty() => None,
        DurabilityMode::Preferred => Some(Quorum { needed: needed.min(streaming.len()), voters: streaming }),
    }
}

/// How many standbys make a majority of all instances together with the primary: then any majority that could elect a
/// successor includes one instance that has the commit. 3 instances: 1; 4 and 5: 2.
fn majority_less_primary(others: usize) -> usize {
    others.div_ceil(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }
    fn any(needed: usize, voters: &[&str]) -> Option<Quorum> {
        Some(Quorum { needed, voters: names(voters) })
    }
    fn decide(mode: DurabilityMode, others: &[&str], streaming: &[&str], in_force: Option<&Quorum>) -> Option<Quorum> {
        let (others, streaming) = (names(others), names(streaming));
        quorum(Voters { mode, others: &others, streaming: &streaming, in_force })
    }

    #[test]
    fn bootstrap_waits_for_nobody() {
        assert_eq!(decide(DurabilityMode::Quorum, &["o-2", "o-3"], &[], None), None);
    }

    #[test]
    fn a_quorum_is_required_from_the_first_moment_it_can_be_met() {
        let decided = decide(DurabilityMode::Quorum, &["o-2", "o-3"], &["o-3"], None);
        assert_eq!(decided, any(1, &["o-2", "o-3"]));
    }

    #[test]
    fn a_quorum_once_required_stays_required_with_no_standby_left() {
        let before = Quorum { needed: 1, voters: names(&["o-2", "o-3"]) };
        assert!(decide(DurabilityMode::Quorum, &["o-2", "o-3"], &[], Some(&before)).is_some());
    }

    #[test]
    fn acknowledged_commits_are_on_a_majority_of_all_instances() {
        for others in 1..10_usize {
            let (copies, instances) = (majority_less_primary(others) + 1, others + 1);
            assert!(copies * 2 > instances, "{copies} of {instances}");
            assert!(copies - 1 <= others);
        }
    }

    #[test]
    fn preferred_follows_who_streams() {
        let before = Quorum { needed: 1, voters: names(&["o-2", "o-3"]) };
        let mode = DurabilityMode::Preferred;
        assert_eq!(decide(mode, &["o-2", "o-3"], &["o-2"], Some(&before)), any(1, &["o-2"]));
        assert_eq!(decide(mode, &["o-2", "o-3"], &[], Some(&before)), None);
    }

    #[test]
    fn a_stranger_that_streams_is_no_voter() {
        assert_eq!(decide(DurabilityMode::Preferred, &["o-2"], &["pg_receivewal"], None), None);
    }

    #[test]
    fn async_waits_for_nobody() {
        assert_eq!(decide(DurabilityMode::Async, &["o-2"], &["o-2"], None), None);
    }
}
