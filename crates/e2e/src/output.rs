//! What people read: one line at a time.

use std::io::Write;

/// Prints a line. A reader that has gone away is no reason to stop half-way.
pub fn say(line: &str) {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

/// Prints why nothing could be run.
pub fn complain(error: &dyn std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "e2e: {error}");
}
