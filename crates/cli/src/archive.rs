//! One archive of a store, as commands that work from the store alone find it.
//!
//! Never: one of several archives taken because it came first; two lives of a cluster of the same name are two archives.

use bellwether_backup::base::seal::{self, CommitError};
use bellwether_backup::catalog::{self, Catalog};
use bellwether_backup::layout::BackupId;
use bellwether_backup::record::{Commit, Owner};
use bellwether_backup::store::{LocationError, StoreError};
use bellwether_backup::{Location, Store};
use bellwether_postgres::Installation;
use bellwether_postgres::installation::{self, OVERRIDE};

use crate::args;

/// The PostgreSQL that a backup is of is not on this machine.
#[derive(Debug, thiserror::Error)]
#[error(
    "the backup is of PostgreSQL {major}, which is not installed here: install it, or name the directory of its programs in {OVERRIDE}"
)]
pub struct NotInstalled {
    major: String,
}

/// The PostgreSQL that a backup is of.
pub fn installed(commit: &Commit) -> Result<Installation, NotInstalled> {
    let version = &commit.postgres_version;
    let major = version.split_once(|c: char| !c.is_ascii_digit()).map_or(version.as_str(), |(major, _)| major);
    installation::find(major).map_err(|_| NotInstalled { major: major.to_owned() })
}

/// Why it is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The address, or a setting, is of no use.
    #[error(transparent)]
    Location(#[from] LocationError),
    /// The store did not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A commit is not believed.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// There is none.
    #[error("{from}: there is no archive{of} here; {there}")]
    None {
        /// The address.
        from: String,
        /// Of whom.
        of: String,
        /// What there is.
        there: String,
    },
    /// There are several.
    #[error("{from}: there are several archives{of}; name the directory of one of them instead of the cluster:\n  {}", found.join("\n  "))]
    Several {
        /// The address.
        from: String,
        /// Of whom.
        of: String,
        /// Them.
        found: Vec<String>,
    },
}

/// An archive.
pub struct Archive {
    /// Where its store is.
    pub location: Location,
    /// Its directory there.
    pub directory: String,
    /// Whose it is.
    pub owner: Owner,
    /// The store, at its root.
    pub store: Store,
}

impl Archive {
    /// The only one that is meant.
    pub async fn find(source: &args::Source) -> Result<Self, ArchiveError> {
        let all = Self::find_all(source).await?;
        let mut all = all.into_iter();
        match (all.next(), all.len()) {
            (Some(archive), 0) => Ok(archive),
            (first, _) => Err(ArchiveError::Several {
                from: source.from.clone(),
                of: of(source),
                found: first.into_iter().chain(all).map(|archive| archive.name()).collect(),
            }),
        }
    }

    /// All that are meant: there is at least one.
    pub async fn find_all(source: &args::Source) -> Result<Vec<Self>, ArchiveError> {
        let location = Location::from_env(&source.from)?;
        let store = Store::open(&location)?;
        let all = catalog::archives(&store).await?;
        let there: Vec<_> = all.archives.iter().map(|(directory, owner)| name(directory, owner)).collect();
        let meant: Vec<_> = match &source.cluster {
            Some(cluster) => all.meant(cluster).collect(),
            None => all.archives.iter().collect(),
        };
        let found: Vec<_> = meant
            .into_iter()
            .map(|(directory, owner)| {
                let (directory, owner, store) = (directory.clone(), owner.clone(), store.below(directory));
                Self { location: location.clone(), directory, owner, store }
            })
            .collect();
        if found.is_empty() {
            let there = match there.is_empty() {
                true => "the address must be the one in spec.backup.store.url".to_owned(),
                false => format!("there is\n  {}", there.join("\n  ")),
            };
            return Err(ArchiveError::None { from: source.from.clone(), of: of(source), there });
        }
        Ok(found)
    }

    /// What is in it.
    pub async fn catalog(&self) -> Result<Catalog, ArchiveError> {
        Ok(Catalog::read(&self.store).await?)
    }

    /// What a backup consists of, believed only if it is as it was written.
    pub async fn commit(&self, id: &BackupId) -> Result<Commit, ArchiveError> {
        Ok(seal::read(&self.store, id).await?)
    }

    /// The cluster, for people.
    pub fn cluster(&self) -> String {
        format!("{}/{}", self.owner.namespace, self.owner.cluster)
    }

    fn name(&self) -> String {
        name(&self.directory, &self.owner)
    }
}

fn name(directory: &str, owner: &Owner) -> String {
    format!("{directory}  {}/{}", owner.namespace, owner.cluster)
}

fn of(source: &args::Source) -> String {
    source.cluster.as_ref().map(|cluster| format!(" of {cluster}")).unwrap_or_default()
}
