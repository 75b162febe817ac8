//! Reads `spec.backup.retention`: a length of time, a number of backups, or both.
//!
//! In words (`10 backups`), because a bare number would be one of days to whoever forgot the unit, and no string at all in YAML. Never: anything
//! accepted that the rule of the schema refuses, or the other way round.

use std::num::NonZeroUsize;
use std::str::FromStr;

use jiff::SignedDuration;

/// What to do about a text that can't be read.
pub const FIX: &str = "is neither a length of time nor a number of backups: write a number from 1 to 9999 and a unit without a space, h for \
                       hours, d for days, w for weeks, m for months of 30 days or y for years, such as 7d; or 10 backups; or both, such as \
                       7d and 10 backups";

/// How long backups are kept. Where both are said, whatever either keeps is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Every moment of the last so long can be reached.
    Window(SignedDuration),
    /// So many of the newest.
    Count(NonZeroUsize),
    /// Both.
    Both(SignedDuration, NonZeroUsize),
}

/// Why a text is no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} {FIX}")]
pub struct BadPolicy {
    text: String,
}

impl Policy {
    /// The time of which every moment can be reached.
    pub fn window(self) -> Option<SignedDuration> {
        match self {
            Self::Window(window) | Self::Both(window, _) => Some(window),
            Self::Count(_) => None,
        }
    }

    /// How many of the newest are kept, however old they are.
    pub fn count(self) -> usize {
        match self {
            Self::Count(count) | Self::Both(_, count) => count.get(),
            Self::Window(_) => 0,
        }
    }
}

impl FromStr for Policy {
    type Err = BadPolicy;

    fn from_str(text: &str) -> Result<Self, BadPolicy> {
        let read = match text.split_once(" and ") {
            Some((length, backups)) => {
                window(length).zip(count(backups)).map(|(window, count)| Self::Both(window, count))
            }
            None => window(text).map(Self::Window).or_else(|| count(text).map(Self::Count)),
        };
        read.ok_or_else(|| BadPolicy { text: text.to_owned() })
    }
}

/// `7d`.
fn window(text: &str) -> Option<SignedDuration> {
    let unit = text.chars().last()?;
    let hours = match unit {
        'h' => 1,
        'd' => 24,
        'w' => 7 * 24,
        'm' => 30 * 24,
        'y' => 365 * 24,
        _ => return None,
    };
    let number = number(text.strip_suffix(unit)?)?;
    Some(SignedDuration::from_hours(i64::from(number) * hours))
}

/// `10 backups`.
fn count(text: &str) -> Option<NonZeroUsize> {
    let digits = text.strip_suffix(" backups").or_else(|| text.strip_suffix(" backup"))?;
    NonZeroUsize::new(usize::from(number(digits)?))
}

/// From 1 to 9999, as nobody else would write it.
fn number(digits: &str) -> Option<u16> {
    let plain = (1..=4).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    if plain && !digits.starts_with('0') { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("7d", 7 * 24)]
    #[case("12h", 12)]
    #[case("4w", 28 * 24)]
    #[case("1m", 30 * 24)]
    #[case("9999y", 9999 * 365 * 24)]
    fn a_window_is_a_number_and_a_unit(#[case] text: &str, #[case] hours: i64) {
        assert_eq!(text.parse(), Ok(Policy::Window(SignedDuration::from_hours(hours))));
    }

    #[test]
    fn a_count_is_in_words_and_both_are_joined() {
        let count = |count| NonZeroUsize::new(count).unwrap();
        assert_eq!("10 backups".parse(), Ok(Policy::Count(count(10))));
        assert_eq!("1 backup".parse(), Ok(Policy::Count(count(1))));
        let both: Policy = "7d and 10 backups".parse().unwrap();
        assert_eq!(both, Policy::Both(SignedDuration::from_hours(168), count(10)));
        assert_eq!((both.window(), both.count()), (Some(SignedDuration::from_hours(168)), 10));
    }

    #[test]
    fn everything_else_is_refused_with_the_way_to_write_it() {
        let lengths = ["", "d", "0d", "07d", "7", "7 d", "-7d", "+7d", "7dd", "10000d", "7ä", "7D", "7 days"];
        let counts = ["10", "0 backups", "10backups", "10  backups", "10000 backups", "10 Backups", " backups"];
        let both = ["7d,10", "7d and 10", "10 backups and 7d", "7d and ", "7d and 7d", "7d and 1 backup and 1 backup"];
        for text in lengths.iter().chain(&counts).chain(&both) {
            let refused = text.parse::<Policy>().unwrap_err().to_string();
            assert!(
                refused.contains(&format!("{text:?}")) && refused.contains("such as 7d and 10 backups"),
                "{refused}"
            );
        }
    }
}
