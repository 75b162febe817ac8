//! When a cron expression falls due, by the clocks of a time zone.
//!
//! From expression and zone alone: whoever asks brings the time along. A time that the clocks skip falls due when they have skipped it, one that they
//! show twice once. Never: an expression of six or seven fields. The parser would take the first for seconds, which shifts the meaning of all the
//! others.

use std::str::FromStr as _;

use croner::Cron;
use jiff::{Timestamp, civil, tz::TimeZone};

use crate::zone;

/// An expression that can be acted on: it has five fields, and comes due.
#[derive(Clone, Debug)]
pub struct Schedule {
    cron: Cron,
    zone: TimeZone,
}

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
    /// The zone is none.
    #[error("there is no such time zone")]
    Zone,
}

impl Schedule {
    /// Reads an expression, and the name of the zone by whose clocks it is meant.
    pub fn read(expression: &str, zone: &str) -> Result<Self, Wrong> {
        let cron = cron(expression)?;
        let zone = zone::read(zone).ok_or(Wrong::Zone)?;
        Ok(Self { cron, zone })
    }

    /// The first time after `moment`.
    pub fn next(&self, moment: Timestamp) -> Option<Timestamp> {
        let found = self.cron.find_next_occurrence(&whole(moment).to_zoned(self.zone.clone()), false);
        found.ok().map(|at| at.timestamp())
    }

    /// The last time until `moment`, itself included.
    pub fn last(&self, moment: Timestamp) -> Option<Timestamp> {
        let found = self.cron.find_previous_occurrence(&whole(moment).to_zoned(self.zone.clone()), true);
        found.ok().map(|at| at.timestamp())
    }
}

fn cron(expression: &str) -> Result<Cron, Wrong> {
    if expression.split_whitespace().count() != 5 {
        return Err(Wrong::Fields);
    }
    let cron = Cron::from_str(expression).map_err(|why| Wrong::Unreadable(why.to_string()))?;
    // Any start will do: what fires at all fires within the 28 years after which weekdays and leap years repeat.
    let start = civil::date(2000, 1, 1).to_zoned(TimeZone::UTC).map_err(|why| Wrong::Unreadable(why.to_string()))?;
    match cron.find_next_occurrence(&start, true) {
        Ok(_) => Ok(cron),
        Err(_) => Err(Wrong::Never),
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
        Schedule::read(expression, zone::UTC).expect("a schedule")
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
        let wrong = |expression| Schedule::read(expression, zone::UTC).unwrap_err();
        assert_eq!(wrong("0 0 2 * * *"), Wrong::Fields);
        assert_eq!(wrong("0 2 31 4-6/2 *"), Wrong::Never);
        assert!(matches!(wrong("0 99 * * *"), Wrong::Unreadable(_)));
        assert_eq!(Schedule::read("0 2 * * *", "Berlin").unwrap_err(), Wrong::Zone);
    }

    #[rstest]
    // Set forward over half past two: right after it.
    #[case("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", &["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"])]
    // Set back over half past two: once.
    #[case("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", &["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"])]
    // Half an hour beside everybody else.
    #[case("0 2 * * *", "Asia/Kolkata", "2026-01-01T00:00:00Z", &["2026-01-01T20:30:00Z", "2026-01-02T20:30:00Z"])]
    // A Sunday there is a Saturday here.
    #[case("0 1 * * SUN", "Asia/Tokyo", "2026-01-01T00:00:00Z", &["2026-01-03T16:00:00Z", "2026-01-10T16:00:00Z"])]
    fn by_the_clocks_of_a_zone(
        #[case] expression: &str,
        #[case] zone: &str,
        #[case] start: &str,
        #[case] wanted: &[&str],
    ) {
        let schedule = Schedule::read(expression, zone).expect("a schedule");
        let mut moment = at(start);
        for wanted in wanted {
            moment = schedule.next(moment).expect("it comes again");
            assert_eq!(moment, at(wanted));
        }
    }

    /// Whoever looks back finds what whoever looked forward was told, whatever clocks do in between: otherwise a backup would be taken twice, or not at all.
    #[rstest]
    fn looking_back_finds_what_looking_forward_did(
        #[values("30 2 * * *", "0 0 * * *", "15 */3 * * *", "0 3 * * SUN", "59 1,2,3 25-29 3,10 *")] expression: &str,
        #[values("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo")] zone: &str,
    ) {
        let schedule = Schedule::read(expression, zone).expect("a schedule");
        let (mut moment, end) = (at("2026-01-01T00:00:00Z"), at("2027-01-01T00:00:00Z"));
        let mut times = 0;
        while moment < end {
            let next = schedule.next(moment).expect("it comes again");
            assert!(next > moment, "{next} after {moment}");
            assert_eq!(schedule.last(next), Some(next), "at the very moment, after {moment}");
            let before = schedule.last(Timestamp::from_second(next.as_second() - 1).expect("a second before"));
            assert!(
                before.is_some_and(|before| before < next && (times == 0 || before == moment)),
                "{before:?} before {next}, after {moment}"
            );
            (moment, times) = (next, times + 1);
        }
        assert!(times > 20, "{times}");
    }
}
