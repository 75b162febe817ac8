//! Decides what a running standby's state is called: catching up, streaming, or not streaming.
//!
//! From: samples of its WAL receiver and positions, and the time of each. Never: calls a standby streaming that has no
//! connection to its primary, and never flips at every sample: reports are API writes, so a change must last before it is
//! said.

use std::time::Duration;

use bellwether_api::v1::InstanceState;

use crate::wal::Lsn;

/// Behind by this many bytes received but not replayed, or by [`FAR_BEHIND_SECONDS`], a standby that streams is catching up …
pub const FAR_BEHIND: u64 = 64 * 1024 * 1024;
/// … by the age of the last commit that it replayed, while there is more to replay …
pub const FAR_BEHIND_SECONDS: f64 = 10.0;
/// … until it is nearer than this. Apart by a factor, so that a busy primary doesn't make the state flicker.
pub const CAUGHT_UP: u64 = 8 * 1024 * 1024;
/// The same in seconds.
pub const CAUGHT_UP_SECONDS: f64 = 3.0;
/// How long it must be far behind before that is said: the first commit after an idle hour is an hour old when it arrives.
pub const FAR_BEHIND_FOR: Duration = Duration::from_secs(3);
/// How long the receiver may be gone before the standby counts as not streaming: longer than a reconnect after the primary
/// restarted, much shorter than the ten seconds in which `Ready` must fall.
pub const RECONNECT_GRACE: Duration = Duration::from_secs(5);

/// One look at a standby.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Whether its WAL receiver streams from the primary.
    pub receiving: bool,
    /// How far it has received.
    pub received: Option<Lsn>,
    /// How far it has replayed.
    pub replayed: Option<Lsn>,
    /// How old the last replayed commit is; 0 when everything received is replayed.
    pub lag_seconds: Option<f64>,
}

/// A standby's state over time.
#[derive(Clone, Debug)]
pub struct Standby {
    state: Option<InstanceState>,
    last_receiving: Duration,
    far_since: Option<Duration>,
}

impl Standby {
    /// A standby that has just started: it is given time to connect.
    pub fn started(now: Duration) -> Self {
        Self { state: None, last_receiving: now, far_since: None }
    }

    /// The state after one more look. `now` is the time since any fixed moment.
    pub fn observe(&mut self, sample: &Sample, now: Duration) -> InstanceState {
        let state = if sample.receiving {
            self.last_receiving = now;
            self.by_lag(sample, now)
        } else if now.saturating_sub(self.last_receiving) >= RECONNECT_GRACE {
            InstanceState::NotStreaming
        } else {
            self.state.unwrap_or(InstanceState::CatchingUp)
        };
        self.state = Some(state);
        state
    }

    fn by_lag(&mut self, sample: &Sample, now: Duration) -> InstanceState {
        if self.state != Some(InstanceState::Streaming) {
            self.far_since = None;
            let near = behind(sample, CAUGHT_UP, CAUGHT_UP_SECONDS) == Some(false);
            return if near { InstanceState::Streaming } else { InstanceState::CatchingUp };
        }
        if behind(sample, FAR_BEHIND, FAR_BEHIND_SECONDS) != Some(true) {
            self.far_since = None;
            return InstanceState::Streaming;
        }
        let since = *self.far_since.get_or_insert(now);
        if now.saturating_sub(since) < FAR_BEHIND_FOR { InstanceState::Streaming } else { InstanceState::CatchingUp }
    }
}

/// Whether it is behind by at least as much; nothing when its positions aren't known.
fn behind(sample: &Sample, bytes: u64, seconds: f64) -> Option<bool> {
    let behind = sample.received?.ahead_of(sample.replayed?);
    Some(behind >= bytes || sample.lag_seconds.is_some_and(|lag| lag >= seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn behind(bytes: u64) -> Sample {
        let received = Lsn(1 << 40);
        Sample {
            receiving: true,
            received: Some(received),
            replayed: Some(Lsn(received.0 - bytes)),
            lag_seconds: Some(0.0),
        }
    }
    fn old(seconds: f64) -> Sample {
        Sample { lag_seconds: Some(seconds), ..behind(1) }
    }
    fn cut() -> Sample {
        Sample { receiving: false, ..behind(0) }
    }
    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_standby_that_has_caught_up_streams() {
        assert_eq!(Standby::started(at(0)).observe(&behind(0), at(0)), InstanceState::Streaming);
    }

    #[test]
    fn a_moderate_lag_changes_nothing_in_either_direction() {
        let between = (FAR_BEHIND + CAUGHT_UP) / 2;
        let mut standby = Standby::started(at(0));
        assert_eq!(standby.observe(&behind(between), at(0)), InstanceState::CatchingUp);
        assert_eq!(standby.observe(&behind(0), at(1)), InstanceState::Streaming);
        assert_eq!(standby.observe(&behind(between), at(2)), InstanceState::Streaming);
        assert_eq!(standby.observe(&behind(between), at(9)), InstanceState::Streaming);
    }

    #[test]
    fn the_first_commit_after_an_idle_hour_is_not_news_but_a_lag_that_lasts_is() {
        let mut standby = Standby::started(at(0));
        assert_eq!(standby.observe(&behind(0), at(0)), InstanceState::Streaming);
        assert_eq!(standby.observe(&old(3600.0), at(1)), InstanceState::Streaming);
        assert_eq!(standby.observe(&behind(0), at(2)), InstanceState::Streaming);
        assert_eq!(standby.observe(&old(60.0), at(3)), InstanceState::Streaming);
        assert_eq!(standby.observe(&old(60.0), at(6)), InstanceState::CatchingUp);
        assert_eq!(standby.observe(&old(5.0), at(7)), InstanceState::CatchingUp);
        assert_eq!(standby.observe(&old(1.0), at(8)), InstanceState::Streaming);
    }

    #[test]
    fn a_reconnect_is_not_news_but_a_lost_primary_is() {
        let mut standby = Standby::started(at(0));
        assert_eq!(standby.observe(&behind(0), at(10)), InstanceState::Streaming);
        assert_eq!(standby.observe(&cut(), at(11)), InstanceState::Streaming);
        assert_eq!(standby.observe(&behind(0), at(12)), InstanceState::Streaming);
        assert_eq!(standby.observe(&cut(), at(16)), InstanceState::Streaming);
        assert_eq!(standby.observe(&cut(), at(17)), InstanceState::NotStreaming);
    }

    #[test]
    fn a_standby_that_never_connects_is_given_away_after_the_grace() {
        let mut standby = Standby::started(at(0));
        assert_eq!(standby.observe(&cut(), at(1)), InstanceState::CatchingUp);
        assert_eq!(standby.observe(&cut(), at(5)), InstanceState::NotStreaming);
    }

    #[test]
    fn without_positions_nobody_is_called_caught_up() {
        let sample = Sample { receiving: true, ..Sample::default() };
        assert_eq!(Standby::started(at(0)).observe(&sample, at(0)), InstanceState::CatchingUp);
    }
}
