//! A tiny world for tests: it holds objects as JSON, carries out plans, and lets agents and kubelets do their part at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use bellwether_api::labels;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Action, Effect, Plan, plan, plan_keeping};
use crate::build::{Kept, Settings};
use crate::check::check;
use crate::fact::Fact;
use crate::object::Kind;
use crate::observed::{Listing, Observed, Raw, observe};

pub(crate) const NAME: &str = "orders";
pub(crate) const SYSTEM: &str = "7000000000000000001";

thread_local! {
    /// Outlives every world of its thread: what was built for one must not get into the plan of another.
    static KEPT: Kept = Kept::default();
}

/// Everything that exists.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub cluster: Option<Value>,
    pub objects: BTreeMap<(Kind, String), Value>,
    /// Kinds that nobody has listed yet.
    pub unseen: Vec<Kind>,
    pub now: Timestamp,
    version: u64,
}

impl World {
    /// A cluster with this spec, and nothing else.
    pub fn with(spec: Value) -> Self {
        let mut cluster = json!({
            "apiVersion": "bellwether.dev/v1", "kind": "PostgresCluster",
            "metadata": {"name": NAME, "namespace": "shop", "uid": "uid-1", "generation": 1},
        });
        cluster["spec"] = spec;
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        Self { cluster: Some(cluster), objects: BTreeMap::new(), unseen: vec![], now, version: 0 }
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
        Raw { cluster, children, owner_password: Fact::Absent }
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
        for _ in 0..20 {
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
        self.objects.retain(|(kind, _), _| *kind == Kind::PersistentVolumeClaim);
    }

    /// A new cluster of the same name.
    pub fn recreate(&mut self, spec: Value) {
        let mut fresh = Self::with(spec).cluster.unwrap();
        fresh["metadata"]["uid"] = "uid-2".into();
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
            Effect::Create(desired) => {
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
            Effect::DeletePod(target) | Effect::DeleteVolume(target) => {
                assert_eq!(existing.unwrap()["metadata"]["uid"], target.uid.as_str());
                self.objects.remove(&(kind, name));
            }
        }
    }

    /// Kubelets start every pod; the instance that may initialises and leads, the others join and stream.
    pub fn agents(&mut self) {
        let config = self.objects.get(&(Kind::ConfigMap, format!("{NAME}-config")));
        let Some(config) = config.map(|map| map["data"]["instance.json"].as_str().unwrap().to_owned()) else { return };
        let config: crate::contract::InstanceConfig = serde_json::from_str(&config).unwrap();
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
        let leader = self.observe().leader().map(str::to_owned);
        for name in self.names(Kind::Pod).into_iter().map(str::to_owned).collect::<Vec<_>>() {
            let serial: u32 = name.rsplit('-').next().unwrap().parse().unwrap();
            if leader.as_deref() == Some(&name) {
                self.run(&name, serial, "primary", "Leading");
                let address = json!([{"addresses": [format!("10.0.0.{serial}")]}]);
                if let Some(slice) = self.objects.get_mut(&(Kind::EndpointSlice, format!("{NAME}-rw"))) {
                    slice["endpoints"] = address;
                }
            } else {
                self.run(&name, serial, "standby", "Streaming");
            }
        }
    }

    /// The pod runs and says this of itself.
    pub fn run(&mut self, name: &str, serial: u32, role: &str, state: &str) {
        let mut pod = self.get(Kind::Pod, name).clone();
        let before = pod.clone();
        let report =
            json!({"role": role, "state": state, "acceptsSql": true, "timeline": 1, "systemIdentifier": SYSTEM});
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
