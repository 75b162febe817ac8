//! What the plan does in the standard cases, as sentences.

mod always;
mod life;
mod volumes;
mod words;
