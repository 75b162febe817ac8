//! Whose an archive is: one life of one database.
//!
//! From: the owner that is written in it. Never: two databases, or two lives of one, in one archive. Their segments have the same names and other contents.

use bytes::Bytes;

use crate::layout::OWNER;
use crate::record::{FORMAT, Owner};
use crate::store::{Store, StoreError};

/// Why an archive can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// It is somebody else's.
    #[error("{store} belongs to {}, not to {}: nothing is written there", describe(theirs), describe(ours))]
    Foreign {
        /// The archive.
        store: String,
        /// Whose it is.
        theirs: Box<Owner>,
        /// Who wanted it.
        ours: Box<Owner>,
    },
    /// It can't be told whose it is.
    #[error("{store}: {OWNER} can't be understood: {problem}")]
    Unreadable {
        /// The archive.
        store: String,
        /// What is wrong.
        problem: String,
    },
    /// There is none.
    #[error("{store}: there is no archive here ({OWNER} is missing)")]
    NotThere {
        /// Where.
        store: String,
    },
    /// A life of the database that can't be part of a name.
    #[error("{incarnation:?} is no name for a life of a database: letters, digits and - only")]
    Incarnation {
        /// What it is called.
        incarnation: String,
    },
    /// The store did not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn describe(owner: &Owner) -> String {
    let Owner { system_identifier, incarnation, namespace, cluster, .. } = owner;
    format!("{namespace}/{cluster} (system {system_identifier}, incarnation {incarnation})")
}

/// An archive whose owner is known.
#[derive(Clone, Debug)]
pub struct Archive {
    store: Store,
    owner: Owner,
}

/// The directory of an owner's archive below the store's address.
pub fn root(owner: &Owner) -> Result<String, ArchiveError> {
    let Owner { system_identifier, incarnation, .. } = owner;
    let fit = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if incarnation.is_empty() || !incarnation.chars().all(fit) {
        return Err(ArchiveError::Incarnation { incarnation: incarnation.clone() });
    }
    Ok(format!("{system_identifier}-{incarnation}"))
}

impl Archive {
    /// Our archive in this store, which is made if there is none.
    pub async fn open_or_create(store: &Store, ours: Owner) -> Result<Self, ArchiveError> {
        let store = store.below(&root(&ours)?);
        let theirs = match owner(&store).await {
            Err(ArchiveError::NotThere { .. }) => match create(&store, &ours).await? {
                Created::Ours => return Ok(Self { store, owner: ours }),
                Created::BySomebody => owner(&store).await?,
            },
            found => found?,
        };
        // The format is that of the words, and not whose it is.
        if (Owner { format: ours.format, ..theirs.clone() }) == ours {
            Ok(Self { store, owner: theirs })
        } else {
            let (store, theirs, ours) = (store.to_string(), Box::new(theirs), Box::new(ours));
            Err(ArchiveError::Foreign { store, theirs, ours })
        }
    }

    /// The archive whose root this store is, for whoever only reads.
    pub async fn open(root: Store) -> Result<Self, ArchiveError> {
        let owner = owner(&root).await?;
        Ok(Self { store: root, owner })
    }

    /// The store, at the archive's root.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Whose it is.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }
}

enum Created {
    Ours,
    BySomebody,
}

async fn create(store: &Store, ours: &Owner) -> Result<Created, ArchiveError> {
    let unreadable = |error: serde_json::Error| unreadable(store, error.to_string());
    let body = serde_json::to_vec_pretty(ours).map_err(unreadable)?;
    match store.put_new(OWNER, Bytes::from(body)).await {
        Ok(_) => Ok(Created::Ours),
        Err(StoreError::Conflict { .. }) => Ok(Created::BySomebody),
        Err(error) => Err(error.into()),
    }
}

async fn owner(store: &Store) -> Result<Owner, ArchiveError> {
    let body = store.find(OWNER).await?.ok_or_else(|| ArchiveError::NotThere { store: store.to_string() })?;
    let owner: Owner = serde_json::from_slice(&body).map_err(|error| unreadable(store, error.to_string()))?;
    if owner.format > FORMAT {
        let problem =
            format!("its format is {}, newer than this program's, {FORMAT}: use a newer version", owner.format);
        return Err(unreadable(store, problem));
    }
    Ok(owner)
}

fn unreadable(store: &Store, problem: String) -> ArchiveError {
    ArchiveError::Unreadable { store: store.to_string(), problem }
}
