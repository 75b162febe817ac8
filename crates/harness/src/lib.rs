//! A real three-node Kubernetes on one machine, and the faults that tests inject into it.
//!
//! Real programs throughout: etcd, kube-apiserver, controller-manager, scheduler, CoreDNS, and for each node containerd,
//! kubelet and kube-proxy. Each node, and the control plane, has a network namespace of its own; the host only gets one
//! link into the cluster. That is why `down` can leave nothing behind: links, routes and iptables rules go with their
//! namespace, processes are found by cgroup, mounts and files by one directory.
//!
//! Never: a change to a network interface, an iptables rule or a process that the harness did not create.

pub mod cgroup;
pub mod command;
pub mod control_plane;
pub mod down;
pub mod error;
pub mod fault;
pub mod images;
pub mod inventory;
pub mod kubectl;
pub mod layout;
pub mod network;
pub mod node;
pub mod pki;
pub mod process;
pub mod programs;
pub mod provisioner;
pub mod up;
pub mod volume;

pub use error::Error;
pub use layout::{Layout, Node};
