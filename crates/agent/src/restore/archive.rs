//! Looks into the archive that a new cluster is restored from, before anything is touched: what is there, and whether the target can be reached from it.
//!
//! Never: a store that did not answer taken for one that has nothing.

use bellwether_backup::base::seal::{self, CommitError};
use bellwether_backup::catalog::{self, Catalog};
use bellwether_backup::record::Commit;
use bellwether_backup::restore::choose::{AtGap, Wanted, Way, choose};
use bellwether_backup::restore::recovery::{Including, Target};
use bellwether_backup::store::{LocationError, StoreError};
use bellwether_backup::{BackupId, Location, Store};
use bellwether_core::contract::{RecoveryOrder, RecoveryTarget, RecoveryWay};
use bellwether_core::words;
use k8s_openapi::jiff::Timestamp;

use super::{Chosen, STORE_AWAY_SECONDS, Unrestored};
use crate::archive::place;
use crate::archive::restore_wal::access::Access;
use crate::instance::Instance;
use crate::kubernetes::secret;
use crate::space;
use crate::trouble::Trouble;

/// What is wrong with a store can be mended there, and a Secret can be corrected: it is asked again.
fn away(error: &StoreError) -> Unrestored {
    Unrestored::Away(error.to_string())
}

impl Instance {
    /// What is restored.
    pub(super) async fn look_into_archive(&mut self, order: &RecoveryOrder) -> Result<Chosen, Unrestored> {
        self.say_restoring(&format!("looking for {} in {}", order.archive, order.store.url));
        let (store, mut access) = self.open_store(order).await?;
        let archives =
            Self::keep_turning(&self.board, catalog::archives(&store)).await.map_err(|error| away(&error))?;
        let directory = match archives.meant(&order.archive).collect::<Vec<_>>()[..] {
            [(directory, _)] => directory.clone(),
            [] => {
                let there = archives
                    .archives
                    .iter()
                    .map(|(name, owner)| format!("{name} ({}/{})", owner.namespace, owner.cluster));
                let there: Vec<_> = there.collect();
                let there = if there.is_empty() { "nothing".to_owned() } else { there.join(", ") };
                return Err(Unrestored::NoSource(format!(
                    "{}: there is no archive {} here; there is {there}",
                    order.store.url, order.archive
                )));
            }
            ref several => {
                let names: Vec<_> = several.iter().map(|(name, _)| name.as_str()).collect();
                return Err(Unrestored::NoSource(format!(
                    "{}: there are several archives of {}: name the directory of one of them in spec.bootstrap.recovery.archive: {}",
                    order.store.url,
                    order.archive,
                    names.join(", ")
                )));
            }
        };
        let archive = store.below(&directory);
        let catalog = Self::keep_turning(&self.board, Catalog::read(&archive)).await.map_err(|error| away(&error))?;
        let wanted = wanted(order)?;
        let choice = choose(&catalog, &wanted).map_err(|error| Unrestored::OutOfReach(error.to_string()))?;
        let read = Self::keep_turning(&self.board, seal::read(&archive, &choice.backup.commit.id)).await;
        let commit = read.map_err(|error| match error {
            CommitError::Store(error) => away(&error),
            CommitError::Damaged { .. } | CommitError::TooNew { .. } => Unrestored::Failed(error.to_string()),
        })?;
        self.check_fits(&commit)?;
        access.archive = directory;
        access.segment_size = commit.segment_size;
        Ok(Chosen { access, window: choice.window, target: wanted.target, commit })
    }

    async fn open_store(&self, order: &RecoveryOrder) -> Result<(Store, Access), Unrestored> {
        let mut settings = place::settings(&order.store);
        let mut authority = None;
        if let Some(name) = &order.store.credentials {
            let read = secret::read(&self.secrets, &name.name).await;
            let mut contents =
                read.map_err(|error| Unrestored::Away(format!("credentials in Secret {:?}: {error}", name.name)))?;
            authority = contents.remove(place::AUTHORITY);
            settings.extend(contents);
        }
        let url = &order.store.url;
        let location = |error: LocationError| Unrestored::Away(error.to_string());
        let there = Location::new(url, settings.clone(), authority.as_deref()).map_err(location)?;
        let mut access = Access::to(url, &order.archive, 0, Some(settings));
        access.ca = authority;
        access.wait_seconds = STORE_AWAY_SECONDS;
        Ok((Store::open(&there).map_err(location)?, access))
    }

    /// Whether what is restored can be run here, and has room.
    fn check_fits(&self, commit: &Commit) -> Result<(), Unrestored> {
        let major = commit.postgres_version.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        if major != self.installation.major {
            return Err(Unrestored::Failed(format!(
                "backup {} is of PostgreSQL {major}, and spec.version is {:?}: create a cluster of version {major:?}, nothing was touched",
                commit.id, self.installation.major
            )));
        }
        if let Some(space) = commit.tablespaces.first() {
            return Err(Unrestored::Failed(format!(
                "backup {} has a tablespace at {}, and an instance's volume has no place for it: `bellwether restore` restores it; nothing was touched",
                commit.id, space.location
            )));
        }
        let data = &self.environment.data_dir;
        let free = space::free(data).map_err(|cause| Trouble::Io { what: "measure the data volume", cause })?;
        // What an earlier attempt left is removed first.
        let free = free.saturating_add(self.volume.unfinished_bytes());
        if free < commit.bytes {
            return Err(Unrestored::Away(format!(
                "backup {} is {}, and the data volume has {} free: raise spec.storage.size; nothing was touched",
                commit.id,
                words::size(commit.bytes),
                words::size(free)
            )));
        }
        Ok(())
    }
}

fn wanted(order: &RecoveryOrder) -> Result<Wanted, Unrestored> {
    let including = |exclusive: bool| if exclusive { Including::JustBefore } else { Including::Target };
    let target = match &order.target {
        RecoveryTarget::Latest => Target::Latest,
        RecoveryTarget::Time { at, exclusive } => Target::Time(*at, including(*exclusive)),
        RecoveryTarget::Lsn { at, exclusive } => Target::Lsn(*at, including(*exclusive)),
        RecoveryTarget::Name(name) => Target::Name(name.clone()),
        RecoveryTarget::Transaction { xid, exclusive } => Target::Xid(*xid, including(*exclusive)),
    };
    let way = match order.way {
        RecoveryWay::Latest => Way::Latest,
        RecoveryWay::Current => Way::Current,
        RecoveryWay::Timeline(timeline) => Way::Timeline(timeline),
    };
    let backup: Option<BackupId> = match &order.backup {
        None => None,
        Some(id) => Some(id.parse().map_err(|_| Unrestored::Failed(format!("{id:?} is no name of a backup")))?),
    };
    Ok(Wanted { target, way, at_gap: AtGap::Refuse, backup, now: Timestamp::now() })
}
