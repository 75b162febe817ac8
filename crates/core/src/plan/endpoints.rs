//! Decides whom the `-ro` and `-r` Services send clients to.
//!
//! From: what each instance says about itself, and what the kubelet says about it. Never: a standby that doesn't stream (its
//! clients would read old data without knowing), or an instance that is stopping.

use crate::build::Parent;
use crate::build::slices::{self, Member};
use crate::object::Desired;
use crate::observed::{Observed, Pod};

/// The slices as they should be.
pub fn endpoints(observed: &Observed, parent: &Parent<'_>) -> Vec<Desired> {
    let members = |which: fn(&Pod) -> bool| -> Vec<Member> {
        let pods = observed.pods.items.values().filter(|pod| super::instances::ours(pod, parent) && which(pod));
        pods.filter_map(member).collect()
    };
    vec![
        slices::rw(parent),
        slices::slice(parent, &parent.names.ro(), &members(Pod::streams)),
        slices::slice(parent, &parent.names.r(), &members(|pod| pod.streams() || pod.leads())),
    ]
}

fn member(pod: &Pod) -> Option<Member> {
    Some(Member { pod: pod.name.clone(), uid: pod.uid.clone(), address: pod.ip.clone()?, node: pod.node.clone() })
}
