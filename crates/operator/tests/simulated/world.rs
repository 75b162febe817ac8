//! A store, one operator, and whoever decides what becomes of its requests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bellwether_api::v1;
use bellwether_apiserver::request::{
    DeleteOptions, FieldValidation, ListOptions, PatchKind, Subresource, Target, Write,
};
use bellwether_apiserver::store::{Ids, Store};
use bellwether_operator::Settings;
use bellwether_operator::port::simulated::{Operator, Step, Watch, lost, serve};
use bellwether_operator::port::{CallError, Request};
use bellwether_runtime::watch::{Key, Namespaces};
use jiff::{SignedDuration, Timestamp};
use kube::runtime::watcher::Event;
use serde_json::{Value, json};

/// What becomes of a request.
#[derive(Clone, Debug)]
pub enum Fate {
    /// It is carried out and answered.
    Served,
    /// The operator dies before it is sent.
    CrashBefore,
    /// It is carried out, and the operator dies before it hears.
    CrashAfter,
    /// It is carried out, and the answer is lost.
    Lost,
    /// It is not carried out, and this is the answer.
    Refused(CallError),
    /// It is carried out, and the operator dies; the next one begins with what there was to see when the world was forked.
    IntoThePast,
    /// Before it is carried out, another operator that sees everything does a whole pass.
    NotAlone,
}

/// What becomes of an event that a watch has for the operator.
#[derive(Clone, Copy, Debug)]
pub enum Deaf {
    /// It, and what that watch has after it, come some rounds later.
    Late,
    /// It never comes; after some rounds that watch begins anew, with a list.
    Never,
}

pub struct World {
    pub store: Store,
    pub log: Vec<Request>,
    operator: Operator,
    watches: Vec<Watch>,
    key: Key,
    now: Timestamp,
    /// Another operator, and what it has seen.
    spare: Option<(Operator, Vec<Watch>)>,
    /// The number of the event that does not come as it should.
    pub deaf: Option<(usize, Deaf)>,
    /// Events that watches had for the operator.
    pub heard: usize,
    held: Option<Held>,
    /// How often a pod of each instance was made.
    pub made: BTreeMap<String, BTreeSet<String>>,
}

/// A watch that does not tell everything, for so many more rounds.
struct Held {
    watch: usize,
    rounds: usize,
    events: Vec<Event<Arc<Value>>>,
}

/// Rounds for which a watch is silent.
const HELD_BACK: usize = 3;

#[derive(Default)]
struct Counter(u64);

impl Ids for Counter {
    fn uid(&mut self) -> String {
        self.0 += 1;
        format!("00000000-0000-4000-8000-{:012}", self.0)
    }

    fn suffix(&mut self) -> String {
        self.0 += 1;
        format!("{:05}", self.0)
    }
}

impl World {
    /// An API server that knows our kinds, and nothing else.
    pub fn new() -> Self {
        let store = Store::in_memory(Box::<Counter>::default());
        let key = Key { namespace: "default".into(), name: "orders".into() };
        let operator = Operator::start(settings(&key), 7);
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let mut world = Self {
            store,
            log: vec![],
            watches: operator.watches(),
            operator,
            key,
            now,
            spare: None,
            deaf: None,
            heard: 0,
            held: None,
            made: BTreeMap::new(),
        };
        for definition in v1::crds() {
            world.create("customresourcedefinitions", serde_json::to_value(definition).unwrap());
        }
        world
    }

    /// A cluster `orders` in a namespace of its own, and an operator that looks after that namespace only.
    pub fn with_cluster(mut self, namespace: &str, replicas: i32) -> Self {
        self = self.with_namespace(namespace);
        self.create_cluster(&json!({"replicas": replicas}));
        self
    }

    /// A namespace without a cluster, and an operator that looks after it only.
    pub fn with_namespace(mut self, namespace: &str) -> Self {
        self.log.clear();
        self.create("namespaces", json!({"metadata": {"name": namespace}}));
        self.key.namespace = namespace.to_owned();
        self.restart();
        self
    }

    pub fn create_cluster(&mut self, spec: &Value) {
        self.create(
            "postgresclusters",
            json!({
                "apiVersion": "bellwether.dev/v1", "kind": "PostgresCluster", "metadata": {"name": "orders"}, "spec": spec,
            }),
        );
    }

    pub fn ask_for_backup(&mut self, name: &str, cluster: &str) {
        let (metadata, spec) = (json!({"name": name}), json!({"cluster": cluster}));
        self.create(
            "backups",
            json!({"apiVersion": "bellwether.dev/v1", "kind": "Backup", "metadata": metadata, "spec": spec}),
        );
    }

    /// Time goes by.
    pub fn later(&mut self, by: SignedDuration) {
        self.now += by;
    }

    /// The garbage collector, and whoever lets go of claims that nobody uses. Answers whether there was anything to do.
    pub fn collect_garbage(&mut self) -> bool {
        self.store.collect_garbage(self.now)
    }

    /// What a condition of the cluster says.
    pub fn condition(&self, type_: &str) -> Value {
        let conditions = self.cluster()["status"]["conditions"].take();
        conditions.as_array().unwrap().iter().find(|condition| condition["type"] == type_).unwrap().clone()
    }

    /// A world of its own that begins as this one is, with an operator that has seen it, and another that has.
    pub fn fork(&self) -> Self {
        let mut fork = Self::new();
        fork.store = self.store.fork(Box::new(Counter(self.store.revision() * 1000)));
        (fork.key, fork.now) = (self.key.clone(), self.now);
        fork.restart();
        fork.look();
        let spare = Operator::start(settings(&fork.key), 9);
        let mut watches = spare.watches();
        deliver(&mut watches, &fork.store);
        fork.spare = Some((spare, watches));
        fork.heard = 0;
        fork
    }

    /// Everything that there is to see reaches the operator, but for what is held back.
    pub fn look(&mut self) {
        self.end_deafness();
        for (number, watch) in self.watches.iter_mut().enumerate() {
            for event in watch.news(&self.store) {
                self.heard += 1;
                match (&mut self.held, self.deaf) {
                    (Some(held), Some((_, Deaf::Late))) if held.watch == number => held.events.push(event),
                    (None, Some((at, deaf))) if at == self.heard => {
                        let events = if matches!(deaf, Deaf::Late) { vec![event] } else { vec![] };
                        self.held = Some(Held { watch: number, rounds: HELD_BACK, events });
                    }
                    _ => drop(watch.deliver(event)),
                }
            }
        }
    }

    /// After some rounds, what was held back is heard, and a watch that missed something begins anew.
    fn end_deafness(&mut self) {
        let Some(held) = &mut self.held else { return };
        held.rounds = held.rounds.saturating_sub(1);
        if held.rounds > 0 {
            return;
        }
        let (held, deaf) = (self.held.take(), self.deaf.take());
        let (Some(held), Some((_, deaf))) = (held, deaf) else { return };
        // A process that died meanwhile took its watches along.
        let Some(watch) = self.watches.get_mut(held.watch) else { return };
        match deaf {
            Deaf::Late => held.events.into_iter().for_each(|event| drop(watch.deliver(event))),
            Deaf::Never => watch.interrupt(),
        }
    }

    /// Whether something is held back.
    pub fn is_deaf(&self) -> bool {
        self.held.is_some()
    }

    /// How often the cluster could not be read.
    pub fn unreadable(&self) -> u64 {
        self.operator.caches().clusters.unreadable()
    }

    /// The operator's watch brings this as the cluster.
    pub fn deliver_cluster(&self, cluster: Value) {
        let watch = self.watches.iter().find(|watch| watch.cache().resource.plural == "postgresclusters").unwrap();
        watch.deliver(Event::Apply(Arc::new(cluster)));
    }

    /// One pass; a second goes by.
    pub fn pass(&mut self, mut decide: impl FnMut(&Request) -> Fate) {
        self.now += SignedDuration::from_secs(1);
        let mut step = self.operator.begin(&self.key, self.now);
        while let Step::Asks(pass, request) = step {
            let fate = decide(&request);
            if matches!(fate, Fate::NotAlone) {
                self.pass_of_another();
            }
            let carried_out = !matches!(fate, Fate::CrashBefore | Fate::Refused(_));
            let answer = carried_out.then(|| serve(&mut self.store, &request, self.now));
            self.log.push(request);
            step = match (fate, answer) {
                (Fate::Refused(error), _) => pass.resume(Err(error)),
                (Fate::Lost, _) => pass.resume(lost()),
                (Fate::Served | Fate::NotAlone, Some(answer)) => pass.resume(answer),
                (Fate::IntoThePast, _) => {
                    drop(pass);
                    (self.operator, self.watches) = self.spare.take().unwrap();
                    return;
                }
                (Fate::CrashBefore | Fate::CrashAfter | Fate::Served | Fate::NotAlone, _) => {
                    drop(pass);
                    return self.restart();
                }
            };
        }
    }

    fn pass_of_another(&mut self) {
        let (another, mut watches) = self.spare.take().unwrap();
        deliver(&mut watches, &self.store);
        let mut step = another.begin(&self.key, self.now);
        while let Step::Asks(pass, request) = step {
            step = pass.resume(serve(&mut self.store, &request, self.now));
        }
        self.spare = Some((another, watches));
    }

    /// The process is gone, with all that it knew, and another one starts.
    pub fn restart(&mut self) {
        self.operator = Operator::start(settings(&self.key), 8);
        self.watches = self.operator.watches();
    }

    pub fn names(&self, plural: &str) -> Vec<String> {
        self.list(plural).iter().map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    pub fn cluster(&self) -> Value {
        self.list("postgresclusters").remove(0)
    }

    /// Every object of the namespace as it is.
    pub fn everything(&self) -> Vec<Value> {
        self.plurals().flat_map(|plural| self.list(&plural)).collect()
    }

    /// Kind and name of every object of the namespace, events apart: an accident may be worth telling.
    pub fn shape(&self) -> Vec<String> {
        let plurals = self.plurals().filter(|plural| plural != "events");
        plurals.flat_map(|plural| self.names(&plural).into_iter().map(move |name| format!("{plural}/{name}"))).collect()
    }

    pub fn plurals(&self) -> impl Iterator<Item = String> {
        self.store.resources().into_iter().filter(|one| one.namespaced).map(|one| one.plural.clone())
    }

    pub fn list(&self, plural: &str) -> Vec<Value> {
        let resource = self.store.resources().into_iter().find(|resource| resource.plural == plural).unwrap();
        let page = self.store.list(&resource, Some(&self.key.namespace), &ListOptions::default()).unwrap();
        page.items.iter().map(|object| Value::clone(object)).collect()
    }

    /// Somebody changes it.
    pub fn merge(&mut self, plural: &str, name: &str, subresource: Subresource, patch: &Value) {
        let (mut target, write) = (self.target(plural, name), self.by_a_user());
        target.subresource = subresource;
        self.store.patch(&target, PatchKind::Merge, patch, &write).unwrap();
    }

    /// Its contents, decoded.
    pub fn secret(&self, name: &str, key: &str) -> String {
        let secrets = self.list("secrets");
        let secret = secrets.iter().find(|secret| secret["metadata"]["name"] == name).unwrap();
        String::from_utf8(BASE64.decode(secret["data"][key].as_str().unwrap()).unwrap()).unwrap()
    }

    pub fn create(&mut self, plural: &str, object: Value) {
        let (target, write) = (self.target(plural, ""), self.by_a_user());
        self.store.create(&target, object, &write).unwrap();
    }

    /// Somebody deletes it. What has a finalizer, as a namespace has, stays on its way out.
    pub fn delete(&mut self, plural: &str, name: &str) {
        let (target, write) = (self.target(plural, name), self.by_a_user());
        let at_once = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
        self.store.delete(&target, &at_once, &write).unwrap();
    }

    pub fn target(&self, plural: &str, name: &str) -> Target {
        let resource = self.store.resources().into_iter().find(|resource| resource.plural == plural).unwrap();
        let namespace = resource.namespaced.then(|| self.key.namespace.clone());
        Target { resource, namespace, name: name.to_owned(), subresource: Subresource::Main }
    }

    pub fn by(&self, manager: &str) -> Write {
        Write { manager: manager.to_owned(), force: true, ..self.by_a_user() }
    }

    fn by_a_user(&self) -> Write {
        Write {
            now: self.now,
            manager: "a user".into(),
            dry_run: false,
            force: false,
            validation: FieldValidation::Strict,
        }
    }
}

fn deliver(watches: &mut [Watch], store: &Store) {
    for watch in watches {
        for event in watch.news(store) {
            watch.deliver(event);
        }
    }
}

fn settings(key: &Key) -> Settings {
    Settings { namespaces: Namespaces::Only([key.namespace.clone()].into()), ..Settings::default() }
}
