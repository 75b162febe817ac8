//! A volume that is full.

use crate::fault::ObjectName;
use crate::kubectl::get;
use crate::layout::Node;
use crate::volume::Volume;
use crate::{Error, Layout};

/// Takes all free space of the volume that a claim (`namespace/name`) is bound to.
pub fn fill(layout: &Layout, claim: &ObjectName) -> Result<(), Error> {
    volume(layout, claim)?.fill()
}

/// Gives it back.
pub fn free(layout: &Layout, claim: &ObjectName) -> Result<(), Error> {
    volume(layout, claim)?.free()
}

fn volume(layout: &Layout, claim: &ObjectName) -> Result<Volume, Error> {
    let object = get(layout, ["persistentvolumeclaim", "-n", &claim.namespace, &claim.name])?;
    let unbound = || Error::Refused(format!("claim {claim} is bound to no volume"));
    let name = object["spec"]["volumeName"].as_str().ok_or_else(unbound)?;
    let mut candidates = Node::ALL.into_iter().map(|node| Volume::new(node, name));
    candidates.find(|volume| volume.path().exists()).ok_or_else(unbound)
}
