//! The clock of the election: `CLOCK_BOOTTIME`, which runs on while the machine is suspended (E13).

use std::time::Duration;

use bellwether_core::election::Moment;
use nix::time::{ClockId, clock_gettime};

/// This moment.
pub fn now() -> std::io::Result<Moment> {
    let time = Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME)?);
    Ok(Moment(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_does_not_go_back() {
        let earlier = now().unwrap();
        assert!(now().unwrap() >= earlier);
        assert!(earlier > Moment(0));
    }
}
