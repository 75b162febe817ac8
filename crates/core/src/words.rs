//! Sizes and lengths of time as people read them.

use jiff::SignedDuration;

/// The units of a size, each 1024 of the one before.
const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// A size: `512 B`, `1.2 GiB`.
pub fn size(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut scale: u128 = 1024;
    let last = UNITS.len() - 1;
    for (place, unit) in UNITS.iter().enumerate() {
        // Rounded to tenths, so that what is nearly 1024 of a unit is 1.0 of the next.
        let tenths = (u128::from(bytes) * 10 + scale / 2) / scale;
        if tenths < 10_240 || place == last {
            return format!("{}.{} {unit}", tenths / 10, tenths % 10);
        }
        scale *= 1024;
    }
    String::new()
}

/// How many there are of something: `1 backup`, `12 backups`.
pub fn counted(number: impl Into<u64>, thing: &str) -> String {
    match number.into() {
        1 => format!("1 {thing}"),
        number => format!("{number} {thing}s"),
    }
}

/// A length of time in its two largest units: `8s`, `1m 12s`, `2h 3m`, `1d 4h`.
pub fn duration(length: SignedDuration) -> String {
    let seconds = length.as_secs().max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, minutes) => format!("{minutes}m {}s", seconds % 60),
        (0, hours, minutes) => format!("{hours}h {}m", minutes % 60),
        (days, hours, _) => format!("{days}d {}h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_one_digit_behind_the_point_and_the_unit_that_fits() {
        let told = [0, 1023, 1024, 1_048_524, 1_048_575, 1_288_490_189, 5_497_558_138_880, u64::MAX].map(size);
        assert_eq!(told, ["0 B", "1023 B", "1.0 KiB", "1023.9 KiB", "1.0 MiB", "1.2 GiB", "5.0 TiB", "16.0 EiB"]);
    }

    #[test]
    fn one_is_not_several() {
        assert_eq!([0u64, 1, 2].map(|number| counted(number, "backup")), ["0 backups", "1 backup", "2 backups"]);
    }

    #[test]
    fn a_length_of_time_has_two_units() {
        let told = [0, 8, 60, 72, 7_380, 100_800].map(|seconds| duration(SignedDuration::from_secs(seconds)));
        assert_eq!(told, ["0s", "8s", "1m 0s", "1m 12s", "2h 3m", "1d 4h"]);
        assert_eq!(duration(SignedDuration::from_secs(-5)), "0s", "clocks differ");
    }
}
