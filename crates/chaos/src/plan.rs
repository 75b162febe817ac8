//! Decides what is done in which round: a pure function of the seed and the round's number.

use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::fault::Fault;

/// What is done in a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// In this order.
    pub faults: Vec<Fault>,
    /// So long after one another.
    pub apart: Duration,
}

/// One round in this many has two faults.
const DOUBLE_EVERY: u64 = 4;
/// The longest time between two: within it an election begins, and ends.
const APART: u64 = 6000;

/// The round of this number. `among` must not be empty.
pub fn round(seed: u64, number: u64, among: &[Fault]) -> Round {
    let digest = Sha256::digest([seed.to_be_bytes(), number.to_be_bytes()].concat());
    let draw = |index: usize| {
        let bytes = digest.iter().skip(index * 8).take(8);
        bytes.fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
    };
    let pick = |draw: u64, from: &[Fault]| from.get((draw % from.len().max(1) as u64) as usize).copied();
    let first = pick(draw(0), among);
    // After everything was killed there is nothing left to kill; and one that waits for another primary is waited for.
    let alone = first.is_none_or(|fault| fault == Fault::AllKilled || fault.is_waited_for());
    let second = if !alone && draw(1).is_multiple_of(DOUBLE_EVERY) {
        let others: Vec<_> = among.iter().copied().filter(|fault| !fault.is_waited_for()).collect();
        pick(draw(2), &others)
    } else {
        None
    };
    Round { faults: first.into_iter().chain(second).collect(), apart: Duration::from_millis(draw(3) % APART) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_means_the_same_rounds_in_every_release() {
        let names = |seed| -> Vec<String> {
            let rounds = (0..6).map(|number| round(seed, number, &Fault::EMBEDDED));
            rounds.map(|round| round.faults.iter().map(|fault| fault.name()).collect::<Vec<_>>().join("+")).collect()
        };
        assert_eq!(names(7), names(7));
        assert_ne!(names(7), names(8));
    }

    #[test]
    fn every_fault_comes_and_some_rounds_have_two() {
        let rounds: Vec<_> = (0..400).map(|number| round(1, number, &Fault::EMBEDDED)).collect();
        for fault in Fault::EMBEDDED {
            assert!(rounds.iter().any(|round| round.faults.contains(&fault)), "{fault:?}");
        }
        let double = rounds.iter().filter(|round| round.faults.len() == 2).count();
        assert!((20..200).contains(&double), "{double}");
        assert!(
            rounds
                .iter()
                .all(|round| (1..=2).contains(&round.faults.len()) && round.apart.as_millis() < u128::from(APART))
        );
    }
}
