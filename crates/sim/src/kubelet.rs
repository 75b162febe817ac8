//! Scheduler, kubelets and the attachment of volumes, as far as an operator notices them.
//!
//! Assumed of Kubernetes: a pod's name is unique, its object goes only when its containers have ended (nobody deletes by force), its UID
//! never comes back; no two pods run on one volume; a claim that a pod uses stays until that pod is gone; a volume stays on its
//! machine and survives its pod.

use std::rc::Rc;
use std::sync::Arc;

use bellwether_core::contract::InstanceConfig;
use bellwether_core::election::{Event, MemberId, Phase, Plant};
use bellwether_core::object::Kind;
use serde_json::{Value, json};

use crate::api::{CLUSTER, NAMESPACE};
use crate::world::{Instance, Volume, What, Who, World};
use bellwether_apiserver::request::Subresource;

/// When the control plane says of a machine's pods that they are not ready: the node's grace period.
const NODE_GRACE: u64 = 40_000;
/// For how long a leader that is asked to stop tries to hand over, as the agent does.
const HAND_OVER: u64 = 20_000;
/// How soon it is noticed that it has.
const LOOK_AGAIN: u64 = 50;

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

impl World {
    /// What the operator tells agents.
    pub fn instance_config(&self) -> Option<Rc<InstanceConfig>> {
        let map = self.api.get(Kind::ConfigMap, &self.api.names.config())?;
        let mut told = self.api.told.borrow_mut();
        if let Some((_, config)) = told.as_ref().filter(|(from, _)| Arc::ptr_eq(from, &map)) {
            return config.clone();
        }
        let text = map["data"][bellwether_api::names::CONFIG_KEY].as_str();
        let config = text.and_then(|text| serde_json::from_str(text).ok()).map(Rc::new);
        *told = Some((map, config.clone()));
        config
    }

    /// A pod was created, changed, or is gone.
    pub fn pod_changed(&mut self, pod: &Value, gone: bool) {
        let uid = text(pod, "uid");
        let known = self.instances.iter().position(|instance| !instance.gone && instance.uid == uid);
        if let Some(who) = known.and_then(|instance| self.present(instance)) {
            self.report_seen(who, pod["metadata"]["annotations"][bellwether_api::labels::REPORT].as_str());
            self.configuration_seen(who);
        }
        match known {
            Some(instance) if gone => self.pod_gone(instance),
            Some(instance) if !pod["metadata"]["deletionTimestamp"].is_null() => self.terminate(instance),
            None if !gone && pod["spec"]["nodeName"].is_null() => {
                self.within(20, 200, What::Bind(text(pod, "name").to_owned()));
            }
            None if !gone => self.accept_pod(pod),
            _ => {}
        }
    }

    /// The scheduler places a pod: where its volume is, or where the fewest are. One whose claim is not there waits for it.
    pub fn bind(&mut self, name: &str) {
        let Some(pod) = self.api.get(Kind::Pod, name).filter(|pod| pod["spec"]["nodeName"].is_null()) else { return };
        let Some(volume) = self.volume_of(name) else { return self.after(1_000, What::Bind(name.to_owned())) };
        let volume = self.volumes[volume].machine;
        let load = |machine: usize| self.instances.iter().filter(|i| !i.gone && i.machine == machine).count();
        let up = (0..self.machines.len()).filter(|machine| self.machines[*machine].up);
        let Some(machine) = volume.or_else(|| up.min_by_key(|machine| (load(*machine), *machine))) else {
            return self.after(1_000, What::Bind(name.to_owned()));
        };
        let target = self.api.target(Kind::Pod, name);
        let patch = json!({"metadata": {"uid": text(&pod, "uid")}, "spec": {"nodeName": format!("node-{machine}")}});
        self.patch_by_others(&target, &patch);
    }

    /// The volume behind the claim of an instance.
    fn volume_of(&self, instance: &str) -> Option<usize> {
        let claim = self.api.get(Kind::PersistentVolumeClaim, &self.api.names.data_volume(instance))?;
        let uid = text(&claim, "uid");
        self.volumes.iter().position(|volume| volume.claim == uid)
    }

    /// A kubelet takes over a pod that was placed on its machine.
    fn accept_pod(&mut self, pod: &Value) {
        let name = text(pod, "name").to_owned();
        let Some(born) = MemberId::from_uid(text(pod, "uid")) else { return };
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        let machine = node.trim_start_matches("node-").parse().unwrap_or(0);
        let Some(volume) = self.volume_of(&name) else { return };
        self.volumes[volume].machine = Some(machine);
        let id = self.identity(volume, &name, born);
        let instance = self.instances.len();
        self.instances.push(Instance {
            address: format!("10.0.{}.{}", instance / 250, instance % 250 + 1),
            uid: text(pod, "uid").to_owned(),
            name,
            id,
            machine,
            volume,
            container: None,
            lives: 0,
            terminating: false,
            gone: false,
            said_ready: false,
        });
        self.places.insert(id, instance);
        self.within(200, 1_500, What::StartContainer(instance));
    }

    /// Whoever runs on a volume is the instance that first filled it: its identity is kept there.
    fn identity(&mut self, volume: usize, name: &str, born: MemberId) -> MemberId {
        let namesake = self.instances.iter().find(|earlier| earlier.name == name).map(|earlier| earlier.id);
        match namesake.filter(|_| self.settings.planted == Some(Plant::IdentityByName)) {
            Some(namesake) => namesake,
            None => *self.volumes[volume].identity.get_or_insert(born),
        }
    }

    /// A kubelet starts the pod's container, for the first time or again.
    pub fn start_container(&mut self, instance: usize) {
        let Instance { gone, terminating, machine, ref container, .. } = self.instances[instance];
        if gone || container.is_some() || !self.machines[machine].up {
            return;
        }
        if terminating {
            return self.finish_pod(instance);
        }
        self.start_agent(instance);
        let status = json!({"status": {"phase": "Running", "podIP": self.instances[instance].address, "podIPs": [{"ip": self.instances[instance].address}]}});
        self.patch_status(instance, &status);
    }

    fn patch_status(&mut self, instance: usize, status: &Value) {
        let mut target = self.api.target(Kind::Pod, &self.instances[instance].name);
        let same =
            self.api.store.get(&target).is_ok_and(|pod| text(pod.plain(), "uid") == self.instances[instance].uid);
        if same {
            target.subresource = Subresource::Status;
            self.patch_by_others(&target, status);
        }
    }

    /// A container ended without being asked to; its kubelet starts it again.
    pub fn container_ended(&mut self, instance: usize) {
        self.within(300, 3_000, What::StartContainer(instance));
        self.within(100, 1_000, What::Probe(instance));
    }

    /// The kubelet probes, and says what it found if that changed.
    pub fn probe(&mut self, instance: usize) {
        let machine = self.instances[instance].machine;
        if let Some(container) = self.instances[instance].container.as_mut() {
            container.probe_due = false;
        }
        if self.instances[instance].gone || !self.machines[machine].up {
            return;
        }
        if self.api.down > 0 || !self.net.connected(machine, self.net.api()) {
            return self.after(1_000, What::Probe(instance));
        }
        let ready = self.present(instance).is_some_and(|who| self.answers(who));
        self.say_ready(instance, ready);
        if self.present(instance).is_some_and(|who| self.agent_frozen(who).is_some()) {
            self.after(2_000, What::Probe(instance));
        }
    }

    fn answers(&self, who: Who) -> bool {
        use crate::postgres::Pg::{Primary, Standby};
        let frozen = self.agent_frozen(who).is_some() || self.postgres_frozen(who).is_some();
        !frozen && self.container(who).is_some_and(|container| matches!(container.server.state, Primary | Standby))
    }

    fn say_ready(&mut self, instance: usize, ready: bool) {
        if self.instances[instance].said_ready == ready {
            return;
        }
        self.instances[instance].said_ready = ready;
        let word = if ready { "True" } else { "False" };
        self.patch_status(instance, &json!({"status": {"conditions": [{"type": "Ready", "status": word}]}}));
    }

    /// The pod is being deleted: its container is asked to stop.
    fn terminate(&mut self, instance: usize) {
        if std::mem::replace(&mut self.instances[instance].terminating, true) {
            return;
        }
        self.note(|world| format!("{} is being deleted", world.instances[instance].name));
        match self.present(instance) {
            Some(who) => self.within(5, 100, What::Stop(who)),
            None if self.machines[self.instances[instance].machine].up => self.finish_pod(instance),
            None => {}
        }
    }

    /// A container that was asked to stop: a leader hands over first, if somebody takes it, and ends as soon as it has.
    pub fn stop_container(&mut self, who: Who) {
        if let Some(until) = self.agent_frozen(who) {
            return self.queue.push(until, What::Stop(who));
        }
        let now = self.now;
        let Some(container) = self.container_mut(who) else { return };
        let asked = container.stopping.is_some();
        let until = *container.stopping.get_or_insert(now + HAND_OVER);
        let leads = matches!(container.state.phase(), Phase::Leader | Phase::HandingOver);
        if leads && !asked {
            self.happen(who, Event::Switchover { target: None });
        }
        if leads && now < until {
            return self.after(LOOK_AGAIN, What::Stop(who));
        }
        self.cut(who);
        self.kill(who);
        self.instances[who.instance].container = None;
        self.note(|world| format!("{} has stopped", world.instances[who.instance].name));
        self.finish_pod(who.instance);
    }

    /// The kubelet's last word.
    fn finish_pod(&mut self, instance: usize) {
        let machine = self.instances[instance].machine;
        if self.api.down > 0 || !self.net.connected(machine, self.net.api()) {
            return self.after(1_000, What::StartContainer(instance));
        }
        let name = self.instances[instance].name.clone();
        let same = self.api.get(Kind::Pod, &name).is_some_and(|pod| text(&pod, "uid") == self.instances[instance].uid);
        if same {
            self.delete_by_others(Kind::Pod, &name, Some(0));
        }
    }

    fn pod_gone(&mut self, instance: usize) {
        self.note(|world| format!("{} is gone", world.instances[instance].name));
        if let Some(who) = self.present(instance) {
            self.cut(who);
            self.kill(who);
            self.instances[instance].container = None;
        }
        self.instances[instance].gone = true;
        let id = self.instances[instance].id;
        self.places.remove(&id);
        if self.ghost.doomed.as_ref() == Some(&self.volumes[self.instances[instance].volume].claim) {
            self.after(0, What::LoseVolume(instance));
        }
    }

    /// A claim was made, or is gone with what is on it.
    pub fn claim_changed(&mut self, claim: &Value, gone: bool) {
        let uid = text(claim, "uid");
        let known = self.volumes.iter().position(|volume| volume.claim == uid);
        match known {
            None if !gone => self.volumes.push(Volume { claim: uid.to_owned(), ..Volume::default() }),
            Some(volume) if gone => {
                self.judge_volume_removal(volume, text(claim, "name"));
                self.volumes[volume].data = None;
            }
            _ => {}
        }
    }

    /// A machine loses power.
    pub fn power_off(&mut self, machine: usize, outage: u64) {
        self.machines[machine].up = false;
        self.outages[machine] += 1;
        for instance in 0..self.instances.len() {
            if self.instances[instance].machine == machine
                && let Some(who) = self.present(instance)
            {
                self.cut(who);
                self.kill(who);
                self.instances[instance].container = None;
            }
        }
        self.after(outage, What::PowerOn(machine));
        let outages = self.outages[machine];
        self.after(NODE_GRACE, What::NodeLost(machine, outages));
    }

    /// A machine comes back, and its kubelet starts what was on it.
    pub fn power_on(&mut self, machine: usize) {
        self.machines[machine].up = true;
        for instance in 0..self.instances.len() {
            if self.instances[instance].machine == machine && !self.instances[instance].gone {
                self.within(500, 4_000, What::StartContainer(instance));
                self.within(500, 1_500, What::Probe(instance));
            }
        }
    }

    /// The control plane has not heard of a machine for long.
    pub fn node_lost(&mut self, machine: usize, outage: u32) {
        if self.machines[machine].up || self.outages[machine] != outage {
            return;
        }
        for instance in 0..self.instances.len() {
            if self.instances[instance].machine == machine && !self.instances[instance].gone {
                self.say_ready(instance, false);
            }
        }
    }

    /// A person changes the cluster's spec.
    pub fn change_spec(&mut self, patch: &Value) {
        let target = self.api.cluster();
        self.patch_by_others(&target, patch);
    }

    /// A person creates the cluster.
    pub fn create_cluster(&mut self, spec: &Value) {
        let object = json!({
            "apiVersion": "bellwether.dev/v1", "kind": "PostgresCluster",
            "metadata": {"name": CLUSTER, "namespace": NAMESPACE}, "spec": spec,
        });
        let target = self.api.cluster();
        let write = crate::api::writer(self.timestamp(), "others");
        self.api.store.create(&target, object, &write).expect("a valid cluster");
        self.look_around();
    }
}
