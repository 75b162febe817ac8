//! 128 bits of hash of a part of a state, the same in every run.

use std::hash::{Hash, Hasher};

/// Two lanes of multiply-and-fold over words.
#[derive(Clone, Copy)]
pub struct Fingerprint(u64, u64);

impl Default for Fingerprint {
    fn default() -> Self {
        Self(0x9E37_79B9_7F4A_7C15, 0xC2B2_AE3D_27D4_EB4F)
    }
}

fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}

impl Fingerprint {
    fn word(&mut self, word: u64) {
        self.0 = fold(self.0 ^ word, 0xA076_1D64_78BD_642F).wrapping_add(0x8EBC_6AF0_9C88_C6E3);
        self.1 = fold(self.1.rotate_left(29) ^ word, 0xE703_7ED1_A0B4_28DB).wrapping_add(self.0);
    }
    /// All 128 bits.
    pub fn finish128(&self) -> u128 {
        let a = fold(self.0, self.1 ^ 0x5899_65CC_7537_4CC3);
        let b = fold(self.1, self.0.rotate_left(32) ^ 0x1D8E_4E27_C47D_124F);
        u128::from(a ^ self.1) << 64 | u128::from(b ^ self.0)
    }
}

impl Hasher for Fingerprint {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(u64::from_le_bytes(word) ^ (chunk.len() as u64) << 56);
        }
    }
    fn write_u8(&mut self, n: u8) {
        self.word(u64::from(n));
    }
    fn write_u32(&mut self, n: u32) {
        self.word(u64::from(n));
    }
    fn write_u64(&mut self, n: u64) {
        self.word(n);
    }
    fn write_u128(&mut self, n: u128) {
        self.word(n as u64);
        self.word((n >> 64) as u64);
    }
    fn write_usize(&mut self, n: usize) {
        self.word(n as u64);
    }
    fn write_isize(&mut self, n: isize) {
        self.word(n as u64);
    }
    fn finish(&self) -> u64 {
        self.finish128() as u64
    }
}

/// The fingerprint of a value.
pub fn fingerprint<T: Hash>(value: &T) -> u128 {
    let mut hash = Fingerprint::default();
    value.hash(&mut hash);
    hash.finish128()
}

/// Passes a fingerprint through: it is hash enough.
#[derive(Default)]
pub struct Through(u64);

impl Hasher for Through {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 = self.0.rotate_left(5) ^ u64::from_le_bytes(word);
        }
    }
    fn write_u128(&mut self, n: u128) {
        self.0 = n as u64;
    }
    fn finish(&self) -> u64 {
        self.0
    }
}
