//! Decides which instance takes a backup, and whether the one that was told to still can.
//!
//! From: who streams, who leads, who is fenced or leaves, and what each agent says of itself. A standby before the primary: copying takes its disk
//! and its network from nobody who waits. Never: an instance that copies or catches up itself; and no other while the one that was told goes on, since
//! all that it has copied would be copied again.

use bellwether_api::v1::InstanceState;

use super::instances::{Members, ours};
use super::status::{Health, health};
use crate::build::Parent;
use crate::contract::BackupOrder;
use crate::fence::Fences;
use crate::observed::{Observed, Pod, PodPhase};

/// What is said while nobody can take one.
pub const NOBODY: &str = "no instance can take it now: none streams, and none accepts writes";

/// Where backups are taken.
#[derive(Clone, Copy)]
pub struct Ground<'a> {
    pub observed: &'a Observed,
    pub parent: &'a Parent<'a>,
    pub members: &'a Members,
    pub fences: &'a Fences,
}

/// Whether an order was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// Its instance said so.
    Yes,
    /// Nobody has heard of it.
    NotKnown,
}

impl Ground<'_> {
    /// Who takes the next backup: the first standby that can, or else the primary. Whoever failed comes last.
    pub fn choose(&self, failed: Option<&str>) -> Option<&str> {
        let mut able: Vec<&Pod> = self.observed.pods.items.values().filter(|pod| self.is_able(pod)).collect();
        // Stable: within each of these they stay in the order of their names.
        able.sort_by_key(|pod| (failed == Some(pod.name.as_str()), pod.leads()));
        able.first().map(|pod| pod.name.as_str())
    }

    /// Why the instance that was told does not get to the end; nothing while it may. What goes wrong with a backup that it has begun, its agent says;
    /// here is what no agent can say any more.
    pub fn lost(&self, order: &BackupOrder, begun: Begun) -> Option<String> {
        let pod = self.observed.pods.items.get(&order.instance).filter(|pod| ours(pod, self.parent));
        let Some(pod) = pod else { return Some("its pod is gone".to_owned()) };
        if pod.terminating {
            return Some("its pod is being stopped".to_owned());
        }
        if pod.phase == PodPhase::Ended {
            return Some("its pod ended".to_owned());
        }
        if !self.stays(pod) {
            return Some("it leaves the cluster".to_owned());
        }
        if self.fences.instances.contains(&pod.name) {
            return Some("PostgreSQL is stopped there, because it is fenced".to_owned());
        }
        if let Some(trouble) = &pod.trouble {
            return Some(trouble.message.clone());
        }
        match pod.state() {
            InstanceState::Bootstrapping | InstanceState::Joining => Some("it copies the database anew".to_owned()),
            // A backup that was begun goes on while its standby looks for a new primary. Another begins one sooner.
            _ if begun == Begun::NotKnown && !self.is_able(pod) => {
                self.choose(Some(&pod.name)).map(|_| "it neither streams nor accepts writes".to_owned())
            }
            _ => None,
        }
    }

    fn is_able(&self, pod: &Pod) -> bool {
        let leads = self.observed.leader() == Some(&pod.name) && pod.leads();
        ours(pod, self.parent)
            && self.stays(pod)
            && health(Some(pod), self.fences) == Health::Good
            && (leads || pod.streams())
    }

    fn stays(&self, pod: &Pod) -> bool {
        self.members.wanted.contains(&pod.name)
    }
}
