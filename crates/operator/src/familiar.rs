//! What the last pass over a cluster worked out and the next one can take over, for the clusters that were looked at last.
//!
//! Both are what reading and building anew would give, so nothing is lost with them; they are kept for a few clusters only, because an
//! operator of thousands would need more memory for them than for its caches.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use bellwether_core::build::Kept;
use bellwether_core::observed::Readings;
use bellwether_runtime::watch::Key;

/// A cluster that changes is looked at again within moments; not many do so at once.
const CLUSTERS: usize = 16;

/// What is known of one cluster.
#[derive(Debug, Default)]
pub struct Familiar {
    /// Its objects as they were read.
    pub readings: Mutex<Readings>,
    /// Its objects as they should be.
    pub kept: Kept,
}

/// Those that were looked at last, the newest at the end.
#[derive(Debug, Default)]
pub struct Familiars(Mutex<VecDeque<(Key, Arc<Familiar>)>>);

impl Familiars {
    /// What is known of this cluster; nothing, if it was not looked at for long.
    pub fn of(&self, key: &Key) -> Arc<Familiar> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.iter().position(|(other, _)| other == key).and_then(|at| all.remove(at));
        let (_, familiar) = known.unwrap_or_else(|| (key.clone(), Arc::default()));
        if all.len() >= CLUSTERS {
            all.pop_front();
        }
        all.push_back((key.clone(), familiar.clone()));
        familiar
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_familiar_until_many_others_were_looked_at() {
        let key = |name: usize| Key { namespace: "shop".to_owned(), name: name.to_string() };
        let all = Familiars::default();
        let first = all.of(&key(0));
        (1..CLUSTERS).for_each(|other| drop(all.of(&key(other))));
        assert!(Arc::ptr_eq(&first, &all.of(&key(0))));
        (1..=CLUSTERS).for_each(|other| drop(all.of(&key(other))));
        assert!(!Arc::ptr_eq(&first, &all.of(&key(0))));
    }
}
