//! Decides which volumes are made larger, and what is said of those that are smaller than the spec asks for.
//!
//! From: the size that the spec asks for, the one that a claim asks for, the one that it has, and what its storage says about that. Never: makes
//! a volume smaller, or holds anything up because one can't grow: whether it can is known only when it was asked to.

use bellwether_api::reason::Reason;

use super::action::{Action, Effect};
use crate::build::{self, Parent};
use crate::observed::{Growth, Observed, Volume};
use crate::quantity;

/// Claims that ask for less than the spec. One without storage behind it can't ask for more: it has to be bound first.
pub fn grow(observed: &Observed, parent: &Parent<'_>) -> Vec<Action> {
    let asking =
        short(observed, parent).filter(|(volume, wanted)| volume.bound && is_less(volume.size.as_ref(), wanted));
    asking
        .map(|(volume, size)| Action {
            why: format!("spec.storage asks for {size}"),
            effect: Effect::GrowVolume { name: volume.name.clone(), uid: volume.uid.clone(), size: size.to_owned() },
        })
        .collect()
}

/// Why volumes are smaller than the spec asks for, and how that goes; nothing when none is.
pub(super) fn told(observed: &Observed, parent: &Parent<'_>) -> Option<(Reason, String)> {
    let mut reason = Reason::VolumeGrowing;
    let mut told = vec![];
    for (volume, wanted) in short(observed, parent) {
        let (name, has) = (&volume.name, volume.capacity.as_ref().or(volume.size.as_ref()));
        let has = has.map_or_else(|| "nothing".to_owned(), Clone::clone);
        told.push(match &volume.growth {
            _ if !volume.bound => format!("{name} asks for {has} and grows to {wanted} once it is bound"),
            Some(Growth::Refused(words)) => {
                reason = Reason::VolumeNotGrown;
                format!("{name} has {has}, and its storage does not make it {wanted}: {words}")
            }
            Some(Growth::FileSystemPending) => format!("{name} has {has}, and its file system becomes {wanted} next"),
            None => format!("{name} has {has}, {wanted} is asked for"),
        });
    }
    (!told.is_empty()).then(|| (reason, told.join("; ")))
}

/// This cluster's volumes that are smaller than the spec asks for, or ask for less, with the size that it asks for.
fn short<'a>(observed: &'a Observed, parent: &Parent<'a>) -> impl Iterator<Item = (&'a Volume, &'a str)> {
    let volumes = observed.volumes.items.values();
    let ours = volumes.filter(|volume| volume.cluster_uid.as_deref() == Some(&parent.uid) && !volume.terminating);
    let sized = ours.filter_map(|volume| Some((volume, build::volume::size(parent, volume.role?)?.0.as_str())));
    sized.filter(|(volume, wanted)| {
        is_less(volume.size.as_ref(), wanted) || volume.bound && is_less(volume.capacity.as_ref(), wanted)
    })
}

/// What isn't known is not less.
fn is_less(size: Option<&String>, wanted: &str) -> bool {
    if size.is_none_or(|size| size == wanted) {
        return false;
    }
    let (size, wanted) = (size.and_then(|size| quantity::millis(size)), quantity::millis(wanted));
    size.zip(wanted).is_some_and(|(size, wanted)| size < wanted)
}
