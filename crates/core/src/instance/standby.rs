//! Decides what a running standby's state is called: catching up, streaming, or not streaming.
//!
//! From: samples of its WAL receiver and positions, and the time of each. Never: calls a standby streaming that has no
//! connection to its primary, and never flips at every sample: reports are API writes, so a change must last before it is
//! said.

use std::time::Duration;

use bellwether_api::v1::InstanceState;

use crate::wal::Lsn;

/// How far behind its leader a standby may be when it is first said to stream: it has replayed all that the leader had written this long ago.
/// Clients of the read-only Service are sent to it from then on.
pub const CAUGHT_UP_WITHIN: Duration = Duration::from_secs(1);
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
    /// How far its leader had written, by the leader's own account of a moment ago.
    pub leader: Option<Lsn>,
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
    /// How far the leader had written, and when that was, if it is not replayed yet.
    target: Option<(Duration, Lsn)>,
}

impl Standby {
    /// A standby that has just started: it is given time to connect.
    pub fn started(now: Duration) -> Self {
        Self { state: None, last_receiving: now, far_since: None, target: None }
    }

    /// The state after one more look. `now` is the time since any fixed moment.
    pub fn observe(&mut self, sample: &Sample, now: Duration) -> InstanceState {
        let state = if sample.receiving {
            self.last_receiving = now;
            self.by_lag(sample, now)
        } else if now.saturating_sub(self.last_receiving) >= RECONNECT_GRACE {
            self.target = None;
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
            let caught_up = near && self.has_what_the_leader_had(sample, now);
            return if caught_up { InstanceState::Streaming } else { InstanceState::CatchingUp };
        }
        if behind(sample, FAR_BEHIND, FAR_BEHIND_SECONDS) != Some(true) {
            self.far_since = None;
            return InstanceState::Streaming;
        }
        let since = *self.far_since.get_or_insert(now);
        if now.saturating_sub(since) < FAR_BEHIND_FOR { InstanceState::Streaming } else { InstanceState::CatchingUp }
    }
}

impl Standby {
    /// What was received may be little of what there is: whether it has replayed all that the leader had, a moment ago. A leader that does not
    /// say is taken at what was received.
    fn has_what_the_leader_had(&mut self, sample: &Sample, now: Duration) -> bool {
        let Some((leader, replayed)) = sample.leader.zip(sample.replayed) else { return sample.leader.is_none() };
        let (since, target) = *self.target.get_or_insert((now, leader));
        if replayed < target {
            return false;
        }
        self.target = None;
        if now.saturating_sub(since) < CAUGHT_UP_WITHIN {
            return true;
        }
        // It took longer than that; the leader has gone on meanwhile.
        self.target = Some((now, leader));
        replayed >= leader
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
            leader: None,
            received: Some(received),
            replayed: Some(Lsn(received.0 - bytes)),
            lag_seconds: Some(0.0),
        }
    }
    /// All that was received is replayed, but the leader has more.
    fn short_by(bytes: u64) -> Sample {
        let sample = behind(0);
        Sample { leader: sample.replayed.map(|replayed| Lsn(replayed.0 + bytes)), ..sample }
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
    fn one_that_has_received_little_of_what_there_is_has_not_caught_up() {
        let mut standby = Standby::started(at(0));
        assert_eq!(standby.observe(&short_by(100), at(0)), InstanceState::CatchingUp);
        // It has what the leader had, but that was long ago: what it has by now counts.
        assert_eq!(standby.observe(&ahead(100, 50), at(5)), InstanceState::CatchingUp);
        assert_eq!(standby.observe(&ahead(140, 50), at(5)), InstanceState::CatchingUp);
        // All that there was within the second.
        assert_eq!(standby.observe(&ahead(160, 50), at(5)), InstanceState::Streaming);
        // Once said, a lag that is moderate is not news.
        assert_eq!(standby.observe(&short_by(100), at(6)), InstanceState::Streaming);
    }

    /// It has replayed so much more, and the leader has so much more than that.
    fn ahead(bytes: u64, leader: u64) -> Sample {
        let replayed = Lsn((1 << 40) + bytes);
        Sample {
            leader: Some(Lsn(replayed.0 + leader)),
            received: Some(replayed),
            replayed: Some(replayed),
            ..behind(0)
        }
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
