//! What happened, as lines for people, kept only when somebody wants them: a failing seed is run again for its lines.

use crate::queue::Time;

/// Lines, and a number that tells two runs apart.
#[derive(Clone, Debug)]
pub struct Trace {
    lines: Option<Vec<String>>,
    digest: u64,
}

impl Trace {
    /// Keeps lines, or not.
    pub fn new(keep: bool) -> Self {
        Self { lines: keep.then(Vec::new), digest: 0xcbf2_9ce4_8422_2325 }
    }

    /// Whether lines are kept; where they are not, none should be made.
    pub fn keeps(&self) -> bool {
        self.lines.is_some()
    }

    /// Keeps a line.
    pub fn keep(&mut self, now: Time, line: &str) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>4}.{:03} {line}", now / 1_000, now % 1_000));
        }
    }

    /// Mixes what happened into the number that tells two runs apart.
    pub fn mix(&mut self, value: u64) {
        self.digest = (self.digest ^ value).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    }

    /// That number.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// The lines, for good.
    pub fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }
}
