//! How long to wait before trying again: twice as long each time, up to a limit.
//!
//! Without jitter: an agent talks to its own PostgreSQL and its own objects; there is no herd to spread.

use std::time::Duration;

/// Waits that grow.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    limit: Duration,
    current: Duration,
}

impl Backoff {
    /// Begins at `first`, ends at `limit`.
    pub fn new(first: Duration, limit: Duration) -> Self {
        Self { first, limit, current: first }
    }
    /// The next wait.
    pub fn next_wait(&mut self) -> Duration {
        let wait = self.current;
        self.current = (wait * 2).min(self.limit);
        wait
    }
    /// It worked: begin anew next time.
    pub fn reset(&mut self) {
        self.current = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_limit_and_begin_anew() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(5));
        let waits: Vec<u64> = (0..4).map(|_| backoff.next_wait().as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 5]);
        backoff.reset();
        assert_eq!(backoff.next_wait().as_secs(), 1);
    }
}
