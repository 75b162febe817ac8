//! What the operator is told at its start.

use std::time::Duration;

use bellwether_core::build;
use bellwether_runtime::leader::Election;
use bellwether_runtime::watch::Namespaces;

use crate::listen::Listening;

/// Settings of one operator process.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What goes into the objects of clusters: the agent's image, the address family, PostgreSQL's user.
    pub objects: build::Settings,
    /// The namespaces that it looks after.
    pub namespaces: Namespaces,
    /// How often every cluster is looked at even if nothing changed. Watches tell of drift at once; this is for what a watch
    /// missed, so it is rare, and up to a tenth earlier for each cluster so that a thousand don't come together.
    pub resync: Duration,
    /// How many clusters are worked on at once. A reconcile waits on the API server most of its time; eight keep a storm of
    /// changes moving without being a storm themselves.
    pub workers: usize,
    /// How it is settled which of several operators acts. Without it this one believes to be alone.
    pub election: Option<Election>,
    /// Where health and metrics are served, if at all.
    pub listening: Option<Listening>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            objects: build::Settings::default(),
            namespaces: Namespaces::All,
            resync: Duration::from_secs(600),
            workers: 8,
            election: None,
            listening: None,
        }
    }
}
