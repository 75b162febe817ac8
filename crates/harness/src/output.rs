//! What people read: one line at a time.

use std::io::Write;

/// Prints a line. A reader that has gone away is no reason to stop a cluster half-way.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Prints why the command failed.
pub fn complain(error: &dyn std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "harness: {error}");
}
