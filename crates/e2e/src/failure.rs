//! Why a scenario failed: a command that did, or a world that is not as it should be. Both say what was seen.

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// Why a scenario failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A command failed or a deadline passed.
    #[error("{0}")]
    Command(#[from] harness::Error),
    /// Something is not as it should be.
    #[error("{0}")]
    Wrong(String),
}

/// What a step of a scenario gives.
pub type Outcome<T = ()> = Result<T, Failure>;

/// Fails with `what` unless it holds.
pub fn ensure(holds: bool, what: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(Failure::Wrong(what())) }
}

/// Fails unless both are the same, showing both.
#[expect(
    clippy::needless_pass_by_value,
    reason = "most are made for this call, and a & before each hides what is compared"
)]
pub fn same<A: PartialEq<B> + Debug, B: Debug>(what: &str, seen: A, wanted: B) -> Outcome {
    ensure(seen == wanted, || format!("{what}: seen {seen:?}, wanted {wanted:?}"))
}

/// How often a condition is looked at. Each look is a kubectl, which costs a tenth of a second of a core that the cluster
/// under test needs as well.
const POLL: Duration = Duration::from_millis(300);

/// Looks until a step succeeds, or fails with what it said last.
pub fn eventually<T>(what: &str, deadline: Duration, mut look: impl FnMut() -> Outcome<T>) -> Outcome<T> {
    let began = Instant::now();
    loop {
        match look() {
            Ok(value) => return Ok(value),
            Err(last) if began.elapsed() > deadline => {
                let waited = began.elapsed().as_secs();
                return Err(Failure::Wrong(format!("after {waited} s still waiting for {what}: {last}")));
            }
            Err(_) => std::thread::sleep(POLL),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_comes_ends_with_what_was_seen_last() {
        let failure = eventually::<()>("rain", Duration::ZERO, || same("sky", "blue", "grey")).unwrap_err();
        assert!(failure.to_string().contains("still waiting for rain: sky: seen \"blue\""), "{failure}");
    }
}
