//! The probe's clock: microseconds of `CLOCK_BOOTTIME`, and the wall's time beside it.
//!
//! All processes of one machine share that clock, in containers too, so the histories of several probes (one beside a
//! primary that was cut off, one outside) can be laid over each other. Of two machines they can't: the boot's id tells.

use std::time::Duration;

use jiff::Timestamp;
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// A moment of this machine, in microseconds since it was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Micros(pub u64);

impl Micros {
    /// Now.
    pub fn now() -> Self {
        let time = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("every kernel that runs us has CLOCK_BOOTTIME");
        Self(Duration::from(time).as_micros() as u64)
    }

    /// How long after `earlier` this is; nothing when it is not after it.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// The wall's time now.
pub fn wall() -> Timestamp {
    Timestamp::now()
}

/// What tells this boot of this machine from every other; nothing where the kernel doesn't say.
pub fn boot_id() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_runs_forward() {
        let earlier = Micros::now();
        let later = Micros::now();
        assert!(earlier.0 > 0 && later >= earlier);
        assert_eq!(earlier.since(Micros(earlier.0 + 5)), Duration::ZERO);
    }
}
