//! What is done to a cluster.

use std::time::Duration;

use serde::{Deserialize, Serialize};

const OVERLOADED: Duration = Duration::from_secs(30);
const OVERLOAD_SECONDS: &str = "BELLWETHER_OVERLOAD_SECONDS";

/// How long a server is overloaded: half a minute, unless somebody says otherwise.
pub fn overloaded_for() -> Duration {
    let said = std::env::var(OVERLOAD_SECONDS).ok().and_then(|said| said.parse().ok());
    said.map_or(OVERLOADED, Duration::from_secs)
}

/// One thing that is done. Unless it says otherwise, to the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// `kill -9` of the postmaster; its agent lives.
    PostmasterKilled,
    /// The postmaster is stopped by SIGSTOP: nobody is let in, and who is in works on.
    PostmasterFrozen,
    /// Every process of PostgreSQL is: connections stay open, and nothing answers.
    PostgresFrozen,
    /// `kill -9` of a backend: PostgreSQL starts itself again.
    BackendKilled,
    /// `kill -9` of the agent: PostgreSQL dies with it, and the container starts again.
    AgentKilled,
    /// The agent is stopped by SIGSTOP, and goes on when another leads. PostgreSQL lives; nobody extends its time.
    AgentFrozen,
    /// The pod is deleted as a drain does it: another takes over first.
    PodDeleted,
    /// The pod is deleted without a grace period.
    PodDeletedByForce,
    /// Nothing is broken: the primary is asked to hand over.
    Switchover,
    /// `kill -9` of the agent of a standby.
    StandbyKilled,
    /// Agent and PostgreSQL of every standby are frozen for eight seconds: commits wait.
    StandbysFrozen,
    /// Every agent is killed, and with it every PostgreSQL.
    AllKilled,
    /// Every connection that the application may have is taken, and every core is kept busy, for half a minute (or
    /// `BELLWETHER_OVERLOAD_SECONDS`).
    Overload,
    /// API server and operator stop for twenty seconds. Whoever is connected writes on.
    ApiFrozen,
    /// The node is cut off from everything for twenty seconds.
    NodeCutOff,
    /// Every process on the node is frozen for twenty seconds.
    NodeFrozen,
    /// The node is drained, as an administrator does before maintenance, and put back into service.
    NodeDrained,
    /// The node and those of both standbys can't reach each other for thirty seconds. The API is within reach.
    CutFromStandbys,
    /// The node can't reach the API for twenty seconds: no reason for another primary.
    CutFromApi,
    /// The node of a standby is cut off from everything for twenty seconds: no reason for another primary either.
    StandbyNodeCutOff,
}

impl Fault {
    /// Those that need no nodes of their own.
    pub const EMBEDDED: [Self; 14] = [
        Self::PostmasterKilled,
        Self::PostmasterFrozen,
        Self::PostgresFrozen,
        Self::BackendKilled,
        Self::AgentKilled,
        Self::AgentFrozen,
        Self::PodDeleted,
        Self::PodDeletedByForce,
        Self::Switchover,
        Self::StandbyKilled,
        Self::StandbysFrozen,
        Self::AllKilled,
        Self::Overload,
        Self::ApiFrozen,
    ];

    /// Those that are done on real nodes.
    pub const NODES: [Self; 14] = [
        Self::PostmasterKilled,
        Self::AgentKilled,
        Self::PodDeleted,
        Self::PodDeletedByForce,
        Self::Switchover,
        Self::AllKilled,
        Self::Overload,
        Self::ApiFrozen,
        Self::NodeCutOff,
        Self::NodeFrozen,
        Self::NodeDrained,
        Self::CutFromStandbys,
        Self::CutFromApi,
        Self::StandbyNodeCutOff,
    ];

    /// As it is written.
    pub fn name(self) -> String {
        serde_json::to_value(self).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        serde_json::from_value(name.into()).ok()
    }

    /// Whether it is done to a whole node: whoever watches must be on another.
    pub fn is_of_a_node(self) -> bool {
        matches!(
            self,
            Self::NodeCutOff
                | Self::NodeFrozen
                | Self::NodeDrained
                | Self::CutFromStandbys
                | Self::CutFromApi
                | Self::StandbyNodeCutOff
        )
    }

    /// Whether it lasts until somebody has done something about it: nothing else is done meanwhile.
    pub fn is_waited_for(self) -> bool {
        matches!(self, Self::PostmasterFrozen | Self::PostgresFrozen | Self::AgentFrozen) || self.is_of_a_node()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_a_name_that_leads_back_to_it() {
        for fault in Fault::EMBEDDED.into_iter().chain(Fault::NODES) {
            assert_eq!(Fault::named(&fault.name()), Some(fault), "{fault:?}");
        }
        assert_eq!(Fault::PostmasterKilled.name(), "postmaster-killed");
        assert_eq!(Fault::named("nothing"), None);
    }
}
