//! Decides whether there is a token left: so many at once, then one each so often.
//!
//! Pure: the time is an argument. Only one time is kept, up to which tokens have been paid for, so there is nothing to refill and
//! nothing to round. Never: more than the burst, however long nobody came; a debt that was made at one rate and is paid at another.

use std::time::Duration;

use tokio::time::Instant;

/// A bucket of tokens, full at first.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    burst: u32,
    /// A new token comes so often.
    every: Duration,
    /// Each token taken moves this on by the time that its successor takes to come.
    paid_until: Option<Instant>,
}

impl Bucket {
    /// A full one, with so many tokens, and a new one `every` so often.
    pub fn new(burst: u32, every: Duration) -> Self {
        Self { burst: burst.max(1), every: every.max(Duration::from_nanos(1)), paid_until: None }
    }

    /// Takes a token if there is one.
    pub fn take(&mut self, now: Instant) -> bool {
        if now < self.ready_at(now) {
            return false;
        }
        self.paid_until = Some(now + self.ahead(now) + self.every);
        true
    }

    /// From now on a token comes `every` so often. What is left stays as many tokens as it was.
    pub fn refill(&mut self, every: Duration, now: Instant) {
        let every = every.max(Duration::from_nanos(1));
        let ahead = self.ahead(now).mul_f64(every.as_secs_f64() / self.every.as_secs_f64());
        *self = Self { every, paid_until: Some(now + ahead), ..*self };
    }

    /// Throws all tokens away.
    pub fn empty(&mut self, now: Instant) {
        self.paid_until = Some(now + self.every * self.burst);
    }

    /// When there is a token: now, or later.
    pub fn ready_at(&self, now: Instant) -> Instant {
        now + self.ahead(now).saturating_sub(self.every * (self.burst - 1))
    }

    /// How many tokens there are.
    pub fn left(&self, now: Instant) -> u32 {
        let taken = self.ahead(now).as_nanos().div_ceil(self.every.as_nanos());
        self.burst.saturating_sub(u32::try_from(taken).unwrap_or(u32::MAX))
    }

    fn ahead(&self, now: Instant) -> Duration {
        self.paid_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EVERY: Duration = Duration::from_millis(200);

    #[test]
    fn so_many_go_at_once_and_then_one_each_so_often() {
        let (mut bucket, now) = (Bucket::new(3, EVERY), Instant::now());
        assert_eq!((0..5).filter(|_| bucket.take(now)).count(), 3);
        assert_eq!((bucket.left(now), bucket.ready_at(now)), (0, now + EVERY));
        assert!(!bucket.take(now + EVERY - Duration::from_nanos(1)));
        assert!(bucket.take(now + EVERY));
    }

    #[test]
    fn a_long_rest_fills_it_and_no_more() {
        let (mut bucket, now) = (Bucket::new(3, EVERY), Instant::now());
        while bucket.take(now) {}
        let later = now + EVERY * 100;
        assert_eq!(bucket.left(later), 3);
        assert_eq!((0..5).filter(|_| bucket.take(later)).count(), 3);
    }

    #[test]
    fn what_is_left_stays_as_many_when_tokens_come_more_often_or_less() {
        let (mut bucket, now) = (Bucket::new(8, EVERY), Instant::now());
        for _ in 0..6 {
            assert!(bucket.take(now));
        }
        for every in [EVERY * 100, EVERY / 50] {
            bucket.refill(every, now);
            assert_eq!(bucket.left(now), 2, "every {every:?}");
        }
        bucket.empty(now);
        bucket.refill(EVERY, now);
        assert_eq!(bucket.ready_at(now), now + EVERY, "a debt that was made slowly is not paid slowly");
    }

    proptest! {
        #[test]
        fn nobody_gets_more_than_the_burst_and_what_came_since(gaps in prop::collection::vec(0u64..500, 1..200)) {
            let (mut bucket, start) = (Bucket::new(5, EVERY), Instant::now());
            let (mut now, mut taken) = (start, 0u128);
            for gap in gaps {
                now += Duration::from_millis(gap);
                taken += u128::from(bucket.take(now));
                prop_assert!(taken <= 5 + (now - start).as_nanos() / EVERY.as_nanos());
                prop_assert_eq!(bucket.left(now) > 0, bucket.ready_at(now) == now);
            }
        }
    }
}
