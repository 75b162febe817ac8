//! Random walks: a quick look for violations where an exploration would take long. They prove nothing; they find.

use crate::act::{Rules, Violation};
use crate::explore::Step;
use crate::moves::{Move, apply, moves};
use crate::world::World;

/// The shortest violation that `walks` walks of at most `length` moves came to.
pub fn walk(from: &World, rules: &Rules, walks: u64, length: usize, seed: u64) -> Option<(Violation, Vec<Step>)> {
    let mut random = Random(seed.wrapping_mul(2).wrapping_add(1));
    let mut best: Option<(Violation, Vec<Step>)> = None;
    let mut length = length;
    for _ in 0..walks {
        if let Some(found) = one(from, rules, length, &mut random) {
            length = found.1.len() - 1;
            best = Some(found);
        }
    }
    best
}

fn one(from: &World, rules: &Rules, length: usize, random: &mut Random) -> Option<(Violation, Vec<Step>)> {
    let mut world = from.clone();
    let mut steps = vec![];
    // Faults come early in some walks and late in others.
    let rarity = 1 + random.below(60);
    for _ in 0..length {
        let all = moves(&world, rules);
        let faulty = random.below(rarity) == 0;
        let some: Vec<_> = all.iter().filter(|which| matches!(which, Move::Fault(_)) == faulty).collect();
        let pick = if some.is_empty() { &all[..] } else { &some.into_iter().copied().collect::<Vec<_>>()[..] };
        let what = *pick.get(random.below(pick.len()))?;
        steps.push(Step { what, before: world.clone() });
        match apply(&world, what, rules) {
            Ok(next) => world = next,
            Err((_, violation)) => return Some((violation, steps)),
        }
    }
    None
}

/// A small generator, the same in every run of one seed.
pub struct Random(pub u64);

impl Random {
    /// Any number below this.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % limit.max(1)
    }
}
