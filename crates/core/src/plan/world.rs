//! A tiny world for tests: it holds objects as JSON, carries out plans, and lets agents and kubelets do their part at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use bellwether_api::labels;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Action, Effect, Plan, plan, plan_keeping};
use crate::build::{Kept, Settings};
use crate::check::check;
use crate::contract::{BackupOrder, InstanceConfig};
use crate::fact::Fact;
use crate::lease_object::{MEMBERS, SWITCHOVER, SWITCHOVER_ASKED};
use crate::object::Kind;
use crate::observed::{Listing, Observed, Raw, RawSource, observe};

pub(crate) const NAME: &str = "orders";
pub(crate) const SYSTEM: &str = "7000000000000000001";

thread_local! {
    /// Outlives every world of its thread: what was built for one must not get into the plan of another.
    static KEPT: Kept = Kept::default();
}

fn configured(config: &InstanceConfig) -> u64 {
    config.parameters.get("max_connections").map_or(100, |value| value.parse().unwrap())
}

/// Everything that exists.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub cluster: Option<Value>,
    pub objects: BTreeMap<(Kind, String), Value>,
    /// Kinds that nobody has listed yet.
    pub unseen: Vec<Kind>,
    /// The user's own Secret with the owner's password.
    pub owner_password: Fact<String>,
    /// What the cluster is to be restored from.
    pub source: RawSource,
    pub now: Timestamp,
    /// Each restart of a PostgreSQL that ran, in order: instance, and as what.
    pub restarts: Vec<(String, &'static str)>,
    /// `max_connections` that each PostgreSQL runs with, by the UID of its pod.
    connections: BTreeMap<String, u64>,
    /// … that the WAL was written with.
    written_with: u64,
    /// The instances that the primary keeps a slot for.
    slots: Vec<String>,
    /// Whether the primary lets nobody leave.
    pub stubborn: bool,
    version: u64,
}

impl World {
    /// A cluster with this spec, and nothing else.
    pub fn with(spec: Value) -> Self {
        let mut cluster = json!({
            "apiVersion": "bellwether.dev/v1", "kind": "PostgresCluster",
            "metadata": {
                "name": NAME, "namespace": "shop", "uid": "uid-1", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z",
            },
        });
        cluster["spec"] = spec;
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        Self {
            cluster: Some(cluster),
            objects: BTreeMap::new(),
            unseen: vec![],
            owner_password: Fact::Absent,
            source: RawSource::default(),
            now,
            restarts: vec![],
            connections: BTreeMap::new(),
            written_with: 0,
            slots: vec![],
            stubborn: false,
            version: 0,
        }
    }

    /// A cluster whose objects were all made: first the volume claims, then the pods on them. Nobody has done anything yet.
    pub fn made(spec: Value) -> Self {
        let mut world = Self::with(spec);
        world.step();
        world.step();
        world
    }

    /// A cluster that has come up and settled.
    pub fn settled(spec: Value) -> Self {
        let mut world = Self::with(spec);
        world.settle();
        world
    }

    /// As caches have it.
    pub fn raw(&self) -> Raw {
        let mut children = BTreeMap::new();
        for kind in Kind::ALL {
            let of_kind = self.objects.iter().filter(|((other, _), _)| *other == kind);
            let items = of_kind.map(|((_, name), value)| (name.clone(), Arc::new(value.clone()))).collect();
            children.insert(kind, Listing { complete: !self.unseen.contains(&kind), items });
        }
        let cluster = Fact::looked_up(self.cluster.clone().map(Arc::new));
        Raw { cluster, children, owner_password: self.owner_password.clone(), source: self.source.clone() }
    }

    pub fn observe(&self) -> Observed {
        observe("shop", NAME, self.raw())
    }

    pub fn plan(&self) -> Plan {
        let observed = self.observe();
        let plan = plan(&observed, self.now, &Settings::default());
        let kept = KEPT.with(|kept| plan_keeping(&observed, self.now, &Settings::default(), kept));
        assert_eq!(kept, plan, "what is kept is what would be built");
        check(&plan, &observed).unwrap();
        plan
    }

    /// Plans once and carries it out.
    pub fn step(&mut self) -> Plan {
        let plan = self.plan();
        self.apply_all(&plan);
        plan
    }

    /// Carries out a plan.
    pub fn apply_all(&mut self, plan: &Plan) {
        for action in &plan.actions {
            self.carry_out(action);
        }
        if let (Some(cluster), Some(status)) = (&mut self.cluster, &plan.status) {
            cluster["status"] = serde_json::to_value(status).unwrap();
        }
    }

    /// Plans and lets agents work until nothing happens any more.
    pub fn settle(&mut self) -> Plan {
        for _ in 0..40 {
            let before = (self.objects.clone(), self.cluster.clone());
            let plan = self.step();
            self.agents();
            self.now += jiff::SignedDuration::from_secs(1);
            if (&self.objects, &self.cluster) == (&before.0, &before.1) {
                return plan;
            }
        }
        panic!("it never settles: {:#?}", self.plan().actions.iter().map(ToString::to_string).collect::<Vec<_>>());
    }

    /// Everything of the cluster that has an owner goes with it, as the garbage collector has it.
    pub fn delete_cluster(&mut self) {
        self.cluster = None;
        self.objects.retain(|(kind, _), _| matches!(kind, Kind::PersistentVolumeClaim | Kind::Backup));
    }

    /// A new cluster of the same name.
    pub fn recreate(&mut self, spec: Value) {
        let mut fresh = Self::with(spec).cluster.unwrap();
        fresh["metadata"]["uid"] = "uid-2".into();
        fresh["metadata"]["creationTimestamp"] = self.now.to_string().into();
        self.cluster = Some(fresh);
    }

    pub fn change_spec(&mut self, change: impl Fn(&mut Value)) {
        let cluster = self.cluster.as_mut().unwrap();
        change(&mut cluster["spec"]);
        cluster["metadata"]["generation"] = (cluster["metadata"]["generation"].as_i64().unwrap() + 1).into();
    }

    pub fn names(&self, kind: Kind) -> Vec<&str> {
        self.objects.keys().filter(|(other, _)| *other == kind).map(|(_, name)| name.as_str()).collect()
    }

    pub fn get(&mut self, kind: Kind, name: &str) -> &mut Value {
        self.objects.get_mut(&(kind, name.to_owned())).unwrap()
    }

    pub fn status(&self) -> bellwether_api::v1::PostgresClusterStatus {
        serde_json::from_value(self.cluster.as_ref().unwrap()["status"].clone()).unwrap()
    }

    pub fn condition(&self, kind: &str) -> (String, String, String) {
        let status = self.status();
        let found = status.conditions.into_iter().find(|condition| condition.type_ == kind).unwrap();
        (found.status, found.reason, found.message)
    }

    fn stamped(&mut self, mut value: Value) -> Value {
        self.version += 1;
        value["metadata"]["resourceVersion"] = self.version.to_string().into();
        if value["metadata"]["uid"].is_null() {
            value["metadata"]["uid"] = format!("u{}", self.version).into();
            value["metadata"]["creationTimestamp"] = self.now.to_string().into();
        }
        value
    }

    pub fn put(&mut self, kind: Kind, name: &str, value: Value) {
        let value = self.stamped(value);
        self.objects.insert((kind, name.to_owned()), value);
    }

    fn carry_out(&mut self, action: &Action) {
        let (kind, name) = (action.effect.target().0, action.effect.target().1.to_owned());
        let existing = self.objects.get(&(kind, name.clone())).cloned();
        match &action.effect {
            Effect::Apply(desired) => {
                // The endpoints of the `rw` slice are another writer's.
                let mut value = Value::clone(&desired.value);
                if let Some(endpoints) =
                    existing.as_ref().and_then(|old| old.get("endpoints")).filter(|_| name.ends_with("-rw"))
                {
                    value["endpoints"] = endpoints.clone();
                }
                self.put(kind, &name, value);
            }
            Effect::Create(desired) | Effect::CreateVerifier(desired) => {
                assert!(existing.is_none(), "{name} is there already");
                self.put(kind, &name, Value::clone(&desired.value));
            }
            Effect::Issue(order) => {
                let mut value = Value::clone(&order.shape.value);
                value["data"] = order.kind.keys().iter().map(|key| ((*key).to_owned(), json!("AA=="))).collect();
                self.put(kind, &name, value);
            }
            Effect::AnnotateVolume { target, annotations } => {
                let mut value = existing.unwrap();
                assert_eq!(value["metadata"]["resourceVersion"], target.resource_version.as_str());
                for (key, text) in annotations {
                    value["metadata"]["annotations"][key] = text.as_str().into();
                }
                self.put(kind, &name, value);
            }
            Effect::AnnotatePod { uid, annotations, .. } => {
                let mut value = existing.unwrap();
                assert_eq!(value["metadata"]["uid"], uid.as_str());
                for (key, text) in annotations {
                    value["metadata"]["annotations"][key] = text.as_str().into();
                }
                self.put(kind, &name, value);
            }
            Effect::GrowVolume { uid, size, .. } => {
                let mut value = existing.unwrap();
                assert_eq!(value["metadata"]["uid"], uid.as_str());
                value["spec"]["resources"]["requests"]["storage"] = size.as_str().into();
                self.put(kind, &name, value);
            }
            Effect::AskSwitchover { target, wish } => {
                let mut value = existing.unwrap();
                assert_eq!(value["metadata"]["resourceVersion"], target.resource_version.as_str());
                let annotations = value["metadata"]["annotations"].as_object_mut().unwrap();
                match wish {
                    Some((to, at)) => {
                        annotations.insert(SWITCHOVER.to_owned(), to.as_str().into());
                        annotations.insert(SWITCHOVER_ASKED.to_owned(), at.to_string().into());
                    }
                    None => annotations.retain(|key, _| key != SWITCHOVER && key != SWITCHOVER_ASKED),
                }
                self.put(kind, &name, value);
            }
            Effect::RestartPod(target) => {
                assert_eq!(existing.unwrap()["metadata"]["uid"], target.uid.as_str());
                let leads = self.observe().leader() == Some(&name);
                self.restarts.push((name.clone(), if leads { "primary" } else { "standby" }));
                self.objects.remove(&(kind, name));
            }
            Effect::BackupStatus { target, status } => {
                let mut value = existing.unwrap();
                assert_eq!(value["metadata"]["uid"], target.uid.as_str());
                assert_eq!(value["metadata"]["resourceVersion"], target.resource_version.as_str());
                value["status"] = serde_json::to_value(status).unwrap();
                self.put(kind, &name, value);
            }
            Effect::DeletePod(target) | Effect::DeleteVolume(target) | Effect::DeleteVerifier(target) => {
                assert_eq!(existing.unwrap()["metadata"]["uid"], target.uid.as_str());
                self.objects.remove(&(kind, name));
            }
        }
    }

    /// Claims get the storage that they ask for.
    pub fn provisioner(&mut self) {
        for name in self.names(Kind::PersistentVolumeClaim).into_iter().map(str::to_owned).collect::<Vec<_>>() {
            let mut claim = self.get(Kind::PersistentVolumeClaim, &name).clone();
            let status = json!({"phase": "Bound", "capacity": claim["spec"]["resources"]["requests"]});
            if claim["status"] != status {
                claim["status"] = status;
                self.put(Kind::PersistentVolumeClaim, &name, claim);
            }
        }
    }

    /// Kubelets start every pod; the instance that may initialises and leads, the others join and stream.
    pub fn agents(&mut self) {
        self.provisioner();
        let config = self.objects.get(&(Kind::ConfigMap, format!("{NAME}-config")));
        let Some(config) = config.map(|map| map["data"]["instance.json"].as_str().unwrap().to_owned()) else { return };
        let config: InstanceConfig = serde_json::from_str(&config).unwrap();
        if let Some(lease) = self.objects.get(&(Kind::Lease, NAME.to_owned())).cloned()
            && lease["metadata"]["annotations"][labels::LEADER].is_null()
        {
            let mut lease = lease;
            let system = config.system_identifier.map_or(SYSTEM.to_owned(), |system| system.to_string());
            lease["metadata"]["annotations"][labels::SYSTEM_IDENTIFIER] = system.into();
            lease["metadata"]["annotations"][labels::LEADER] =
                json!({"instance": config.bootstrap_instance, "address": "10.0.0.1"}).to_string().into();
            lease["spec"]["leaseTransitions"] = 1.into();
            self.put(Kind::Lease, NAME, lease);
        }
        self.hand_over(&config);
        self.restart_in_place(&config);
        let leader = self.observe().leader().map(str::to_owned);
        let members = self.keep_members(&config);
        let instances: Vec<_> = self.observe().pods.items.into_keys().collect();
        for name in instances {
            let serial: u32 = name.rsplit('-').next().unwrap().parse().unwrap();
            if leader.as_deref() == Some(&name) {
                self.run(&name, serial, "primary", "Leading");
                let address = json!([{"addresses": [format!("10.0.0.{serial}")]}]);
                if let Some(slice) = self.objects.get_mut(&(Kind::EndpointSlice, format!("{NAME}-rw"))) {
                    slice["endpoints"] = address;
                }
            } else if config.is_leaving(&name) && !members.contains(&name) {
                self.run(&name, serial, "standby", "NotStreaming");
            } else {
                self.run(&name, serial, "standby", "Streaming");
            }
        }
    }

    /// The primary lets in whoever belongs and lets go who leaves. Slots follow in the next round: who leaves stops to stream when it is no member.
    fn keep_members(&mut self, config: &InstanceConfig) -> Vec<String> {
        let observed = self.observe();
        let Some(leader) = observed.leader().map(str::to_owned) else { return vec![] };
        let was = observed.own_lease().and_then(|lease| lease.members.clone()).unwrap_or_default();
        let pods = || observed.pods.items.values();
        let in_use = |name: &String| {
            self.stubborn || pods().any(|pod| pod.name == *name && pod.streams() && was.contains(&pod.uid))
        };
        let leaving = config.leaving.iter().map(|leaving| leaving.instance.clone()).filter(in_use);
        let slots: Vec<_> = config.instances.iter().cloned().chain(leaving).filter(|name| *name != leader).collect();
        self.slots = slots;
        let stays = |name: &str| self.stubborn || !config.is_leaving(name);
        let members: Vec<_> = pods().filter(|pod| stays(&pod.name)).collect();
        let uids: Vec<_> = members.iter().map(|pod| pod.uid.clone()).collect();
        if uids != was {
            let mut lease = self.get(Kind::Lease, NAME).clone();
            lease["metadata"]["annotations"][MEMBERS] = json!(uids).to_string().into();
            self.put(Kind::Lease, NAME, lease);
        }
        members.iter().map(|pod| pod.name.clone()).collect()
    }

    /// The primary follows a request, if one streams: the next number leads, and the old one starts again as a standby.
    fn hand_over(&mut self, config: &InstanceConfig) {
        let observed = self.observe();
        let Some(leader) = observed.leader().map(str::to_owned) else { return };
        let asked = observed.own_lease().is_some_and(|lease| lease.switchover.is_some());
        let next = observed.pods.items.values().find(|pod| pod.name != leader && pod.streams());
        let Some(next) = next.filter(|_| asked) else { return };
        let mut lease = self.get(Kind::Lease, NAME).clone();
        let place = json!({"instance": next.name, "address": next.ip}).to_string();
        let annotations = lease["metadata"]["annotations"].as_object_mut().unwrap();
        annotations.retain(|key, _| key != SWITCHOVER && key != SWITCHOVER_ASKED);
        annotations.insert(labels::LEADER.to_owned(), place.into());
        lease["spec"]["leaseTransitions"] = (lease["spec"]["leaseTransitions"].as_u64().unwrap() + 1).into();
        self.put(Kind::Lease, NAME, lease);
        self.written_with = self.connections[&next.uid];
        if let Some(old) = observed.pods.items.get(&leader) {
            self.restarts.push((leader, "handed over"));
            self.connections.insert(old.uid.clone(), configured(config).max(self.written_with));
        }
    }

    /// The primary does what is asked of it in its term.
    fn restart_in_place(&mut self, config: &InstanceConfig) {
        let observed = self.observe();
        let Some(asked) = &config.restart else { return };
        let term = observed.own_lease().and_then(|lease| lease.term);
        let Some(pod) = observed.pods.items.get(&asked.instance) else { return };
        let leads = observed.leader() == Some(&asked.instance) && term == Some(asked.term);
        if leads && configured(config) < self.connections[&pod.uid] {
            self.restarts.push((asked.instance.clone(), "in place"));
            self.connections.insert(pod.uid.clone(), configured(config));
            self.written_with = configured(config);
        }
    }

    /// What waits for a restart on this instance, and whether it is lower. One that has just started has what it needs.
    fn pending(&mut self, pod: &Value, leads: bool) -> Value {
        let config = self.objects.get(&(Kind::ConfigMap, format!("{NAME}-config")));
        let Some(config) = config.and_then(|map| serde_json::from_str(map["data"]["instance.json"].as_str()?).ok())
        else {
            return json!({});
        };
        let configured = configured(&config);
        let wanted = if leads { configured } else { configured.max(self.written_with) };
        let runs = *self.connections.entry(pod["metadata"]["uid"].as_str().unwrap().to_owned()).or_insert(wanted);
        if leads && self.written_with == 0 {
            self.written_with = runs;
        }
        assert!(leads || runs >= self.written_with, "a standby below its primary does not replay");
        let waits = |when: bool| if when { json!(["max_connections"]) } else { json!([]) };
        json!({
            "pendingRestart": waits(runs != wanted), "lowered": waits(configured < if leads { runs } else { wanted }),
            "parameters": crate::contract::parameters_hash(&config.parameters),
        })
    }

    /// The backup that agents are told to take.
    pub fn order(&self) -> Option<BackupOrder> {
        let config = self.objects.get(&(Kind::ConfigMap, format!("{NAME}-config")))?;
        let config: InstanceConfig = serde_json::from_str(config["data"]["instance.json"].as_str()?).unwrap();
        config.archive?.order
    }

    /// A person asks for a backup; a second goes by.
    pub fn ask_for_backup(&mut self, name: &str) {
        let metadata = json!({"name": name, "namespace": "shop"});
        let backup = json!({"metadata": metadata, "spec": {"cluster": NAME}});
        self.put(Kind::Backup, name, backup);
        self.now += jiff::SignedDuration::from_secs(1);
    }

    /// What is said of a backup.
    pub fn backup(&self, name: &str) -> bellwether_api::v1::BackupStatus {
        let backup = &self.objects[&(Kind::Backup, name.to_owned())];
        serde_json::from_value(backup["status"].clone()).unwrap_or_default()
    }

    /// Changes what an instance says of itself.
    pub fn change_report(&mut self, instance: &str, change: impl FnOnce(&mut Value)) {
        let mut pod = self.get(Kind::Pod, instance).clone();
        let text = &mut pod["metadata"]["annotations"][labels::REPORT];
        let mut report: Value = serde_json::from_str(text.as_str().unwrap()).unwrap();
        change(&mut report);
        *text = report.to_string().into();
        self.put(Kind::Pod, instance, pod);
    }

    /// The instance that was told says this of the backup: as if it had done so.
    pub fn told_of_backup(&mut self, state: &str, more: &Value) {
        let order = self.order().expect("one is to be taken");
        let mut said =
            json!({"uid": order.uid, "attempt": order.attempt, "state": state, "started": "2026-01-01T00:01:00.25Z"});
        for (key, value) in more.as_object().into_iter().flatten() {
            said[key] = value.clone();
        }
        self.change_report(&order.instance, |report| report["backup"] = said);
    }

    /// The pod runs and says this of itself.
    pub fn run(&mut self, name: &str, serial: u32, role: &str, state: &str) {
        let mut pod = self.get(Kind::Pod, name).clone();
        let before = pod.clone();
        let mut report = self.pending(&pod, role == "primary");
        let said = pod["metadata"]["annotations"][labels::REPORT].as_str();
        let before_that: Value = said.map_or(Value::Null, |text| serde_json::from_str(text).unwrap());
        report["archiving"] = before_that["archiving"].clone();
        // Of a backup that it is no longer told of, it forgets all.
        let uid = before_that["backup"]["uid"].as_str();
        if uid.is_some_and(|uid| self.order().is_some_and(|order| order.uid == uid)) {
            report["backup"] = before_that["backup"].clone();
        }
        for (key, value) in [
            ("role", json!(role)),
            ("state", json!(state)),
            ("acceptsSql", json!(true)),
            ("timeline", json!(1)),
            ("systemIdentifier", json!(SYSTEM)),
            ("identity", pod["metadata"]["uid"].clone()),
            ("slots", if role == "primary" { json!(self.slots) } else { Value::Null }),
        ] {
            report[key] = value;
        }
        pod["metadata"]["annotations"][labels::REPORT] = report.to_string().into();
        pod["spec"]["nodeName"] = format!("node-{serial}").into();
        pod["status"] = json!({
            "phase": "Running", "podIP": format!("10.0.0.{serial}"), "conditions": [{"type": "Ready", "status": "True"}],
        });
        if pod != before {
            self.put(Kind::Pod, name, pod);
        }
    }
}
