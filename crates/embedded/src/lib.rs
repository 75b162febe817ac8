//! Bellwether on one machine without Kubernetes: the in-memory API over HTTPS, the operator, and a stand-in for kubelets and
//! kube-proxy that runs each Pod as a local process on a loopback address of its own.

pub mod connection;
pub mod directory;
pub mod disruption;
pub mod home;
pub mod install;
pub mod kubelet;
pub mod manifest;
pub mod mirror;
pub mod network;
mod pod_logs;
mod priority;
pub mod proc;
pub mod range;
pub mod run_as;
pub mod spawn;
pub mod trial;
pub mod view;
