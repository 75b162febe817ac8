//! Holds the reins of a PostgreSQL that leads: its guard gets each new deadline, and the order to kill, from here, however busy the
//! instance's loop is.

use bellwether_core::election::Deadline;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{Manner, Role, Want};
use crate::guard::orders::Order;
use crate::postmaster::Reins;

/// The task. It ends with the guard, or when this is dropped.
#[derive(Debug)]
pub struct Steward(JoinHandle<()>);

impl Drop for Steward {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Steward {
    /// From now on. The guard knows the deadline when this returns.
    pub async fn hold(reins: Reins, mut deadline: watch::Receiver<Deadline>, want: watch::Receiver<Want>) -> Self {
        let first = *deadline.borrow_and_update();
        reins.order(Order::Until(first)).await;
        Self(tokio::spawn(keep(reins, deadline, want)))
    }
}

async fn keep(reins: Reins, mut deadline: watch::Receiver<Deadline>, mut want: watch::Receiver<Want>) {
    loop {
        if !may_run(&want.borrow_and_update().role) {
            reins.order(Order::Kill).await;
            return;
        }
        let next = *deadline.borrow_and_update();
        if !reins.order(Order::Until(next)).await {
            return;
        }
        tokio::select! {
            changed = deadline.changed() => if changed.is_err() { return },
            changed = want.changed() => if changed.is_err() { return },
        }
    }
}

/// Whether a primary may go on: wanted, or being stopped in order.
fn may_run(role: &Role) -> bool {
    matches!(role, Role::Lead { .. } | Role::Stop(Manner::Gently | Manner::Drained))
}
