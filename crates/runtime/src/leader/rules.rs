//! Decides who of several operators leads: from what was seen of one Lease, when, and which writes of ours were confirmed.
//!
//! The protocol is that of client-go, so that people can read the Lease with the tools they have:
//! - a Lease is somebody else's until it has not changed, *as seen from here*, for as long as it says; no clock but our own
//!   monotonic one is compared with anything;
//! - it is taken and renewed by replacing the version that was seen, so of two who try at once one fails;
//! - who renews counts from when it sent the write, and stops acting well before anybody else may begin.
//!
//! Three things are different, all because an operator that restarts while the API server is slow makes that worse: who could not
//! renew in time *pauses* instead of exiting, and goes on if the Lease is still its own; who could not look for a while begins its
//! wait anew, so that the holder is not robbed when the API server comes back; and an answer is waited for longer after one came
//! too late. Lost is lost only to somebody else.
//!
//! Never: two who act at once (a Lease that is deleted by hand apart: the next write of the holder finds that out); a wait judged by
//! a time that somebody else wrote.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// How long things take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A Lease that nobody changed for this long is free. Long enough for an API server to restart in.
    pub lease: Duration,
    /// Who could not renew for this long stops acting. The rest, up to `lease`, covers clocks that run apart and requests that are
    /// on their way.
    pub renew: Duration,
    /// From one renewal, or one look, to the next.
    pub retry: Duration,
}

impl Default for Timing {
    /// client-go's own, with which people have experience.
    fn default() -> Self {
        Self { lease: Duration::from_secs(15), renew: Duration::from_secs(10), retry: Duration::from_secs(2) }
    }
}

impl Timing {
    /// How long one answer is waited for. Half of what there is: one connection that hangs must not cost the office. Whoever answers
    /// later than that gets all of it the next time: a slow API server is still one.
    pub fn patience(&self, late_in_a_row: u32) -> Duration {
        if late_in_a_row == 0 { self.renew / 2 } else { self.renew }
    }
}

/// A Lease as it was read, or as the answer to a write shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Who holds it; nobody if it is empty.
    pub holder: String,
    /// For how long it is the holder's without a change.
    pub duration: Duration,
    /// How often it changed hands.
    pub transitions: i32,
    /// Since when the holder has it, in its own words; passed on when it renews.
    pub acquired: Option<Timestamp>,
    /// The holder's last renewal, in its own words; only compared with itself.
    pub renewed: Option<Timestamp>,
    /// The version to replace.
    pub version: String,
}

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Read the Lease: what is known of it isn't enough to write.
    Look,
    /// Create the Lease: there is none.
    Create,
    /// Replace this version by one with our name.
    Take {
        /// The version.
        version: String,
        /// How often it has changed hands then.
        transitions: i32,
    },
    /// Replace this version, our own, by a newer one.
    Renew {
        /// The version.
        version: String,
    },
    /// It is somebody else's.
    Wait,
    /// It was ours and is somebody else's.
    Lost {
        /// Whose.
        holder: String,
    },
}

#[derive(Clone, Debug)]
enum Sight {
    /// Nothing is known of it now.
    Unknown,
    /// It doesn't exist.
    Absent,
    Lease(Seen),
}

/// One who wants to lead.
#[derive(Clone, Debug)]
pub struct Candidate {
    identity: String,
    timing: Timing,
    sight: Sight,
    /// What the Lease said when it last changed, as seen from here, and when that was.
    last_change: Option<(Seen, Instant)>,
    /// When it was last seen.
    last_look: Option<Instant>,
    /// Until when we lead, if any write of ours was ever confirmed.
    tenure: Option<Instant>,
}

impl Candidate {
    /// One who knows nothing yet. The identity is this process's alone: a Lease that bears it was written by this process.
    pub fn new(identity: String, timing: Timing) -> Self {
        Self { identity, timing, sight: Sight::Unknown, last_change: None, last_look: None, tenure: None }
    }

    /// The Lease was read, or a watch told of it.
    pub fn saw(&mut self, lease: Option<Seen>, now: Instant) {
        self.judge(lease, now);
        self.last_look = Some(now);
    }

    fn judge(&mut self, lease: Option<Seen>, now: Instant) {
        match lease {
            None => {
                self.sight = Sight::Absent;
                self.last_change = None;
                // Whoever creates it leads: we do no longer.
                self.tenure = self.tenure.map(|_| now);
            }
            Some(lease) => {
                let same = |(before, _): &(Seen, Instant)| {
                    (&before.holder, &before.renewed, before.transitions)
                        == (&lease.holder, &lease.renewed, lease.transitions)
                };
                let blind = self.last_look.is_some_and(|at| now.saturating_duration_since(at) > self.timing.renew);
                if blind || !self.last_change.as_ref().is_some_and(same) {
                    self.last_change = Some((lease.clone(), now));
                }
                if lease.holder != self.identity {
                    self.tenure = self.tenure.map(|until| until.min(now));
                }
                self.sight = Sight::Lease(lease);
            }
        }
    }

    /// A write of ours, sent at `sent`, was confirmed: the Lease is as the answer shows it.
    pub fn wrote(&mut self, lease: Seen, sent: Instant) {
        self.tenure = Some(sent + self.timing.renew);
        self.saw(Some(lease), sent);
    }

    /// A write was refused, or its answer did not come: what the Lease is now has to be read.
    pub fn unsure(&mut self) {
        self.sight = Sight::Unknown;
    }

    /// What to do now.
    pub fn next(&self, now: Instant) -> Next {
        let lease = match &self.sight {
            Sight::Unknown => return Next::Look,
            Sight::Absent => return Next::Create,
            Sight::Lease(lease) => lease,
        };
        if lease.holder == self.identity {
            return Next::Renew { version: lease.version.clone() };
        }
        if self.tenure.is_some() && !lease.holder.is_empty() {
            return Next::Lost { holder: lease.holder.clone() };
        }
        let unchanged = self.last_change.as_ref().map_or(Duration::ZERO, |(_, at)| now.saturating_duration_since(*at));
        if lease.holder.is_empty() || unchanged >= lease.duration {
            return Next::Take { version: lease.version.clone(), transitions: lease.transitions.saturating_add(1) };
        }
        Next::Wait
    }

    /// The version that is known.
    pub fn version(&self) -> Option<&str> {
        self.known().map(|lease| lease.version.as_str())
    }

    /// How often the Lease has changed hands.
    pub fn transitions(&self) -> i32 {
        self.known().map_or(0, |lease| lease.transitions)
    }

    /// Since when we have the Lease, if it is ours.
    pub fn acquired(&self) -> Option<Timestamp> {
        self.known().filter(|lease| lease.holder == self.identity)?.acquired
    }

    fn known(&self) -> Option<&Seen> {
        match &self.sight {
            Sight::Lease(lease) => Some(lease),
            Sight::Unknown | Sight::Absent => None,
        }
    }

    /// Until when we lead; a time that is over, or nothing, if we don't.
    pub fn tenure(&self) -> Option<Instant> {
        self.tenure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMING: Timing =
        Timing { lease: Duration::from_secs(15), renew: Duration::from_secs(10), retry: Duration::from_secs(2) };

    fn lease(holder: &str, renewal: i64) -> Seen {
        Seen {
            holder: holder.into(),
            duration: TIMING.lease,
            transitions: 4,
            acquired: None,
            renewed: Timestamp::from_second(renewal).ok(),
            version: format!("v{renewal}"),
        }
    }
    fn seconds(s: u64) -> Duration {
        Duration::from_secs(s)
    }
    fn candidate() -> (Candidate, Instant) {
        (Candidate::new("me".into(), TIMING), Instant::now())
    }

    #[test]
    fn nothing_is_written_before_the_lease_was_read() {
        let (candidate, now) = candidate();
        assert_eq!(candidate.next(now), Next::Look);
    }

    #[test]
    fn a_missing_lease_is_created_and_a_released_one_taken_at_once() {
        let (mut candidate, now) = candidate();
        candidate.saw(None, now);
        assert_eq!(candidate.next(now), Next::Create);
        candidate.saw(Some(lease("", 1)), now);
        assert_eq!(candidate.next(now), Next::Take { version: "v1".into(), transitions: 5 });
    }

    #[test]
    fn anothers_lease_is_free_only_when_it_has_not_changed_for_its_duration_as_seen_from_here() {
        let (mut candidate, start) = candidate();
        candidate.saw(Some(lease("other", 1)), start);
        assert_eq!(candidate.next(start + seconds(14)), Next::Wait);
        candidate.saw(Some(lease("other", 2)), start + seconds(14));
        candidate.saw(Some(lease("other", 2)), start + seconds(20));
        candidate.saw(Some(lease("other", 2)), start + seconds(28));
        assert_eq!(candidate.next(start + seconds(28)), Next::Wait, "the last change was seen at 14 s");
        assert_eq!(candidate.next(start + seconds(29)), Next::Take { version: "v2".into(), transitions: 5 });
    }

    #[test]
    fn a_change_that_is_no_renewal_does_not_keep_a_dead_holder_in_office() {
        let (mut candidate, start) = candidate();
        candidate.saw(Some(lease("other", 1)), start);
        let annotated = Seen { version: "v9".into(), ..lease("other", 1) };
        candidate.saw(Some(annotated), start + seconds(10));
        assert_eq!(candidate.next(start + seconds(15)), Next::Take { version: "v9".into(), transitions: 5 });
    }

    #[test]
    fn time_in_which_nobody_could_look_counts_for_nothing() {
        let (mut candidate, start) = candidate();
        candidate.saw(Some(lease("other", 1)), start);
        let back = start + seconds(3600);
        candidate.saw(Some(lease("other", 1)), back);
        assert_eq!(candidate.next(back), Next::Wait, "the holder could not renew meanwhile");
        candidate.saw(Some(lease("other", 1)), back + seconds(8));
        assert!(matches!(candidate.next(back + seconds(15)), Next::Take { .. }));
    }

    #[test]
    fn tenure_counts_from_sending_and_ends_before_anybody_else_may_begin() {
        let (mut candidate, start) = candidate();
        let (sent, answered) = (start, start + seconds(4));
        candidate.wrote(lease("me", 1), sent);
        assert_eq!(candidate.tenure(), Some(sent + seconds(10)));
        let mut other = Candidate::new("other".into(), TIMING);
        // The earliest that anybody can have seen it is when it was sent.
        other.saw(Some(lease("me", 1)), sent);
        assert_eq!(other.next(candidate.tenure().unwrap()), Next::Wait);
        assert_eq!(candidate.next(answered), Next::Renew { version: "v1".into() });
    }

    #[test]
    fn who_sees_anothers_name_after_having_led_has_lost_at_once() {
        let (mut candidate, start) = candidate();
        candidate.wrote(lease("me", 1), start);
        candidate.saw(Some(lease("thief", 2)), start + seconds(1));
        assert!(candidate.tenure().unwrap() <= start + seconds(1), "not a moment longer");
        assert_eq!(candidate.next(start + seconds(1)), Next::Lost { holder: "thief".into() });
    }

    #[test]
    fn who_could_not_renew_in_time_goes_on_when_the_lease_is_still_its_own() {
        let (mut candidate, start) = candidate();
        candidate.wrote(lease("me", 1), start);
        candidate.unsure();
        let late = start + seconds(60);
        assert!(candidate.tenure().unwrap() < late, "it does not act meanwhile");
        assert_eq!(candidate.next(late), Next::Look);
        candidate.saw(Some(lease("me", 1)), late);
        assert!(candidate.tenure().unwrap() < late, "reading its own name gives nobody an office");
        assert_eq!(candidate.next(late), Next::Renew { version: "v1".into() });
        candidate.wrote(lease("me", 2), late);
        assert_eq!(candidate.tenure(), Some(late + seconds(10)));
    }

    #[test]
    fn a_deleted_lease_ends_tenure_and_is_created_again() {
        let (mut candidate, start) = candidate();
        candidate.wrote(lease("me", 1), start);
        candidate.saw(None, start + seconds(1));
        assert!(candidate.tenure().unwrap() <= start + seconds(1));
        assert_eq!(candidate.next(start + seconds(1)), Next::Create);
    }
}
