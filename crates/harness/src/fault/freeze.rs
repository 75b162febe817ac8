//! A node that stops: none of its processes runs, containers included. Its kernel still acknowledges what arrives, as that of
//! a machine does whose processes wait for a dead disk. Everybody else sees silence, not a closed connection.

use crate::Error;
use crate::cgroup::{Motion, set_motion};
use crate::layout::{Node, Place};

/// Stops every process of the node.
pub fn freeze(node: Node) -> Result<(), Error> {
    set_motion(&Place::Node(node).cgroup(), Motion::Frozen)
}

/// Lets them go on, where they were.
pub fn thaw(node: Node) -> Result<(), Error> {
    set_motion(&Place::Node(node).cgroup(), Motion::Running)
}
