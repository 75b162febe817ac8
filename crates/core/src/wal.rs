//! Positions in PostgreSQL's history: `Lsn`, `Timeline`, `SystemIdentifier`, and the `Term` of a leader.
//!
//! They live here rather than beside the SQL because the election compares them; the `postgres` crate reads them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A position in the write-ahead log, shown as PostgreSQL does (`16/B374D848`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

/// A timeline: grows by one with each promotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timeline(pub u32);

/// The term of a leader: a fencing token that grows with every change of leadership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Term(pub u64);

/// What PostgreSQL calls a database cluster apart from every other: set by `initdb`, kept by every copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SystemIdentifier(pub u64);

/// Why a text is not a position or identifier.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {expected}")]
pub struct Malformed {
    text: String,
    expected: &'static str,
}

impl Lsn {
    /// How many bytes `self` is ahead of `other`; nothing when it is behind.
    pub fn ahead_of(self, other: Self) -> u64 {
        self.0.saturating_sub(other.0)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xFFFF_FFFF)
    }
}

impl FromStr for Lsn {
    type Err = Malformed;
    fn from_str(text: &str) -> Result<Self, Malformed> {
        let malformed = || Malformed { text: text.to_owned(), expected: "an LSN such as 16/B374D848" };
        let (high, low) = text.split_once('/').ok_or_else(malformed)?;
        let part = |digits: &str| match digits.len() {
            1..=8 if digits.bytes().all(|b| b.is_ascii_hexdigit()) => u64::from_str_radix(digits, 16).ok(),
            _ => None,
        };
        Ok(Self(part(high).ok_or_else(malformed)? << 32 | part(low).ok_or_else(malformed)?))
    }
}

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for SystemIdentifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for SystemIdentifier {
    type Err = Malformed;
    fn from_str(text: &str) -> Result<Self, Malformed> {
        match text.parse() {
            Ok(id) if id != 0 => Ok(Self(id)),
            _ => Err(Malformed { text: text.to_owned(), expected: "a system identifier" }),
        }
    }
}

/// Written as text, because JSON readers lose digits of numbers this large.
macro_rules! serde_as_text {
    ($($type:ty),*) => {$(
        impl Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}
serde_as_text!(Lsn, SystemIdentifier);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_lsn_reads_as_postgresql_writes_it() {
        let lsn: Lsn = "16/B374D848".parse().unwrap();
        assert_eq!(lsn, Lsn(0x16_B374_D848));
        assert_eq!(lsn.to_string(), "16/B374D848");
    }

    #[test]
    fn what_is_not_an_lsn_is_refused() {
        for text in ["", "/", "0", "0/", "/0", "1/2/3", "+1/0", "0/123456789", "x/0"] {
            assert!(text.parse::<Lsn>().is_err(), "{text}");
        }
    }

    #[test]
    fn zero_is_no_system_identifier() {
        assert!("0".parse::<SystemIdentifier>().is_err());
    }
}
