//! Which PostgreSQL versions we support: one table, from which the schema, the defaults and the docs are made.

/// One supported major version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Supported {
    /// As users write it in `spec.version`.
    pub major: &'static str,
    /// What was run on it.
    pub tested: Tested,
}

/// What was run on a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tested {
    /// Every suite of ours.
    Suites,
    /// `bellwether try`: bootstrap, joins, replication, clean stop.
    Trial,
    /// Nothing; it is expected to work.
    Not,
}

/// Oldest first.
pub const SUPPORTED: [Supported; 4] = [
    Supported { major: "15", tested: Tested::Suites },
    Supported { major: "16", tested: Tested::Not },
    Supported { major: "17", tested: Tested::Trial },
    Supported { major: "18", tested: Tested::Trial },
];

/// What `spec.version` becomes when it is left out: the newest version that we test.
pub const DEFAULT: &str = "18";

/// The image for a version when `spec.image` is left out.
pub fn default_image(major: &str) -> String {
    format!("postgres:{major}")
}
