//! How far a copy is: a bar with bytes, rate and time left in a terminal; in a pipe a plain line for each tenth.

use std::time::Duration;

use bellwether_backup::restore::Progress as Bytes;
use bellwether_core::words;
use k8s_openapi::jiff::SignedDuration;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

use super::is_terminal;
use super::progress::Progress;

/// How often it is drawn.
const EVERY: Duration = Duration::from_millis(200);
/// The bar's width.
const WIDTH: u64 = 30;

/// Does the work, and shows how far it is until it is done, or `after` is what to show instead once all bytes are there.
pub async fn shown<T>(work: impl Future<Output = T>, bytes: &watch::Sender<Bytes>, after: &str) -> T {
    let (mut line, began, live) = (Progress::new(), Instant::now(), is_terminal());
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => {
                line.end();
                return done;
            }
            _ = tick.tick() => {
                let at = *bytes.borrow();
                if at.total > 0 && at.done >= at.total {
                    line.show(after);
                } else if at.total > 0 {
                    line.show(&text(at, began.elapsed(), live));
                }
            }
        }
    }
}

fn text(Bytes { done, total }: Bytes, elapsed: Duration, live: bool) -> String {
    let share = |of: u64| u64::try_from(u128::from(done) * u128::from(of) / u128::from(total.max(1))).unwrap_or(of);
    let percent = share(100);
    if !live {
        // What changes all the time would be a line each time.
        return format!("{} % of {}", percent / 10 * 10, words::size(total));
    }
    let filled = share(WIDTH);
    let bar: String = (0..WIDTH).map(|at| if at < filled { '█' } else { '░' }).collect();
    let milliseconds = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
    let rate = done.saturating_mul(1000) / milliseconds;
    let left = (total - done.min(total)).checked_div(rate).map(|seconds| {
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        format!(", {} left", words::duration(SignedDuration::from_secs(seconds)))
    });
    let (done, total) = (words::size(done), words::size(total));
    format!("{bar} {percent:>3} %  {done} of {total}  {}/s{}", words::size(rate), left.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: Bytes = Bytes { done: 512 << 20, total: 1 << 30 };

    #[test]
    fn a_terminal_shows_bytes_rate_and_time_left() {
        let bar = format!("{}{}", "█".repeat(15), "░".repeat(15));
        let expected = format!("{bar}  50 %  512.0 MiB of 1.0 GiB  51.2 MiB/s, 10s left");
        assert_eq!(text(HALF, Duration::from_secs(10), true), expected);
        assert!(!text(Bytes { done: 0, total: 7 }, Duration::ZERO, true).contains("left"), "nobody knows yet");
    }

    #[test]
    fn a_pipe_gets_a_line_for_each_tenth() {
        let lines = (50..60).map(|percent| text(Bytes { done: percent, total: 100 }, Duration::from_secs(1), false));
        assert_eq!(lines.collect::<std::collections::BTreeSet<_>>().into_iter().collect::<Vec<_>>(), ["50 % of 100 B"]);
    }
}
