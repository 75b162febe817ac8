//! Whether this process may act now, for everybody in it to ask.
//!
//! Never: true past the end of tenure because the task that renews it did not get to run. The end is a time, and whoever asks
//! compares it with the clock.

use tokio::sync::watch;
use tokio::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tenure {
    /// No election: there is nobody else.
    Always,
    /// Not now.
    Never,
    Until(Instant),
}

impl Tenure {
    fn holds(self) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Until(end) => Instant::now() < end,
        }
    }
}

/// Asks whether this process may act.
#[derive(Clone, Debug)]
pub struct Office(watch::Receiver<Tenure>);

/// Says until when this process may act.
#[derive(Debug)]
pub struct Keeper(watch::Sender<Tenure>);

impl Office {
    /// The office of a process that is alone.
    pub fn always() -> Self {
        // A receiver keeps its last value when its sender is gone.
        Self(watch::channel(Tenure::Always).1)
    }

    /// An office that nobody holds yet, and who changes that.
    pub fn vacant() -> (Keeper, Self) {
        let (sender, receiver) = watch::channel(Tenure::Never);
        (Keeper(sender), Self(receiver))
    }

    /// Whether this process may act at this moment.
    pub fn held(&self) -> bool {
        self.0.borrow().holds()
    }

    /// Waits until this process may act; for ever if it never may.
    pub async fn taken(&mut self) {
        loop {
            if self.0.borrow_and_update().holds() {
                return;
            }
            if self.0.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until this process may no longer act.
    pub async fn lapsed(&mut self) {
        loop {
            let tenure = *self.0.borrow_and_update();
            match tenure {
                Tenure::Never => return,
                Tenure::Always => std::future::pending::<()>().await,
                Tenure::Until(end) if Instant::now() >= end => return,
                Tenure::Until(end) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(end) => {}
                        Ok(()) = self.0.changed() => {}
                    }
                }
            }
        }
    }
}

impl Keeper {
    /// This process may act until `end`.
    pub fn until(&self, end: Option<Instant>) {
        self.0.send_replace(end.map_or(Tenure::Never, Tenure::Until));
    }
}

impl Drop for Keeper {
    /// Who no longer renews no longer leads.
    fn drop(&mut self) {
        self.until(None);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn tenure_ends_by_the_clock_even_if_nobody_says_so() {
        let (keeper, mut office) = Office::vacant();
        assert!(!office.held());
        let end = Instant::now() + Duration::from_secs(10);
        keeper.until(Some(end));
        office.taken().await;
        office.lapsed().await;
        assert!(Instant::now() >= end && !office.held());
    }

    #[tokio::test(start_paused = true)]
    async fn an_extension_is_heard_by_who_waits_for_the_end() {
        let (keeper, office) = Office::vacant();
        let start = Instant::now();
        keeper.until(Some(start + Duration::from_secs(10)));
        let mut waiting = office.clone();
        let waiting = tokio::spawn(async move { waiting.lapsed().await });
        tokio::time::sleep(Duration::from_secs(9)).await;
        keeper.until(Some(start + Duration::from_secs(19)));
        waiting.await.unwrap();
        assert!(start.elapsed() >= Duration::from_secs(19));
    }

    #[tokio::test]
    async fn an_office_without_its_keeper_is_vacant() {
        let (keeper, mut office) = Office::vacant();
        keeper.until(Some(Instant::now() + Duration::from_secs(3600)));
        drop(keeper);
        office.lapsed().await;
        assert!(!office.held());
        assert!(Office::always().held());
    }
}
