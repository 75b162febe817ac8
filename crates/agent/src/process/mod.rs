//! Processes: who descends from whom, and who reaps whom.

pub mod reaper;
pub mod tree;
