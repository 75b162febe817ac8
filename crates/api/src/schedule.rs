//! When a cron expression falls due, in UTC.
//!
//! From the expression alone: whoever asks brings the time along. Never: an expression of six or seven fields. The parser would take the first
//! for seconds, which shifts the meaning of all the others.

use std::str::FromStr as _;

use croner::Cron;
use jiff::{Timestamp, civil, tz::TimeZone};

/// An expression that can be acted on: it has five fields, and comes due.
#[derive(Clone, Debug)]
pub struct Schedule(Cron);

/// What is wrong with an expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// It has more or fewer than five fields.
    #[error("it doesn't have five fields")]
    Fields,
    /// A field can't be read.
    #[error("{0}")]
    Unreadable(String),
    /// It names a date that never comes.
    #[error("it names a date that never comes")]
    Never,
}

impl Schedule {
    /// Reads an expression.
    pub fn read(expression: &str) -> Result<Self, Wrong> {
        if expression.split_whitespace().count() != 5 {
            return Err(Wrong::Fields);
        }
        let schedule = Self(Cron::from_str(expression).map_err(|why| Wrong::Unreadable(why.to_string()))?);
        // Any start will do: what fires at all fires within the 28 years after which weekdays and leap years repeat.
        let start =
            civil::date(2000, 1, 1).to_zoned(TimeZone::UTC).map_err(|why| Wrong::Unreadable(why.to_string()))?;
        match schedule.0.find_next_occurrence(&start, true) {
            Ok(_) => Ok(schedule),
            Err(_) => Err(Wrong::Never),
        }
    }

    /// The first time after `moment`.
    pub fn next(&self, moment: Timestamp) -> Option<Timestamp> {
        let found = self.0.find_next_occurrence(&whole(moment).to_zoned(TimeZone::UTC), false);
        found.ok().map(|at| at.timestamp())
    }

    /// The last time until `moment`, itself included.
    pub fn last(&self, moment: Timestamp) -> Option<Timestamp> {
        let found = self.0.find_previous_occurrence(&whole(moment).to_zoned(TimeZone::UTC), true);
        found.ok().map(|at| at.timestamp())
    }
}

/// Without its fraction: a schedule knows no finer times than minutes.
fn whole(moment: Timestamp) -> Timestamp {
    Timestamp::from_second(moment.as_second()).unwrap_or(moment)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }
    fn schedule(expression: &str) -> Schedule {
        Schedule::read(expression).expect("a schedule")
    }

    #[rstest]
    #[case("0 2 * * *", "2026-03-01T01:59:59Z", "2026-02-28T02:00:00Z", "2026-03-01T02:00:00Z")]
    #[case("0 2 * * *", "2026-03-01T02:00:00Z", "2026-03-01T02:00:00Z", "2026-03-02T02:00:00Z")]
    #[case("0 2 * * *", "2026-03-01T02:00:00.7Z", "2026-03-01T02:00:00Z", "2026-03-02T02:00:00Z")]
    #[case("*/15 * * * *", "2026-03-01T02:14:00Z", "2026-03-01T02:00:00Z", "2026-03-01T02:15:00Z")]
    #[case("30 1 * * SUN", "2026-11-18T12:00:00Z", "2026-11-15T01:30:00Z", "2026-11-22T01:30:00Z")]
    #[case("0 0 29 2 *", "2026-01-01T00:00:00Z", "2024-02-29T00:00:00Z", "2028-02-29T00:00:00Z")]
    fn the_times_around_a_moment(#[case] expression: &str, #[case] now: &str, #[case] last: &str, #[case] next: &str) {
        let (schedule, now) = (schedule(expression), at(now));
        assert_eq!((schedule.last(now), schedule.next(now)), (Some(at(last)), Some(at(next))));
    }

    #[test]
    fn what_can_t_be_acted_on_is_told_apart() {
        assert_eq!(Schedule::read("0 0 2 * * *").unwrap_err(), Wrong::Fields);
        assert_eq!(Schedule::read("0 2 31 4-6/2 *").unwrap_err(), Wrong::Never);
        assert!(matches!(Schedule::read("0 99 * * *").unwrap_err(), Wrong::Unreadable(_)));
    }
}
