//! Decides what a running standby's state is called: catching up, streaming, or not streaming.
//!
//! From: samples of its WAL receiver and positions, and the time of each. Never: calls a standby streaming that has no
//! connection to its primary, and never flips at every sample: reports are API writes, so a change must last (or be a big
//! one) before it is said.

use std::time::Duration;

use bellwether_api::v1::InstanceState;

use crate::wal::Lsn;

/// Behind by this much, a standby that streams is catching up …
pub const FAR_BEHIND: u64 = 64 * 1024 * 1024;
/// … until it is nearer than this. Apart by a factor, so that a busy primary doesn't make the state flicker.
pub const CAUGHT_UP: u64 = 8 * 1024 * 1024;
/// How long the receiver may be gone before the standby counts as not streaming: longer than a reconnect after the primary
/// restarted (`wal_retrieve_retry_interval`, a second), much shorter than the ten seconds in which `Ready` must fall.
pub const RECONNECT_GRACE: Duration = Duration::from_secs(5);

/// One look at a standby.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Whether its WAL receiver streams from the primary.
    pub receiving: bool,
    /// How far the primary is, as far as the receiver knows.
    pub primary: Option<Lsn>,
    /// How far it has replayed.
    pub replayed: Option<Lsn>,
}

/// A standby's state over time.
#[derive(Clone, Debug, Default)]
pub struct Standby {
    state: Option<InstanceState>,
    last_receiving: Option<Duration>,
}

impl Standby {
    /// A standby that has just started: it is given time to connect.
    pub fn started(now: Duration) -> Self {
        Self { state: None, last_receiving: Some(now) }
    }

    /// The state after one more look. `now` is the time since any fixed moment.
    pub fn observe(&mut self, sample: &Sample, now: Duration) -> InstanceState {
        if sample.receiving {
            self.last_receiving = Some(now);
        }
        let gone = self.last_receiving.is_none_or(|last| now.saturating_sub(last) >= RECONNECT_GRACE);
        let state = match (sample.receiving, self.state) {
            (true, before) => by_lag(sample, before),
            (false, _) if gone => InstanceState::NotStreaming,
            (false, before) => before.unwrap_or(InstanceState::CatchingUp),
        };
        self.state = Some(state);
        state
    }
}

fn by_lag(sample: &Sample, before: Option<InstanceState>) -> InstanceState {
    let (Some(primary), Some(replayed)) = (sample.primary, sample.replayed) else {
        return InstanceState::CatchingUp;
    };
    let limit = if before == Some(InstanceState::Streaming) { FAR_BEHIND } else { CAUGHT_UP };
    if primary.ahead_of(replayed) < limit { InstanceState::Streaming } else { InstanceState::CatchingUp }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn behind(bytes: u64) -> Sample {
        Sample { receiving: true, primary: Some(Lsn(1 << 40)), replayed: Some(Lsn((1 << 40) - bytes)) }
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
        assert_eq!(standby.observe(&behind(FAR_BEHIND), at(3)), InstanceState::CatchingUp);
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
        let sample = Sample { receiving: true, primary: None, replayed: None };
        assert_eq!(Standby::started(at(0)).observe(&sample, at(0)), InstanceState::CatchingUp);
    }
}
