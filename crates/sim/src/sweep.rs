//! Many seeds, on several threads, summed up in the order of the seeds.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::fault::Coverage;
use crate::options::Options;
use crate::run::{Outcome, run};

/// What came of many runs.
#[derive(Clone, Debug, Default)]
#[expect(missing_docs, reason = "as in `Outcome`, summed")]
pub struct Sum {
    pub passed: u64,
    /// Those that broke a promise, by seed.
    pub failed: BTreeMap<u64, Outcome>,
    pub coverage: Coverage,
    pub inside: BTreeMap<&'static str, u64>,
    pub commits: u64,
    pub lost: u64,
    pub reigns: u64,
    pub events: u64,
    pub writes: u64,
    pub passes: u64,
    pub slowest_ready: u64,
}

impl Sum {
    fn add(&mut self, outcome: Outcome) {
        for (key, count) in &outcome.coverage {
            *self.coverage.entry(*key).or_default() += count;
        }
        for (key, count) in &outcome.inside {
            *self.inside.entry(key).or_default() += count;
        }
        self.commits += outcome.commits;
        self.lost += outcome.lost;
        self.reigns += outcome.reigns;
        self.events += outcome.events;
        self.writes += outcome.writes;
        self.passes += outcome.passes;
        self.slowest_ready = self.slowest_ready.max(outcome.ready_after.unwrap_or(0));
        if outcome.violation.is_some() {
            self.failed.insert(outcome.seed, outcome);
        } else {
            self.passed += 1;
        }
    }
}

/// When to stop early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Every seed has run.
    All,
    /// One has failed.
    FirstFailure,
    /// So many have.
    Failures(usize),
}

/// Runs the seeds; `told` hears of each failure as it comes.
pub fn sweep(
    seeds: std::ops::Range<u64>,
    options: &Options,
    threads: usize,
    until: Until,
    told: &(dyn Fn(&Outcome) + Sync),
) -> Sum {
    let next = AtomicU64::new(seeds.start);
    let stop = AtomicBool::new(false);
    let sum = Mutex::new(Sum::default());
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let outcome = run(&Options { seed, ..*options });
                    let failed = outcome.violation.is_some();
                    if failed {
                        told(&outcome);
                    }
                    // A panic while summing up would have been a bug of ours that no other thread can mend.
                    let mut sum = sum.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    sum.add(outcome);
                    let enough = match until {
                        Until::All => false,
                        Until::FirstFailure => failed,
                        Until::Failures(most) => sum.failed.len() >= most,
                    };
                    if enough {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    sum.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}
