//! Where a store is, and what it takes to get in.

use std::collections::BTreeMap;
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::path::Path;

/// Why a location is none.
#[derive(Debug, thiserror::Error)]
pub enum LocationError {
    /// The address is not understood.
    #[error("{url:?} is no address of a store: {problem}")]
    Url {
        /// The address.
        url: String,
        /// What is wrong.
        problem: String,
    },
}

/// Where a store is.
#[derive(Clone)]
pub struct Location {
    url: String,
    #[expect(dead_code)]
    settings: BTreeMap<String, String>,
}

impl Location {
    /// The address, for people; there are no secrets in it.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A directory.
    pub fn directory(path: &std::path::Path) -> Self {
        Self { url: format!("file://{}", path.display()), settings: BTreeMap::new() }
    }

    pub(super) fn connect(&self) -> Result<(Arc<dyn ObjectStore>, Path), LocationError> {
        let bad = |problem: String| LocationError::Url { url: self.url.clone(), problem };
        let path = self.url.strip_prefix("file://").ok_or_else(|| bad("to be written".into()))?;
        let store = LocalFileSystem::new_with_prefix(path).map_err(|error| bad(error.to_string()))?;
        Ok((Arc::new(store), Path::default()))
    }
}
