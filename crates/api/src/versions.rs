//! Which PostgreSQL versions we support: one table, from which the schema, the defaults and the docs are made.

/// One supported major version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Supported {
    /// As users write it in `spec.version`.
    pub major: &'static str,
    /// Whether our test suites run on it; the others are expected to work.
    pub tested: bool,
}

/// Oldest first.
pub const SUPPORTED: [Supported; 4] = [
    Supported { major: "15", tested: true },
    Supported { major: "16", tested: false },
    Supported { major: "17", tested: true },
    Supported { major: "18", tested: true },
];

/// What `spec.version` becomes when it is left out: the newest version that we test.
pub const DEFAULT: &str = "18";

/// The image for a version when `spec.image` is left out.
pub fn default_image(major: &str) -> String {
    format!("postgres:{major}")
}
