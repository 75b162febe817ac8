//! The API as its callers have it: the real store, behind a network that loses, delays and repeats.
//!
//! Assumed of Kubernetes: a PUT with a version is a compare-and-swap; reads of one object are of its newest version, unless a fault makes
//! them stale; a watch shows changes in order, late or not at all for a while; and a call without an answer may still be carried
//! out, much later.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use bellwether_api::names::Names;
use bellwether_api::{labels, v1};
use bellwether_apiserver::registry::Resource;
use bellwether_apiserver::request::{
    DeleteOptions, FieldValidation, ListOptions, PatchKind, Subresource, Target, WatchKind, Write,
};
use bellwether_apiserver::store::{Cursor, Ids, Store, WatchFrom};
use bellwether_core::contract::InstanceConfig;
use bellwether_core::election::{LeaseView, LeaseWrite, Outcome, Plant, RequestId};
use bellwether_core::fact::Fact;
use bellwether_core::lease_object;
use bellwether_core::object::Kind;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::network::Place;
use crate::queue::Time;
use crate::rng::Rng;
use crate::world::{CrashAt, What, Who, World};

/// The cluster's name.
pub const CLUSTER: &str = "orders";
/// Its namespace.
pub const NAMESPACE: &str = "shop";
/// How long a caller waits for an answer.
const PATIENCE: Time = 1_500;
/// How many versions of the Lease are on their way to agents at once, mostly.
const VERSIONS: usize = 4;
/// When the run begins, for people: 2026-01-01.
const EPOCH: i64 = 1_767_225_600;

/// What an agent asks of the API.
#[derive(Clone, Debug)]
pub enum Request {
    /// The Lease as it is.
    ReadLease(RequestId),
    /// A PUT of it (E1), made from the object as it was seen.
    WriteLease(RequestId, Box<LeaseWrite>, Arc<Value>),
    /// The report on the own pod: its text, and the role.
    Report(String, &'static str),
    /// The `rw` endpoint leads here.
    Endpoint,
}

impl Request {
    fn writes(&self) -> bool {
        !matches!(self, Self::ReadLease(_))
    }
}

/// A call on its way.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its number.
    pub number: u64,
    /// Whose.
    pub who: Who,
    /// From where.
    pub from: Place,
    /// What.
    pub request: Request,
}

/// A call that waits.
#[derive(Clone, Debug)]
pub struct Pending {
    /// Its number.
    pub number: u64,
    /// What was asked.
    pub request: Request,
    /// The caller dies when the answer is there.
    pub crash: bool,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Reply {
    /// To which call.
    pub number: u64,
    /// How it ended.
    pub body: Body,
}

/// How a call ended.
#[derive(Clone, Debug)]
pub enum Body {
    /// The Lease, as it was read.
    Lease(Fact<Arc<Value>>),
    /// The Lease after the own write; nothing where it was refused.
    Written(Option<Arc<Value>>),
    /// Done, or refused.
    Done(bool),
}

/// What a watch shows of the Lease: a version, or that there is none.
pub type Sighting = Option<Arc<Value>>;

/// A version of the agents' configuration, and what it says.
pub(crate) type Told = (Arc<Value>, Option<Rc<InstanceConfig>>);

struct SeedIds(Rng);

impl Ids for SeedIds {
    fn uid(&mut self) -> String {
        let (high, low) = (self.0.draw(), self.0.draw());
        bellwether_core::election::MemberId(u128::from(high) << 64 | u128::from(low)).to_string()
    }
    fn suffix(&mut self) -> String {
        format!("{:05x}", self.0.draw() & 0xf_ffff)
    }
}

thread_local! {
    /// A store with our kinds installed: what every run begins with. Compiling the kinds' rules takes longer than some runs.
    static PREPARED: Store = prepared();
}

fn prepared() -> Store {
    let mut store = Store::in_memory(Box::new(SeedIds(Rng::new(0))));
    let now = Timestamp::from_second(EPOCH).unwrap_or_default();
    let write = writer(now, "setup");
    let mut install = |group, version, plural, object: Value| {
        let resource = store.resource(group, version, plural).expect("a kind that is served");
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let target = Target { resource, namespace: None, name, subresource: Subresource::Main };
        store.create(&target, object, &write).expect("an object of ours");
    };
    for definition in v1::crds() {
        let definition = serde_json::to_value(definition).expect("our own type");
        install("apiextensions.k8s.io", "v1", "customresourcedefinitions", definition);
    }
    install("", "v1", "namespaces", json!({"metadata": {"name": NAMESPACE}}));
    store
}

/// The store, and what stands before it.
pub struct Api {
    /// The real one.
    pub store: Store,
    resources: Vec<Arc<Resource>>,
    /// The resource of clusters.
    pub clusters: Arc<Resource>,
    /// What the children are called.
    pub names: Names,
    watches: [(Kind, Cursor); 4],
    seen: u64,
    /// How many faults keep it from answering.
    pub down: u32,
    /// Answers are lost after the commit.
    pub answers_lost: bool,
    /// Calls that find no way arrive much later instead of never.
    pub late: bool,
    /// Reads and watches show the past.
    pub stale: bool,
    past: VecDeque<Sighting>,
    /// What the newest versions of the Lease say. Each is held here, so no other object can have its address.
    read: RefCell<VecDeque<(Arc<Value>, Fact<LeaseView>)>>,
    /// What the newest version of the agents' configuration says.
    pub(crate) told: RefCell<Option<Told>>,
    number: u64,
    /// Writes of ours that changed something.
    pub writes: u64,
    /// The last of them.
    pub last_write: String,
}

impl Api {
    /// An API with our kind installed.
    pub fn new(rng: &mut Rng) -> Self {
        let mut store = PREPARED.with(|prepared| prepared.fork(Box::new(SeedIds(rng.fork()))));
        store.set_history_window(400);
        let resources: Vec<_> = Kind::ALL
            .iter()
            .map(|kind| {
                let (group, version, _, plural) = kind.coordinates();
                store.resource(group, version, plural).expect("a kind that is served")
            })
            .collect();
        let clusters = store.resource("bellwether.dev", "v1", "postgresclusters").expect("our kind");
        let watch = |kind: Kind| {
            let resource = &resources[kind as usize];
            let options = ListOptions::default();
            (kind, store.watch(resource, Some(NAMESPACE), &options, WatchFrom::Now).expect("a watch from now"))
        };
        let watches = [Kind::Pod, Kind::Lease, Kind::EndpointSlice, Kind::PersistentVolumeClaim].map(watch);
        Self {
            seen: store.revision(),
            store,
            resources,
            clusters,
            names: Names::of(CLUSTER),
            watches,
            down: 0,
            answers_lost: false,
            late: false,
            stale: false,
            past: VecDeque::new(),
            read: RefCell::default(),
            told: RefCell::default(),
            number: 0,
            writes: 0,
            last_write: String::new(),
        }
    }

    /// A child of the cluster.
    pub fn target(&self, kind: Kind, name: &str) -> Target {
        Target {
            resource: self.resources[kind as usize].clone(),
            namespace: Some(NAMESPACE.to_owned()),
            name: name.to_owned(),
            subresource: Subresource::Main,
        }
    }

    /// The cluster.
    pub fn cluster(&self) -> Target {
        Target {
            resource: self.clusters.clone(),
            namespace: Some(NAMESPACE.to_owned()),
            name: CLUSTER.to_owned(),
            subresource: Subresource::Main,
        }
    }

    /// A child as it is now.
    pub fn get(&self, kind: Kind, name: &str) -> Option<Arc<Value>> {
        self.store.get(&self.target(kind, name)).ok().map(|object| object.plain().clone())
    }

    /// All children of a kind.
    pub fn list(&self, kind: Kind) -> Vec<Arc<Value>> {
        let resource = &self.resources[kind as usize];
        let page = self.store.list(resource, Some(NAMESPACE), &ListOptions::default());
        page.into_iter().flat_map(|page| page.items).map(|object| object.plain().clone()).collect()
    }

    /// Counts a write of ours.
    pub fn wrote(&mut self, what: impl FnOnce() -> String) {
        self.writes += 1;
        self.last_write = what();
    }
}

/// The circumstances of a write by `manager`.
pub fn writer(now: Timestamp, manager: &str) -> Write {
    Write { now, manager: manager.to_owned(), dry_run: false, force: true, validation: FieldValidation::Ignore }
}

impl World {
    /// The time of day.
    pub fn timestamp(&self) -> Timestamp {
        let at = EPOCH * 1_000 + i64::try_from(self.now).unwrap_or(0);
        Timestamp::from_millisecond(at).unwrap_or_default()
    }

    /// Patches a child by somebody who is not ours: a kubelet, a scheduler, a person. Says whether it was there.
    pub fn patch_by_others(&mut self, target: &Target, patch: &Value) -> bool {
        let write = writer(self.timestamp(), "others");
        let done = self.api.store.patch(target, PatchKind::Merge, patch, &write).is_ok();
        self.look_around();
        done
    }

    /// Deletes a child, as a kubelet or a person does.
    pub fn delete_by_others(&mut self, kind: Kind, name: &str, grace: Option<i64>) {
        let write = writer(self.timestamp(), "others");
        let options = DeleteOptions { grace_period_seconds: grace, ..DeleteOptions::default() };
        // It may be gone already.
        let _ = self.api.store.delete(&self.api.target(kind, name), &options, &write);
        while self.api.store.collect_garbage(write.now) {}
        self.look_around();
    }

    /// An agent calls the API.
    pub fn call(&mut self, who: Who, request: Request) {
        self.api.number += 1;
        let number = self.api.number;
        let from = self.instances[who.instance].machine;
        let crash = self.crash_at(who, &request);
        if crash == Some(CrashAt::Before) {
            return self.crash_container(who, "before a write");
        }
        let Some(container) = self.container_mut(who) else { return };
        let pending = Pending { number, request: request.clone(), crash: crash == Some(CrashAt::After) };
        container.calls.push(pending);
        let call = Box::new(Call { number, who, from, request });
        match self.net.transit(from, self.api_place(), &mut self.rng) {
            Some(delay) if self.api.down == 0 => {
                let service = self.rng.between(2, 12);
                self.after(delay + service, What::Call(call));
            }
            _ if self.api.late && call.request.writes() => {
                self.faults.fired("late write");
                self.within(PATIENCE, 30_000, What::Call(call));
            }
            _ => {}
        }
        self.after(PATIENCE, What::Timeout(who, number));
        if crash == Some(CrashAt::During) {
            self.crash_container(who, "during a write");
        }
    }

    fn api_place(&self) -> Place {
        self.net.api()
    }

    /// Whether this call is the one at which its caller is to die.
    fn crash_at(&mut self, who: Who, request: &Request) -> Option<CrashAt> {
        if !request.writes() {
            return None;
        }
        self.container_mut(who)?.crash_at_write.take()
    }

    /// A call arrives. Its caller may be long gone.
    pub fn call_arrives(&mut self, call: &Call) {
        if self.api.down > 0 {
            if self.api.late && call.request.writes() {
                self.within(2_000, 20_000, What::Call(Box::new(call.clone())));
            }
            return;
        }
        let body = self.carry_out_call(call);
        self.look_around();
        if self.api.answers_lost && call.request.writes() && self.rng.chance(700) {
            self.faults.fired("lost answer");
            return;
        }
        if let Some(delay) = self.net.transit(self.api_place(), call.from, &mut self.rng) {
            self.after(delay, What::Reply(call.who, Box::new(Reply { number: call.number, body })));
        }
    }

    fn carry_out_call(&mut self, call: &Call) -> Body {
        match &call.request {
            Request::ReadLease(_) => Body::Lease(self.read_lease()),
            Request::WriteLease(_, write, seen) => Body::Written(self.write_lease(call.who, write, seen)),
            Request::Report(report, role) => Body::Done(self.write_report(call.who, report, role)),
            Request::Endpoint => Body::Done(self.write_endpoint(call.who)),
        }
    }

    fn read_lease(&mut self) -> Fact<Arc<Value>> {
        if self.api.stale && self.rng.chance(500) {
            self.faults.fired("stale read");
            let at = usize::try_from(self.rng.below(self.api.past.len() as u64)).unwrap_or(0);
            if let Some(Some(old)) = self.api.past.get(at) {
                return Fact::Known(old.clone());
            }
        }
        Fact::looked_up(self.api.get(Kind::Lease, CLUSTER))
    }

    fn write_lease(&mut self, who: Who, write: &LeaseWrite, seen: &Value) -> Option<Arc<Value>> {
        let mut object = lease_object::written(seen, write.base, &write.content, self.timestamp());
        object["metadata"]["uid"] = bellwether_core::election::MemberId(write.uid.0).to_string().into();
        let instance = &self.instances[who.instance];
        let leader = json!({"instance": instance.name, "address": instance.address}).to_string();
        object["metadata"]["annotations"][labels::LEADER] = leader.into();
        object["metadata"]["annotations"][labels::SYSTEM_IDENTIFIER] = self.system(who.instance).to_string().into();
        if self.settings.planted == Some(Plant::WritesWithoutVersion)
            && let Some(metadata) = object["metadata"].as_object_mut()
        {
            metadata.remove("resourceVersion");
            metadata.remove("uid");
        }
        let target = self.api.target(Kind::Lease, CLUSTER);
        let stamp = writer(self.timestamp(), labels::AGENT_MANAGER);
        let written = self.api.store.update(&target, object, &stamp).ok()?;
        let name = self.instances[who.instance].name.clone();
        self.api.wrote(|| format!("{name} wrote the Lease"));
        Some(written.object.plain().clone())
    }

    fn write_report(&mut self, who: Who, report: &str, role: &str) -> bool {
        let instance = &self.instances[who.instance];
        let mut patch = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": instance.name, "namespace": NAMESPACE, "uid": instance.uid, "annotations": {labels::REPORT: report}},
        });
        if !role.is_empty() {
            patch["metadata"]["labels"] = json!({labels::ROLE: role});
        }
        let target = self.api.target(Kind::Pod, &instance.name);
        self.apply_by_agent(who, &target, &patch, "its report")
    }

    fn write_endpoint(&mut self, who: Who) -> bool {
        let instance = &self.instances[who.instance];
        let name = self.api.names.rw();
        let patch = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "endpoints": [{
                "addresses": [instance.address], "conditions": {"ready": true},
                "targetRef": {"kind": "Pod", "name": instance.name, "uid": instance.uid},
            }],
        });
        let target = self.api.target(Kind::EndpointSlice, &name);
        self.apply_by_agent(who, &target, &patch, "the endpoint")
    }

    fn apply_by_agent(&mut self, who: Who, target: &Target, patch: &Value, what: &str) -> bool {
        // An apply would make anew what was deleted meanwhile.
        if self.api.store.get(target).is_err() {
            return false;
        }
        let stamp = writer(self.timestamp(), labels::AGENT_MANAGER);
        let before = self.api.store.revision();
        let done = self.api.store.patch(target, PatchKind::Apply, patch, &stamp).is_ok();
        if self.api.store.revision() != before {
            let name = self.instances[who.instance].name.clone();
            self.api.wrote(|| format!("{name} wrote {what}"));
        }
        done
    }

    /// The API's answer arrives.
    pub fn reply(&mut self, who: Who, reply: Reply) {
        if let Some(until) = self.agent_frozen(who) {
            return self.queue.push(until, What::Reply(who, Box::new(reply)));
        }
        if let Some(pending) = self.end_call(who, reply.number) {
            if pending.crash {
                return self.crash_container(who, "after a write");
            }
            self.answered(who, pending.request, Some(reply.body));
        }
    }

    /// Nobody waits any longer.
    pub fn timeout(&mut self, who: Who, number: u64) {
        if let Some(until) = self.agent_frozen(who) {
            return self.queue.push(until, What::Timeout(who, number));
        }
        let Some(pending) = self.end_call(who, number) else { return };
        // A client that retried would ask again, and take the second answer for the first one's.
        if self.settings.planted == Some(Plant::WritesRetried)
            && let Request::WriteLease(_, write, seen) = &pending.request
        {
            let body = Body::Written(self.write_lease(who, write, seen));
            self.look_around();
            return self.answered(who, pending.request, Some(body));
        }
        self.answered(who, pending.request, None);
    }

    fn end_call(&mut self, who: Who, number: u64) -> Option<Pending> {
        let container = self.container_mut(who)?;
        let at = container.calls.iter().position(|pending| pending.number == number)?;
        Some(container.calls.swap_remove(at))
    }

    /// What a Lease object says; nothing where it can't be understood. Every agent is shown every version: each is read once.
    pub fn view(&self, object: &Arc<Value>) -> Fact<LeaseView> {
        let mut read = self.api.read.borrow_mut();
        if let Some((_, view)) = read.iter().find(|(from, _)| Arc::ptr_eq(from, object)) {
            return view.clone();
        }
        let view = lease_object::read(object, self.settings.lease).map_or(Fact::Unknown, Fact::Known);
        if read.len() >= VERSIONS {
            read.pop_back();
        }
        read.push_front((object.clone(), view.clone()));
        view
    }

    /// How a write of the Lease ended, as the election is told.
    pub fn outcome(&self, body: Option<Body>) -> Outcome {
        match body {
            Some(Body::Written(Some(object))) => match self.view(&object) {
                Fact::Known(view) => Outcome::Committed(view),
                Fact::Absent | Fact::Unknown => Outcome::Ambiguous,
            },
            Some(Body::Written(None)) => Outcome::Conflict,
            _ => Outcome::Ambiguous,
        }
    }

    /// Lets everybody who watches know what changed.
    pub fn look_around(&mut self) {
        if self.api.seen == self.api.store.revision() {
            return;
        }
        self.api.seen = self.api.store.revision();
        let mut news = Vec::new();
        for (kind, cursor) in &mut self.api.watches {
            let kind = *kind;
            let events = self.api.store.poll(cursor).unwrap_or_default();
            news.extend(events.into_iter().map(|event| (kind, event)));
        }
        for (kind, event) in news {
            let gone = event.kind == WatchKind::Deleted;
            match kind {
                Kind::Lease => self.lease_changed(&(!gone).then(|| event.object.plain().clone())),
                Kind::EndpointSlice => self.slice_changed(event.object.plain()),
                Kind::Pod => self.pod_changed(event.object.plain(), gone),
                _ => self.claim_changed(event.object.plain(), gone),
            }
        }
        self.wake_operator();
    }

    fn lease_changed(&mut self, object: &Sighting) {
        if self.api.past.len() > 12 {
            self.api.past.pop_front();
        }
        self.api.past.push_back(object.clone());
        self.judge_lease(object.as_ref());
        for instance in 0..self.instances.len() {
            if let Some(who) = self.present(instance) {
                self.show_lease(who, object.clone());
            }
        }
    }

    /// A watch shows the Lease to one agent, after all that it has shown before.
    pub fn show_lease(&mut self, who: Who, object: Sighting) {
        let slowest = if self.api.stale { 8_000 } else { 60 };
        let delay = self.rng.between(2, slowest);
        let now = self.now;
        let Some(container) = self.container_mut(who) else { return };
        container.watched = container.watched.max(now + delay);
        let at = container.watched;
        self.queue.push(at, What::Watch(who, Box::new(object)));
    }

    /// Somebody puts an older state of the Lease back.
    pub fn restore_lease(&mut self) -> bool {
        let Some(present) = self.api.get(Kind::Lease, CLUSTER) else { return false };
        let at = usize::try_from(self.rng.below(self.api.past.len() as u64)).unwrap_or(0);
        let Some(Some(old)) = self.api.past.get(at).cloned() else { return false };
        let mut object = Value::clone(&old);
        if old["metadata"]["uid"] != present["metadata"]["uid"] || old["spec"] == present["spec"] {
            return false;
        }
        // A record that names one that is gone for good needs a person (a known limit).
        let Fact::Known(named) = self.view(&old) else { return false };
        if !named.content.members.iter().all(|id| self.place(id).is_some()) {
            return false;
        }
        object["metadata"]["resourceVersion"] = present["metadata"]["resourceVersion"].clone();
        let target = self.api.target(Kind::Lease, CLUSTER);
        let write = writer(self.timestamp(), "others");
        let done = self.api.store.update(&target, object, &write).is_ok();
        self.look_around();
        done
    }

    fn slice_changed(&mut self, slice: &Value) {
        if slice["metadata"]["name"] == self.api.names.rw().as_str() {
            let address = slice["endpoints"][0]["addresses"][0].as_str().map(str::to_owned);
            // kube-proxy: mostly at once, and up to a second when it has just done something else.
            let slowest = if self.rng.chance(300) { 1_000 } else { 60 };
            let delay = self.rng.between(10, slowest);
            // It hears of changes in their order.
            self.proxy_hears = self.proxy_hears.max(self.now + delay);
            self.queue.push(self.proxy_hears, What::Proxy(address.clone()));
            self.endpoint_seen(address.as_deref());
        }
    }
}
