//! Keeps API, operator and agents awake beside databases that are busy.
//!
//! Where no cgroups divide the CPU, Linux divides it between sessions, and every backend of PostgreSQL is a session of its own. All
//! of us are one: beside a hundred backends that compute we would get a hundredth, and an agent that gets nothing for two seconds
//! loses its tenure. Only root may ask for more; for everybody else, and where cgroups do it, nothing changes.

use std::path::Path;

const SESSION: &str = "/proc/self/autogroup";
/// So that a hundred busy sessions leave us about a quarter of the time.
const FAVOURED: &str = "-15";
const ORDINARY: &str = "0";

/// Our session counts for more than others until this is dropped.
#[derive(Debug)]
pub struct Favoured {
    changed: bool,
}

impl Favoured {
    /// Asks for it. A priority that somebody else has chosen for this session is left as it is.
    pub fn session() -> Self {
        let now = std::fs::read_to_string(Path::new(SESSION)).unwrap_or_default();
        Self { changed: is_ordinary(&now) && std::fs::write(SESSION, FAVOURED).is_ok() }
    }
}

impl Drop for Favoured {
    fn drop(&mut self) {
        if self.changed {
            let _ = std::fs::write(SESSION, ORDINARY);
        }
    }
}

/// From `/autogroup-123 nice 0`.
fn is_ordinary(told: &str) -> bool {
    told.trim_end().rsplit_once(" nice ").is_some_and(|(_, nice)| nice == ORDINARY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_ordinary_session_is_favoured() {
        assert!(is_ordinary("/autogroup-34726 nice 0\n"));
        assert!(!is_ordinary("/autogroup-34726 nice 19\n"));
        assert!(!is_ordinary("/autogroup-34726 nice -5\n"));
        assert!(!is_ordinary(""));
    }
}
