//! What the plan does in the standard cases, as sentences.

mod always;
mod backup;
mod endpoints;
mod fence;
mod life;
mod mutants;
mod restore;
mod retained;
mod rollout;
mod scale;
mod schedule;
mod verify;
mod volumes;
mod words;
