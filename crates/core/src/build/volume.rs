//! The PersistentVolumeClaims of an instance.
//!
//! Never: an owner reference. The volume's annotations say whose it is and what may happen to it when that cluster is gone.

use std::collections::BTreeMap;

use bellwether_api::labels;
use bellwether_api::v1::OnDelete;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::Parent;
use crate::object::{Desired, Kind};
use crate::observed::VolumeRole;

/// What the volumes of an instance hold.
pub fn roles(parent: &Parent<'_>) -> impl Iterator<Item = VolumeRole> + use<> {
    [Some(VolumeRole::Data), parent.cluster.spec.storage.wal.is_some().then_some(VolumeRole::Wal)].into_iter().flatten()
}

/// A volume of an instance, as it should be.
pub fn volume(parent: &Parent<'_>, instance: &str, role: VolumeRole) -> Desired {
    let storage = &parent.cluster.spec.storage;
    let class = storage.storage_class.as_deref();
    match (role, &storage.wal) {
        (VolumeRole::Wal, Some(wal)) => {
            claim(parent, instance, role, &wal.size, wal.storage_class.as_deref().or(class))
        }
        _ => claim(parent, instance, role, &storage.size, class),
    }
}

/// What a volume is called.
pub fn name(parent: &Parent<'_>, instance: &str, role: VolumeRole) -> String {
    match role {
        VolumeRole::Data => parent.names.data_volume(instance),
        VolumeRole::Wal => parent.names.wal_volume(instance),
    }
}

/// The size that the spec asks for.
pub fn size<'a>(parent: &Parent<'a>, role: VolumeRole) -> Option<&'a Quantity> {
    let storage = &parent.cluster.spec.storage;
    match role {
        VolumeRole::Data => Some(&storage.size),
        VolumeRole::Wal => storage.wal.as_ref().map(|wal| &wal.size),
    }
}

/// The policy as it stands in the annotation [`labels::ON_DELETE`].
pub fn on_delete(policy: OnDelete) -> &'static str {
    match policy {
        OnDelete::Retain => "Retain",
        OnDelete::Delete => "Delete",
    }
}

fn claim(parent: &Parent<'_>, instance: &str, role: VolumeRole, size: &Quantity, class: Option<&str>) -> Desired {
    let name = name(parent, instance, role);
    let mut metadata = parent.unowned(&name);
    metadata.labels.get_or_insert_default().extend([
        (labels::INSTANCE.to_owned(), instance.to_owned()),
        (labels::VOLUME.to_owned(), role.label().to_owned()),
    ]);
    metadata.annotations = Some(BTreeMap::from([
        (labels::CLUSTER_UID.to_owned(), parent.uid.clone()),
        (labels::ON_DELETE.to_owned(), on_delete(parent.cluster.spec.storage.on_delete).to_owned()),
    ]));
    let object = PersistentVolumeClaim {
        metadata,
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            storage_class_name: class.map(str::to_owned),
            resources: Some(VolumeResourceRequirements {
                requests: Some(BTreeMap::from([("storage".to_owned(), size.clone())])),
                ..VolumeResourceRequirements::default()
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        ..PersistentVolumeClaim::default()
    };
    Desired::of(Kind::PersistentVolumeClaim, name, &object)
}
