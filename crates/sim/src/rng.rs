//! Randomness that is a function of the seed: SplitMix64, written out so that a seed means the same run in every release.

/// A stream of numbers.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        let mut rng = Self(seed ^ 0x6265_6c6c_7765_7468);
        // Neighbouring seeds differ in one bit: a few steps spread it.
        rng.draw();
        rng.draw();
        rng
    }

    /// A stream of its own, so that one consumer's appetite doesn't change what another draws.
    pub fn fork(&mut self) -> Self {
        Self(self.draw())
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One of `0..n`; 0 where there is no choice.
    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { ((u128::from(self.draw()) * u128::from(n)) >> 64) as u64 }
    }

    /// One of `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True so many times in a thousand.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    /// One of them, if there is any.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        let at = usize::try_from(self.below(from.len() as u64)).unwrap_or(0);
        from.get(at).copied()
    }
}
