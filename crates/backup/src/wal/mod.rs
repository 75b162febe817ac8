//! The archive of the log: segments go in, and come out as they were.
//!
//! | part | what it does |
//! |---|---|
//! | [`Archive`] | whose it is: one life of one database writes there, and nobody else |
//! | `header` | whether a file is the segment that its name says, of the database that it should be of |
//! | `frame` | how a file lies in an object |
//! | [`push`], [`Uploader`] | one file in, and those that will be next |
//! | [`fetch`], [`Prefetcher`] | one file out, and those that will be next |
//!
//! Never: a file called archived that the store has not acknowledged; one of another database or another place in the log archived under this name; a file given
//! to PostgreSQL of which a byte was not checked; damage taken for the end of the log.

mod ahead;
mod archive;
mod fetch;
mod frame;
mod header;
mod prefetch;
mod push;
mod uploader;

use std::io;
use std::path::{Path, PathBuf};

use crate::layout::WalFile;
use crate::store::StoreError;

pub use archive::{Archive, ArchiveError, root};
pub(crate) use fetch::text;
pub use fetch::{Contents, fetch, read_back};
pub use frame::Damage;
pub use header::Foreign;
pub use prefetch::Prefetcher;
pub use push::{Pushed, push};
pub use uploader::{Uploader, next};

/// Why a file did not get into the archive, or out of it.
#[derive(Debug, thiserror::Error)]
pub enum WalError {
    /// The store did not do it. A conflict says that another file of this name is there.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file here can't be read or written.
    #[error("{}: {cause}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What came back.
        cause: io::Error,
    },
    /// A file is not what its name says. It is not archived.
    #[error("{} is not {file} of this database: {problem}; it is not archived", path.display())]
    Foreign {
        /// Where it is.
        path: PathBuf,
        /// What it is called.
        file: WalFile,
        /// What is wrong.
        problem: Foreign,
    },
    /// What is in the archive is not what was put there. Nothing of it was given out.
    #[error("{store}: {file} is damaged: {problem}")]
    Damaged {
        /// The archive.
        store: String,
        /// Which file.
        file: WalFile,
        /// What is wrong.
        problem: Damage,
    },
    /// The program is ending.
    #[error("{file} was given up: the program ends")]
    GivenUp {
        /// Which file.
        file: WalFile,
    },
}

impl WalError {
    /// Whether the same may succeed later without anybody changing anything.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Store(error) => error.is_transient(),
            Self::Io { .. } | Self::GivenUp { .. } => true,
            Self::Foreign { .. } | Self::Damaged { .. } => false,
        }
    }

    /// Whether another file of this name is in the archive.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Store(StoreError::Conflict { .. }))
    }

    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |cause| Self::Io { path, cause }
    }
}

/// What takes the disk or the processor, away from those who wait for the network.
async fn blocking<T: Send + 'static>(
    file: WalFile,
    work: impl FnOnce() -> Result<T, WalError> + Send + 'static,
) -> Result<T, WalError> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(WalError::GivenUp { file }))
}
