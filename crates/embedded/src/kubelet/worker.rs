//! The life of one pod: waits for what it needs, runs its process, restarts it, ends it.
//!
//! Never: two pods on one volume, a process left behind when the pod's object goes, or a status written that says nothing
//! new.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodStatus};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::sync::watch;

use super::container::{Attention, Running, Start};
use super::context::Context;
use super::environment::{self, Addresses, Mounts, Unresolved};
use super::status::{self, Exit, MainContainer, Observation};
use super::volumes::{self, Source};
use super::{binary, image};
use crate::proc::{self, Scope};

/// First and longest pause before a container that ended is started again. Shorter than a kubelet's ten seconds to five
/// minutes: here nobody else's work is disturbed by a restart, and somebody is watching.
const SHORTEST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A container that ran this long has proven itself: the pauses begin anew.
const PROVEN_AFTER: Duration = Duration::from_secs(60);
/// How often something that no object's change announces is looked at again: an installed PostgreSQL, a failed write.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// What a container has from the request to end until it is killed, also where somebody deletes its pod without any grace: a kubelet
/// shortens it to one second, and no further.
const LEAST_GRACE: Duration = Duration::from_secs(1);

/// How much a kubelet keeps of what a container says at its end.
const LAST_WORDS: u64 = 4096;

/// What somebody who starts `up` says to all its processes: what to log, where PostgreSQL is.
const PASSED_ON: [&str; 2] = [bellwether_runtime::telemetry::FILTER, bellwether_postgres::installation::OVERRIDE];

/// What becomes of the pod, as last heard.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// It shall run, with this object (which may have a deletion timestamp).
    Pod(Arc<Pod>),
    /// Its object is gone.
    Gone,
    /// The home stops; the object stays.
    Stopped {
        /// Don't wait for the processes to end by themselves.
        now: bool,
    },
}

/// One pod.
pub struct Worker {
    context: Arc<Context>,
    pod: Arc<Pod>,
    wanted: watch::Receiver<Wanted>,
    seen: Observation,
    written: PodStatus,
    unwritten: bool,
    running: Option<Running>,
    volumes: BTreeMap<String, PathBuf>,
    pause: Duration,
}

impl Worker {
    /// A worker for a pod that was placed on a node.
    pub fn new(context: Arc<Context>, pod: Arc<Pod>, wanted: watch::Receiver<Wanted>) -> Self {
        let written = pod.status.clone().unwrap_or_default();
        let before = written.container_statuses.as_ref().and_then(|all| all.first());
        // A pod that ran under an earlier `up` was restarted by it, as by a reboot of its node.
        let ran = before.is_some_and(|status| status.started == Some(true));
        let seen = Observation {
            addresses: None,
            start_time: written.start_time.as_ref().map_or_else(Timestamp::now, |time| time.0),
            initialized: false,
            container: MainContainer::Waiting { reason: "ContainerCreating", message: None },
            restarts: before.map_or(0, |status| status.restart_count) + i32::from(ran),
            last_exit: None,
        };
        let (running, volumes) = (None, BTreeMap::new());
        Self { context, pod, wanted, seen, written, unwritten: false, running, volumes, pause: SHORTEST_PAUSE }
    }

    /// Runs the pod until it is gone or the home stops.
    pub async fn run(mut self) {
        let mut wanted = self.wanted.clone();
        let end = wanted.wait_for(|wanted| match wanted {
            Wanted::Pod(pod) => pod.metadata.deletion_timestamp.is_some(),
            Wanted::Gone | Wanted::Stopped { .. } => true,
        });
        tokio::select! {
            biased;
            _ = end => {}
            () = self.live() => {}
        }
        self.end().await;
    }

    async fn live(&mut self) {
        loop {
            let Some(start) = self.prepare().await else { continue };
            self.seen.initialized = true;
            if let Err(error) = self.start(start).await {
                self.wait("RunContainerError", error.to_string()).await;
                self.rest().await;
                continue;
            }
            let mut exit = self.attend().await;
            proc::kill_all(&self.scope()).await;
            exit.message = self.last_words();
            if self.is_over(&exit) {
                self.seen.container = MainContainer::Ended(exit);
                self.publish().await;
                return std::future::pending().await;
            }
            let (code, ran) = (exit.code, exit.finished.duration_since(exit.started));
            if ran.unsigned_abs() > PROVEN_AFTER {
                self.pause = SHORTEST_PAUSE;
            }
            self.seen.last_exit = Some(exit);
            self.wait("CrashLoopBackOff", format!("back-off {:?} restarting after exit code {code}", self.pause)).await;
            self.rest().await;
            self.seen.restarts += 1;
        }
    }

    /// What the container left at its `terminationMessagePath`, as much of it as a kubelet keeps.
    fn last_words(&self) -> Option<String> {
        let container = self.container().ok()?;
        let path = container.termination_message_path.as_deref()?;
        // One that is in no volume would be this machine's.
        let local = Some(Mounts::of(container, &self.volumes).localise(path)).filter(|local| local != path)?;
        let file = std::fs::File::open(local).ok()?;
        let mut words = vec![];
        file.take(LAST_WORDS).read_to_end(&mut words).ok()?;
        Some(String::from_utf8_lossy(&words).into_owned()).filter(|words| !words.is_empty())
    }

    fn is_over(&self, exit: &Exit) -> bool {
        match self.pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()) {
            Some("Never") => true,
            Some("OnFailure") => exit.code == 0,
            _ => false,
        }
    }

    async fn rest(&mut self) {
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    /// Everything that the container's process needs, or nothing after having waited for a change.
    async fn prepare(&mut self) -> Option<Start> {
        let mut changes = self.context.changes();
        match self.try_prepare() {
            Ok(start) => Some(start),
            Err(Obstacle { reason, message }) => {
                self.wait(reason, message).await;
                tokio::select! {
                    () = changes.any() => {}
                    () = tokio::time::sleep(LOOK_AGAIN) => {}
                }
                None
            }
        }
    }

    fn try_prepare(&mut self) -> Result<Start, Obstacle> {
        let container = self.container()?.clone();
        let addresses = self.addresses()?;
        image::check(&container).map_err(|message| Obstacle { reason: image::REASON, message })?;
        self.provide_volumes(&addresses)?;
        let mounts = Mounts::of(&container, &self.volumes);
        let command = environment::command(&container, &mounts);
        let [program, ..] = command.as_slice() else { return Err(not_ours(&container)) };
        if !self.volumes.values().any(|volume| std::path::Path::new(program).starts_with(volume)) {
            return Err(not_ours(&container));
        }
        let lookup = self.context.lookup(&self.pod);
        let mut environment = environment::environment(&self.pod, &container, &mounts, &addresses, &lookup)?;
        environment.insert("KUBECONFIG".to_owned(), self.kubeconfig()?);
        // A container's /tmp is its own; programs find ours by this.
        if let Some(own) = mounts.directory("/tmp") {
            environment.insert("TMPDIR".to_owned(), own.to_string_lossy().into_owned());
        }
        environment.extend(PASSED_ON.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?))));
        Ok(Start { container, command, environment, address: addresses.pod })
    }

    fn container(&self) -> Result<&Container, Obstacle> {
        let containers = self.pod.spec.as_ref().map_or(&[][..], |spec| &spec.containers);
        match containers {
            [container] => Ok(container),
            _ => Err(Obstacle::create("`bellwether up` runs pods with exactly one container".to_owned())),
        }
    }

    fn addresses(&mut self) -> Result<Addresses, Obstacle> {
        if let Some(addresses) = &self.seen.addresses {
            return Ok(addresses.clone());
        }
        let before = self.written.pod_ip.as_ref().and_then(|ip| ip.parse().ok());
        let pod = self.context.pod_address(&self.uid(), before);
        let pod = pod.ok_or_else(|| Obstacle::create("no free loopback address for this pod".to_owned()))?;
        let node = self.pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        let addresses = Addresses { pod: pod.to_string(), host: self.context.node_address(&node).to_string() };
        Ok(self.seen.addresses.insert(addresses).clone())
    }

    fn provide_volumes(&mut self, addresses: &Addresses) -> Result<(), Obstacle> {
        let specs = self.pod.spec.as_ref().and_then(|spec| spec.volumes.clone()).unwrap_or_default();
        let lookup = self.context.lookup(&self.pod);
        let sources: Result<Vec<_>, Unresolved> = specs
            .iter()
            .map(|spec| Ok((spec.name.clone(), volumes::source(spec, &self.pod, addresses, &lookup)?)))
            .collect();
        let sources = sources?;
        self.acquire_claims(&sources)?;
        volumes::create_directory(&self.directory(), &self.context.user)
            .map_err(|error| Obstacle::create(format!("the pod's directory: {error}")))?;
        for (name, source) in sources {
            let directory = match &source {
                Source::Claim(claim) => self.context.claim_directory(&self.pod, claim)?,
                Source::Empty | Source::Files(_) => self.directory().join(&name),
            };
            let provided = match &source {
                Source::Claim(_) => Ok(()),
                Source::Empty => volumes::create_directory(&directory, &self.context.user),
                Source::Files(files) => volumes::write_files(&directory, files, &self.context.user).map(drop),
            };
            provided.map_err(|error| Obstacle::create(format!("volume {name:?}: {error}")))?;
            self.volumes.insert(name, directory);
        }
        self.initialise()
    }

    fn acquire_claims(&self, sources: &[(String, Source)]) -> Result<(), Obstacle> {
        let names = sources.iter().filter_map(|(_, source)| match source {
            Source::Claim(name) => Some(name),
            Source::Empty | Source::Files(_) => None,
        });
        let uids: Result<Vec<String>, Unresolved> = names.map(|name| self.context.claim_uid(&self.pod, name)).collect();
        self.context.claims.acquire(&self.uid(), &uids?).map_err(|other| Obstacle {
            reason: "ContainerCreating",
            message: format!("its volume is still used by the pod with UID {other}"),
        })
    }

    /// Plays the init container that brings our binary into the pod.
    fn initialise(&self) -> Result<(), Obstacle> {
        for container in self.pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten()) {
            if container.name != bellwether_core::contract::INIT_CONTAINER {
                return Err(not_ours(container));
            }
            let mounts = Mounts::of(container, &self.volumes);
            let Some(directory) = mounts.directory(bellwether_core::contract::path::BIN) else { continue };
            binary::link(&self.context.binary, directory)
                .map_err(|error| Obstacle::create(format!("copying the agent's binary: {error}")))?;
        }
        Ok(())
    }

    fn kubeconfig(&self) -> Result<String, Obstacle> {
        let account = self.pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone());
        let namespace = self.pod.namespace().unwrap_or_default();
        let text = (self.context.credentials)(&namespace, account.as_deref().unwrap_or("default"));
        let path = self.directory().join("kubeconfig");
        text.and_then(|text| {
            crate::directory::write_private(&path, text.as_bytes())?;
            volumes::give(&path, &self.context.user)
        })
        .map_err(|error| Obstacle::create(format!("credentials for the service account: {error}")))?;
        Ok(path.to_string_lossy().into_owned())
    }

    async fn start(&mut self, start: Start) -> std::io::Result<()> {
        let running = Running::start(&self.context, &self.pod, start).await?;
        self.seen.container = MainContainer::Running { since: running.since, started: false, ready: false };
        self.running = Some(running);
        self.publish().await;
        Ok(())
    }

    /// Watches over the process until it has ended.
    async fn attend(&mut self) -> Exit {
        let mut changes = self.context.changes();
        loop {
            let Some(running) = &mut self.running else { std::future::pending().await };
            let unwritten = self.unwritten;
            let attention = tokio::select! {
                attention = running.attention() => attention,
                () = changes.any() => Attention::ObjectsChanged,
                () = tokio::time::sleep(LOOK_AGAIN), if unwritten => Attention::ObjectsChanged,
            };
            match attention {
                Attention::Exited(exit) => {
                    self.running = None;
                    return exit;
                }
                Attention::ObjectsChanged => self.refresh(),
                Attention::Started | Attention::Ready(_) => self.note(&attention),
                Attention::Unhealthy(why) => {
                    tracing::warn!(pod = self.pod.name_any(), why, "restarting an unhealthy container");
                    let (scope, grace) = (self.scope(), self.grace());
                    if let Some(running) = &mut self.running {
                        running.stop(&scope, grace).await;
                    }
                }
            }
            self.publish().await;
        }
    }

    fn note(&mut self, attention: &Attention) {
        if let MainContainer::Running { started, ready, .. } = &mut self.seen.container {
            match attention {
                Attention::Ready(now) => *ready = *now,
                _ => *started = true,
            }
        }
    }

    /// Brings files up to date with their objects. What can't be resolved now keeps its last content, as in a kubelet.
    fn refresh(&self) {
        let Some(addresses) = &self.seen.addresses else { return };
        let lookup = self.context.lookup(&self.pod);
        for spec in self.pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            let Ok(Source::Files(files)) = volumes::source(spec, &self.pod, addresses, &lookup) else { continue };
            if let Err(error) = volumes::write_files(&self.directory().join(&spec.name), &files, &self.context.user) {
                tracing::warn!(pod = self.pod.name_any(), volume = spec.name, %error, "volume not refreshed");
            }
        }
    }

    async fn wait(&mut self, reason: &'static str, message: String) {
        self.seen.container = MainContainer::Waiting { reason, message: Some(message) };
        self.publish().await;
    }

    /// Writes the status if it says something new.
    pub async fn publish(&mut self) {
        let status = status::of_running(&self.pod, &self.seen, &self.written, Timestamp::now());
        if status == self.written {
            self.unwritten = false;
            return;
        }
        let patch = json!({"metadata": {"uid": self.pod.uid()}, "status": status});
        let written =
            self.api().patch_status(&self.pod.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await;
        self.unwritten = written.is_err();
        match written {
            Ok(_) => self.written = status,
            Err(error) => tracing::debug!(pod = self.pod.name_any(), %error, "status not written"),
        }
    }

    async fn end(mut self) {
        let wanted = self.wanted.borrow().clone();
        let grace = match &wanted {
            Wanted::Pod(pod) => {
                let seconds = pod.metadata.deletion_grace_period_seconds.unwrap_or(30);
                Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).max(LEAST_GRACE)
            }
            Wanted::Gone => LEAST_GRACE,
            Wanted::Stopped { now: true } => Duration::ZERO,
            Wanted::Stopped { now: false } => self.grace(),
        };
        let (scope, mut wanted_later) = (self.scope(), self.wanted.clone());
        if let Some(mut running) = self.running.take() {
            tokio::select! {
                () = running.stop(&scope, grace) => {}
                () = hurried(&mut wanted_later) => {}
            }
        }
        proc::kill_all(&scope).await;
        self.context.claims.release(&self.uid());
        if let Err(error) = std::fs::remove_dir_all(self.directory()) {
            tracing::debug!(pod = self.pod.name_any(), %error, "pod directory not removed");
        }
        if !matches!(wanted, Wanted::Stopped { .. }) {
            remove_object(&self.api(), &self.pod).await;
        }
        self.context.release_address(&self.uid());
    }

    fn grace(&self) -> Duration {
        let seconds = self.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(30);
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    }
    fn uid(&self) -> String {
        self.pod.uid().unwrap_or_default()
    }
    fn directory(&self) -> PathBuf {
        self.context.pod_directory(&self.uid())
    }
    fn scope(&self) -> Scope {
        let volumes = self.volumes.values().cloned().collect();
        Scope::Pod { home: self.context.home.clone(), uid: self.uid(), volumes }
    }
    fn api(&self) -> Api<Pod> {
        Api::namespaced(self.context.client.clone(), &self.pod.namespace().unwrap_or_default())
    }
}

/// Resolves when the home, already stopping, is told to hurry, or the least grace after the object was removed by force.
async fn hurried(wanted: &mut watch::Receiver<Wanted>) {
    let is_hurry = |wanted: &Wanted| matches!(wanted, Wanted::Stopped { now: true } | Wanted::Gone);
    match wanted.wait_for(is_hurry).await.map(|wanted| matches!(*wanted, Wanted::Gone)) {
        Ok(true) => tokio::time::sleep(LEAST_GRACE).await,
        Ok(false) => {}
        Err(_) => std::future::pending().await,
    }
}

/// Removes a pod's object for good, this very pod's only.
pub async fn remove_object(api: &Api<Pod>, pod: &Pod) {
    let preconditions = Some(Preconditions { uid: pod.uid(), resource_version: None });
    let parameters = DeleteParams { grace_period_seconds: Some(0), preconditions, ..DeleteParams::default() };
    match api.delete(&pod.name_any(), &parameters).await {
        Ok(_) => {}
        Err(kube::Error::Api(refusal)) if refusal.code == 404 || refusal.code == 409 => {}
        Err(error) => tracing::warn!(pod = pod.name_any(), %error, "the pod's object could not be removed"),
    }
}

/// Why a container can't be started now: as its status says it.
struct Obstacle {
    reason: &'static str,
    message: String,
}

impl Obstacle {
    fn create(message: String) -> Self {
        Self { reason: "CreateContainerError", message }
    }
}

impl From<Unresolved> for Obstacle {
    fn from(unresolved: Unresolved) -> Self {
        let reason = match unresolved {
            Unresolved::Object { .. } | Unresolved::Claim { .. } => "ContainerCreating",
            Unresolved::Key { .. } | Unresolved::Unsupported { .. } => "CreateContainerConfigError",
        };
        Self { reason, message: unresolved.to_string() }
    }
}

fn not_ours(container: &Container) -> Obstacle {
    Obstacle::create(format!(
        "`bellwether up` has no container images: it runs Bellwether's own agent and nothing else, and container {:?} \
         is something else",
        container.name
    ))
}
