//! Decides when a dependency that is down is left alone, and who may look whether it is back.
//!
//! ```text
//!            too many failures                  rested
//!   closed ───────────────────► resting ──────────────────► one tries
//!     ▲                            ▲   fails: rests longer      │
//!     │                            └────────────────────────────┤
//!     └──────────────────── it was served ──────────────────────┘
//! ```
//!
//! From: how requests ended, the time, and random numbers. A failure weighs two and a success takes one back, so that also a dependency is left alone that
//! answers every other request: one that takes no writes is still read from. After a rest it is on probation: the next failure is enough, and the rest is
//! longer than the last, until as many requests were served as are needed for good standing.
//!
//! Never: two that try at the same time; a rest longer than [`Limits::longest`]; a dependency left alone for good because whoever tried was never heard of
//! again; a success that is ignored, whoever had it.

use std::time::Duration;

/// What a failure weighs. A success takes one back.
const FAILURE: u32 = 2;

/// How much is too much, and how long a rest is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// So many failures, one after the other, are too many.
    pub failures: u32,
    /// The first rest, at most: it is between half of it and all. The next is twice as long …
    pub first: Duration,
    /// … and none is longer than this.
    pub longest: Duration,
    /// Whoever tries and is not heard of for so long is not waited for.
    pub trial: Duration,
}

impl Default for Limits {
    /// Each failure is that of a request that was tried several times, so three are no accident. A minute's outage costs some seven requests; and
    /// fifteen seconds are what may be lost when it is over. Whoever tries has the deadlines of every request: within a minute something is wrong with himself.
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { failures: 3, first: seconds(1), longest: seconds(15), trial: seconds(60) }
    }
}

/// A number between nothing and all of `u64`, drawn for this one use.
#[derive(Clone, Copy, Debug)]
pub struct Random(pub u64);

/// That a request may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// As any.
    Usual,
    /// It shows whether the dependency is back. Its number tells it from one that was given up.
    Trial(u64),
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The dependency did its part, also where it had reason to say no.
    Served,
    /// It did not.
    Failed,
    /// Nobody knows: it was given up by whoever sent it.
    Unknown,
}

/// What is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is left alone, for so long.
    Rests(Duration),
    /// It was tried, and is left alone for longer.
    RestsOn(Duration),
    /// It works again.
    Works,
}

/// That no request may be sent: when to ask again. Who tries may be back earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resting {
    /// By the clock that all of this goes by.
    pub until: Duration,
}

/// The rules for one dependency. Time is how long some clock has run that never goes back.
#[derive(Clone, Copy, Debug)]
pub struct Breaker {
    limits: Limits,
    state: State,
    /// Rests without good standing in between.
    rests: u32,
    trials: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed { weight: u32 },
    Resting { until: Duration },
    Trying { number: u64, until: Duration },
}

impl Breaker {
    /// One of which nothing bad is known.
    pub fn new(limits: Limits) -> Self {
        Self { limits, state: State::Closed { weight: 0 }, rests: 0, trials: 0 }
    }

    /// Asks for a turn. Whoever gets one says how it ended.
    pub fn turn(&mut self, now: Duration) -> Result<Turn, Resting> {
        match self.state {
            State::Closed { .. } => Ok(Turn::Usual),
            State::Resting { until } | State::Trying { until, .. } if now < until => Err(Resting { until }),
            State::Resting { .. } | State::Trying { .. } => {
                self.trials += 1;
                self.state = State::Trying { number: self.trials, until: now + self.limits.trial };
                Ok(Turn::Trial(self.trials))
            }
        }
    }

    /// Whether whoever asks gets a turn, and not only one who tries.
    pub fn works(&self) -> bool {
        matches!(self.state, State::Closed { .. })
    }

    /// Until when nobody gets a turn, as far as is known; nothing when somebody would.
    pub fn resting(&self, now: Duration) -> Option<Resting> {
        match self.state {
            State::Closed { .. } => None,
            State::Resting { until } | State::Trying { until, .. } => (now < until).then_some(Resting { until }),
        }
    }

    /// A request that had its turn has ended.
    pub fn ended(&mut self, turn: Turn, ended: Ended, now: Duration, random: Random) -> Option<Change> {
        match (self.state, ended) {
            (State::Closed { weight }, Ended::Served) => {
                let weight = weight.saturating_sub(1);
                self.state = State::Closed { weight };
                if weight == 0 {
                    self.rests = 0;
                }
                None
            }
            (State::Closed { weight }, Ended::Failed) => {
                let weight = weight.saturating_add(FAILURE);
                self.state = State::Closed { weight };
                (weight >= self.too_much()).then(|| Change::Rests(self.rest(now, random)))
            }
            (State::Closed { .. }, Ended::Unknown) => None,
            (_, Ended::Served) => {
                self.state = State::Closed { weight: self.too_much().saturating_sub(FAILURE) };
                Some(Change::Works)
            }
            (State::Trying { number, .. }, Ended::Failed) if turn == Turn::Trial(number) => {
                Some(Change::RestsOn(self.rest(now, random)))
            }
            // It has shown nothing, and may be given up again and again.
            (State::Trying { number, .. }, Ended::Unknown) if turn == Turn::Trial(number) => {
                self.rests = self.rests.saturating_sub(1);
                Some(Change::RestsOn(self.rest(now, random)))
            }
            // It was sent before, and what it shows is known already.
            (State::Trying { .. } | State::Resting { .. }, Ended::Failed | Ended::Unknown) => None,
        }
    }

    fn too_much(&self) -> u32 {
        self.limits.failures.saturating_mul(FAILURE)
    }

    /// Begins a rest, and returns how long it is.
    fn rest(&mut self, now: Duration, Random(random): Random) -> Duration {
        let whole = self.limits.first.saturating_mul(2_u32.saturating_pow(self.rests)).min(self.limits.longest);
        // Many that lost the same dependency at the same time do not come back at the same time.
        let share = 0.5 + 0.5 * (random as f64 / u64::MAX as f64);
        let rest = whole.mul_f64(share).min(self.limits.longest);
        self.rests = self.rests.saturating_add(1);
        self.state = State::Resting { until: now + rest };
        rest
    }
}

#[cfg(test)]
mod tests;
