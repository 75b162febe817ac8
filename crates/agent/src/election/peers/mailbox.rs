//! What waits to be sent to one peer: little, and not for long.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bellwether_core::election::MemberId;
use tokio::sync::Notify;
use tokio::time::Instant;

/// More than a round of the election sends to one peer.
const WAITING: usize = 8;
/// What has waited longer answers a question that nobody asks any more.
const STALE: Duration = Duration::from_secs(1);

/// Frames in the order in which they were sent.
#[derive(Debug, Default)]
pub struct Mailbox {
    frames: Mutex<VecDeque<Waiting>>,
    filled: Notify,
}

#[derive(Debug)]
struct Waiting {
    since: Instant,
    to: MemberId,
    frame: Vec<u8>,
}

impl Mailbox {
    /// Puts a frame in. If it is full, the oldest gives way.
    pub fn put(&self, to: MemberId, frame: Vec<u8>) {
        let mut frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        if frames.len() == WAITING {
            frames.pop_front();
        }
        frames.push_back(Waiting { since: Instant::now(), to, frame });
        drop(frames);
        self.filled.notify_one();
    }

    /// The next frame for `to`. What is stale, or for somebody who was there before, is dropped.
    pub async fn next(&self, to: MemberId) -> Vec<u8> {
        loop {
            if let Some(frame) = self.take(to) {
                return frame;
            }
            self.filled.notified().await;
        }
    }

    fn take(&self, to: MemberId) -> Option<Vec<u8>> {
        let mut frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(waiting) = frames.pop_front() {
            if waiting.to == to && waiting.since.elapsed() < STALE {
                return Some(waiting.frame);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HIM: MemberId = MemberId(1);

    #[tokio::test(start_paused = true)]
    async fn frames_come_out_in_order_and_the_newest_win() {
        let mailbox = Mailbox::default();
        for n in 0..WAITING as u8 + 3 {
            mailbox.put(HIM, vec![n]);
        }
        for n in 3..WAITING as u8 + 3 {
            assert_eq!(mailbox.next(HIM).await, [n]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn stale_frames_and_those_for_somebody_else_are_dropped() {
        let mailbox = Mailbox::default();
        mailbox.put(HIM, vec![1]);
        tokio::time::advance(STALE).await;
        mailbox.put(MemberId(2), vec![2]);
        mailbox.put(HIM, vec![3]);
        assert_eq!(mailbox.next(HIM).await, [3]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_is_woken() {
        let mailbox = std::sync::Arc::new(Mailbox::default());
        let waits = tokio::spawn({
            let mailbox = std::sync::Arc::clone(&mailbox);
            async move { mailbox.next(HIM).await }
        });
        tokio::task::yield_now().await;
        mailbox.put(HIM, vec![7]);
        assert_eq!(waits.await.unwrap(), [7]);
    }
}
