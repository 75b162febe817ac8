//! Leaves a store alone that is down: the [rules](bellwether_core::breaker) with a clock, a lock, and words for whoever is refused.
//!
//! From: how requests ended that had their turn. One for all handles of a store, for they all ask the same service. What a store has reason to refuse (there is
//! no such object, there is one already, this is not permitted) shows that it works; credentials that let nobody in do not, and are told apart from a store that is down.
//!
//! Never: a message that is another each time (it is in the status of clusters, and every change of it is a write); a request that is given up kept for one that tries.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bellwether_core::breaker::{Breaker as Rules, Change, Ended, Limits, Random, Turn as Kind};
use jiff::Timestamp;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Why a store is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It can't be reached, it fails, it takes too long, or it is not there.
    Down,
    /// It does not know the credentials.
    Credentials,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Down => "it is down",
            Self::Credentials => "its credentials let nobody in",
        })
    }
}

/// That a store is left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rest {
    /// Since when. Trials in between don't change that.
    pub since: Timestamp,
    /// What is wrong with it.
    pub trouble: Trouble,
    /// What it said first when it was so.
    pub why: String,
    /// Within what it is tried again, at most.
    pub within: Duration,
}

impl fmt::Display for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { since, trouble, why, within } = self;
        write!(f, "left alone since {since} because {trouble}, and tried again within {} s: {why}", within.as_secs())
    }
}

/// How a request ended, in the words of a store.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verdict<'a> {
    Served,
    Trouble(Trouble, &'a str),
}

/// The breaker of one store.
pub(super) struct Breaker {
    name: Arc<str>,
    limits: Limits,
    began: Instant,
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    rules: Rules,
    rest: Option<(Timestamp, Trouble, String)>,
}

impl Breaker {
    pub fn new(name: Arc<str>, limits: Limits) -> Arc<Self> {
        let state = State { rules: Rules::new(limits), rest: None };
        Arc::new(Self { name, limits, began: Instant::now(), state: Mutex::new(state), changed: Notify::new() })
    }

    /// Asks for a turn.
    pub fn turn(self: &Arc<Self>) -> Result<Turn, Rest> {
        let mut state = self.state();
        match state.rules.turn(self.now()) {
            Ok(kind) => Ok(Turn { breaker: self.clone(), kind: Some(kind) }),
            Err(_) => Err(self.told(&state)),
        }
    }

    /// Whether everybody would get one, and not only one who tries.
    pub fn works(&self) -> bool {
        self.state().rules.works()
    }

    /// Why nobody would get a turn now.
    pub fn rest(&self) -> Option<Rest> {
        let state = self.state();
        state.rules.resting(self.now()).map(|_| self.told(&state))
    }

    /// Waits until somebody would get one.
    pub async fn rested(&self) {
        loop {
            // Before looking, or a change right after that would be missed.
            let changed = self.changed.notified();
            let resting = self.state().rules.resting(self.now());
            let Some(resting) = resting else { return };
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep_until(self.began + resting.until) => {}
            }
        }
    }

    fn ended(&self, kind: Kind, verdict: Option<Verdict<'_>>) {
        let ended = match verdict {
            Some(Verdict::Served) => Ended::Served,
            Some(Verdict::Trouble(..)) => Ended::Failed,
            None => Ended::Unknown,
        };
        let random = Random(RandomState::new().build_hasher().finish());
        let mut state = self.state();
        let change = state.rules.ended(kind, ended, self.now(), random);
        if let Some(Verdict::Trouble(trouble, why)) = &verdict
            && matches!(change, Some(Change::Rests(_) | Change::RestsOn(_)))
        {
            let since = state.rest.as_ref().map_or_else(Timestamp::now, |(since, ..)| *since);
            // The first word of it: that of each trial may name another object.
            if state.rest.as_ref().is_none_or(|(_, before, _)| before != trouble) {
                state.rest = Some((since, *trouble, why.to_string()));
            }
        }
        if change == Some(Change::Works) {
            state.rest = None;
        }
        drop(state);
        self.log(change, verdict.as_ref());
        if change.is_some() {
            self.changed.notify_waiters();
        }
    }

    fn log(&self, change: Option<Change>, verdict: Option<&Verdict<'_>>) {
        let (store, why) = (
            &self.name,
            match verdict {
                Some(Verdict::Trouble(_, why)) => why.to_string(),
                _ => String::new(),
            },
        );
        match change {
            Some(Change::Rests(rest)) => {
                tracing::warn!(%store, next_try_ms = rest.as_millis() as u64, error = why, "the store is left alone");
            }
            Some(Change::RestsOn(rest)) => {
                tracing::info!(%store, next_try_ms = rest.as_millis() as u64, error = why, "the store was tried, and is left alone");
            }
            Some(Change::Works) => tracing::info!(%store, "the store works again"),
            None => {}
        }
    }

    fn told(&self, state: &State) -> Rest {
        let unknown =
            || (Timestamp::now(), Trouble::Down, "a request is under way that shows whether it is back".to_owned());
        let (since, trouble, why) = state.rest.clone().unwrap_or_else(unknown);
        let since = Timestamp::from_second(since.as_second()).unwrap_or(since);
        Rest { since, trouble, why, within: self.limits.longest }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// That a request may be sent. Dropped without a word, it was given up.
pub(super) struct Turn {
    breaker: Arc<Breaker>,
    kind: Option<Kind>,
}

impl Turn {
    /// Whether it shows if the store is back: then it is sent once.
    pub fn is_trial(&self) -> bool {
        matches!(self.kind, Some(Kind::Trial(_)))
    }

    /// How it ended.
    pub fn ended(mut self, verdict: Verdict<'_>) {
        if let Some(kind) = self.kind.take() {
            self.breaker.ended(kind, Some(verdict));
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(kind) = self.kind.take() {
            self.breaker.ended(kind, None);
        }
    }
}
