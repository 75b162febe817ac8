//! Processes: who descends from whom, who does what, and who reaps whom.

pub mod doing;
pub mod reaper;
pub mod tree;
