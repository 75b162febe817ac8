//! The operator against the in-memory API server, over TLS, as a service account with exactly the role that we ship. Kubelets and
//! agents are played by hand.

mod backup;
mod leader;
mod life;
mod listener;
mod overload;
mod scale;
mod stage;
