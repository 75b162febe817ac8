//! What the plan does in the standard cases, as sentences.

mod always;
mod fence;
mod life;
mod volumes;
mod words;
