//! Decides how hard PostgreSQL is being stopped, from when it was asked to stop, by when it must be gone, and how often it
//! was asked.
//!
//! Never: leaves less than [`KILL_MARGIN`] for killing and reaping before the deadline, because whoever set the deadline
//! kills the agent at it, and PostgreSQL must not outlive its agent.

use std::time::Duration;

/// How long an immediate shutdown (processes quit, recovery at the next start) is given before everything is killed: enough
/// for thousands of backends to notice a signal.
pub const IMMEDIATE_BUDGET: Duration = Duration::from_secs(5);
/// What is kept for killing and reaping, and for the agent's own exit. Measured in milliseconds; seconds for a busy node.
pub const KILL_MARGIN: Duration = Duration::from_secs(3);

/// How PostgreSQL is stopped, gentlest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopMode {
    /// Sessions are ended, the rest is written out: no recovery at the next start, standbys get everything.
    Fast,
    /// Processes quit at once; recovery at the next start.
    Immediate,
    /// SIGKILL for every process.
    Kill,
}

/// The mode to be in, `elapsed` after the first request of `requests`, when everything must be gone `grace` after it.
pub fn mode(requests: u32, elapsed: Duration, grace: Duration) -> StopMode {
    let by_request = match requests {
        0 | 1 => StopMode::Fast,
        2 => StopMode::Immediate,
        _ => StopMode::Kill,
    };
    by_request.max(by_clock(elapsed, grace))
}

/// When the clock alone next asks for a harder mode; nothing when it is at the hardest.
pub fn next_change(elapsed: Duration, grace: Duration) -> Option<Duration> {
    [immediate_from(grace), kill_from(grace)].into_iter().find(|change| *change > elapsed)
}

fn by_clock(elapsed: Duration, grace: Duration) -> StopMode {
    if elapsed >= kill_from(grace) {
        StopMode::Kill
    } else if elapsed >= immediate_from(grace) {
        StopMode::Immediate
    } else {
        StopMode::Fast
    }
}

/// A short grace period is shared out: half of it is the least that a fast shutdown gets.
fn immediate_from(grace: Duration) -> Duration {
    grace.saturating_sub(IMMEDIATE_BUDGET + KILL_MARGIN).max(grace / 2)
}

fn kill_from(grace: Duration) -> Duration {
    grace.saturating_sub(KILL_MARGIN).max(grace * 3 / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(120);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_fast_shutdown_gets_nearly_all_of_the_grace_period() {
        assert_eq!(mode(1, at(0), GRACE), StopMode::Fast);
        assert_eq!(mode(1, at(111), GRACE), StopMode::Fast);
        assert_eq!(mode(1, at(112), GRACE), StopMode::Immediate);
        assert_eq!(mode(1, at(117), GRACE), StopMode::Kill);
    }

    #[test]
    fn asking_again_is_harder() {
        assert_eq!(mode(2, at(0), GRACE), StopMode::Immediate);
        assert_eq!(mode(3, at(0), GRACE), StopMode::Kill);
    }

    #[test]
    fn the_mode_never_softens_as_time_passes() {
        for grace in [0, 1, 4, 8, 30, 120].map(at) {
            let mut last = StopMode::Fast;
            for elapsed in (0..=grace.as_millis() as u64 + 10).step_by(10).map(Duration::from_millis) {
                let now = mode(1, elapsed, grace);
                assert!(now >= last, "{grace:?} {elapsed:?}");
                last = now;
            }
            assert_eq!(last, StopMode::Kill, "{grace:?}");
        }
    }

    #[test]
    fn the_next_change_is_when_the_mode_changes() {
        for grace in [2, 8, 30, 120].map(at) {
            let first = next_change(at(0), grace).unwrap();
            assert_eq!(mode(1, first - Duration::from_nanos(1), grace), StopMode::Fast);
            assert!(mode(1, first, grace) > StopMode::Fast);
            let second = next_change(first, grace).unwrap();
            assert_eq!(mode(1, second, grace), StopMode::Kill);
            assert_eq!(next_change(second, grace), None);
        }
    }
}
