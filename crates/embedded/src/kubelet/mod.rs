//! A stand-in for scheduler and kubelets: runs each Pod of the API as a process of this machine.
//!
//! Watches pods; places those that have no node, and gives each its [`worker`]. Everything here is written on change only:
//! at rest it makes no API write.

mod binary;
mod claims;
mod container;
pub mod context;
mod environment;
mod image;
pub mod logs;
pub mod nodes;
mod probe;
pub mod schedule;
mod status;
mod volumes;
mod worker;

use std::collections::BTreeMap;
use std::sync::Arc;

use bellwether_api::labels;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

pub use binary::{install, provide};
pub use claims::Claims;
use context::Context;
use worker::{Wanted, Worker};

use crate::mirror::Mirror;

/// How the home tells the kubelet to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Standbys first, then primaries, each in its own time.
    InOrder,
    /// At once.
    Now,
}

/// The kubelet's task: its stop switch, and what it reports while stopping.
pub struct Kubelet {
    /// Send here to stop it.
    pub stop: mpsc::Sender<Stop>,
    task: tokio::task::JoinHandle<()>,
}

struct PodTask {
    wanted: watch::Sender<Wanted>,
    pod: Arc<Pod>,
}

struct Loop {
    context: Arc<Context>,
    pods: Mirror<Pod>,
    nodes: Mirror<Node>,
    workers: BTreeMap<String, PodTask>,
    tasks: JoinSet<String>,
}

impl Kubelet {
    /// Starts it: every pod that exists is taken on before this returns.
    pub async fn start(context: Arc<Context>) -> Self {
        let client = context.client.clone();
        let pods = Mirror::start(Api::<Pod>::all(client.clone())).await;
        let nodes = Mirror::start(Api::<Node>::all(client)).await;
        let mut state = Loop { context, pods, nodes, workers: BTreeMap::new(), tasks: JoinSet::new() };
        state.bind_claims().await;
        state.pass().await;
        let (stop, orders) = mpsc::channel(4);
        Self { stop, task: tokio::spawn(state.run(orders)) }
    }

    /// Waits until it has stopped.
    pub async fn stopped(self) {
        let _ended = self.task.await;
    }
}

impl Loop {
    async fn run(mut self, mut orders: mpsc::Receiver<Stop>) {
        let (mut pods, mut nodes) = (self.pods.ticks(), self.nodes.ticks());
        let mut claims = self.context.volume_claims.ticks();
        self.pass().await;
        loop {
            tokio::select! {
                _ = pods.changed() => self.pass().await,
                _ = nodes.changed() => self.pass().await,
                _ = claims.changed() => {
                    self.bind_claims().await;
                    self.context.claims.sweep(&self.context.client).await;
                }
                Some(ended) = self.tasks.join_next() => {
                    if let Ok(uid) = ended {
                        self.workers.remove(&uid);
                    }
                    self.context.claims.sweep(&self.context.client).await;
                    self.pass().await;
                }
                order = orders.recv() => {
                    return self.shut_down(order.unwrap_or(Stop::Now), orders).await;
                }
            }
        }
    }

    /// Compares pods and workers.
    async fn pass(&mut self) {
        let pods = self.pods.all();
        for pod in &pods {
            let Some(uid) = pod.uid() else { continue };
            let is_placed = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
            if let Some(worker) = self.workers.get_mut(&uid) {
                worker.pod = pod.clone();
                worker.wanted.send_replace(Wanted::Pod(pod.clone()));
            } else if is_placed {
                self.take_on(uid, pod.clone()).await;
            } else if pod.metadata.deletion_timestamp.is_some() {
                worker::remove_object(&self.api(pod), pod).await;
            } else {
                self.place(pod, &pods).await;
            }
        }
        for (uid, worker) in &self.workers {
            if !pods.iter().any(|pod| pod.uid().as_ref() == Some(uid)) {
                worker.wanted.send_replace(Wanted::Gone);
            }
        }
    }

    async fn take_on(&mut self, uid: String, pod: Arc<Pod>) {
        let (wanted, receiver) = watch::channel(Wanted::Pod(pod.clone()));
        let mut worker = Worker::new(self.context.clone(), pod.clone(), receiver);
        // A pod of an earlier run says that it is ready; before anybody acts on that, it says the truth.
        worker.publish().await;
        let key = uid.clone();
        self.tasks.spawn(async move {
            worker.run().await;
            key
        });
        self.workers.insert(uid, PodTask { wanted, pod });
    }

    async fn place(&self, pod: &Pod, pods: &[Arc<Pod>]) {
        let nodes = self.nodes.all();
        let nodes: Vec<&Node> = nodes.iter().map(AsRef::as_ref).collect();
        // The copy may not show yet where we put the one before: ask for the placed ones afresh.
        let placed = match self.api(pod).list(&kube::api::ListParams::default()).await {
            Ok(list) => list.items,
            Err(_) => pods.iter().map(|pod| Pod::clone(pod)).collect(),
        };
        let others: Vec<&Pod> = placed.iter().filter(|other| other.uid() != pod.uid()).collect();
        let written = match schedule::place(pod, &nodes, &others) {
            Ok(node) => self.bind(pod, &node).await,
            Err(message) => self.refuse(pod, &message).await,
        };
        if let Err(error) = written {
            tracing::debug!(pod = pod.name_any(), %error, "not placed");
        }
    }

    async fn bind(&self, pod: &Pod, node: &str) -> Result<(), kube::Error> {
        let target = json!({"apiVersion": "v1", "kind": "Node", "name": node});
        let metadata = json!({"name": pod.name_any(), "uid": pod.uid()});
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target});
        let parameters = kube::api::PostParams::default();
        let _status: serde_json::Value =
            self.api(pod).create_subresource("binding", &pod.name_any(), &parameters, &binding).await?;
        Ok(())
    }

    async fn refuse(&self, pod: &Pod, message: &str) -> Result<(), kube::Error> {
        let previous = pod.status.clone().unwrap_or_default();
        let status = status::of_unschedulable(message, &previous, Timestamp::now());
        if previous.conditions == status.conditions {
            return Ok(());
        }
        let patch = Patch::Merge(json!({"metadata": {"uid": pod.uid()}, "status": status}));
        self.api(pod).patch_status(&pod.name_any(), &PatchParams::default(), &patch).await.map(drop)
    }

    async fn bind_claims(&self) {
        for claim in self.context.volume_claims.all() {
            if let Err(error) = self.context.claims.bind(&self.context.client, &claim).await {
                tracing::warn!(claim = claim.name_any(), %error, "volume not bound");
            }
        }
    }

    /// Standbys go before their primary, so that the primary's last WAL has somewhere to go until the end and nobody
    /// reports a lost leader.
    async fn shut_down(mut self, order: Stop, mut orders: mpsc::Receiver<Stop>) {
        let is_primary = |task: &PodTask| task.pod.labels().get(labels::ROLE).is_some_and(|role| role == "primary");
        let (primaries, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.workers).into_values().partition(is_primary);
        let mut now = order == Stop::Now;
        for group in [others, primaries] {
            for worker in &group {
                worker.wanted.send_replace(Wanted::Stopped { now });
            }
            let mut left: Vec<_> = group.iter().map(|worker| worker.wanted.clone()).collect();
            while !left.is_empty() {
                tokio::select! {
                    _ended = self.tasks.join_next() => {}
                    Some(Stop::Now) = orders.recv() => {
                        now = true;
                        left.iter().for_each(|wanted| drop(wanted.send_replace(Wanted::Stopped { now })));
                    }
                }
                left.retain(|wanted| !wanted.is_closed());
            }
        }
    }

    fn api(&self, pod: &Pod) -> Api<Pod> {
        Api::namespaced(self.context.client.clone(), &pod.namespace().unwrap_or_default())
    }
}
