//! What the plan does in the standard cases, as sentences.

mod always;
mod endpoints;
mod fence;
mod life;
mod mutants;
mod rollout;
mod scale;
mod volumes;
mod words;
