//! A store, one operator, and whoever decides what becomes of its requests.

use bellwether_api::v1;
use bellwether_apiserver::request::{DeleteOptions, FieldValidation, ListOptions, Subresource, Target, Write};
use bellwether_apiserver::store::{Ids, Store};
use bellwether_operator::Settings;
use bellwether_operator::port::simulated::{Operator, Step, Watch, lost, serve};
use bellwether_operator::port::{CallError, Request};
use bellwether_runtime::watch::{Key, Namespaces};
use jiff::{SignedDuration, Timestamp};
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
}

pub struct World {
    pub store: Store,
    pub log: Vec<Request>,
    operator: Operator,
    watches: Vec<Watch>,
    key: Key,
    now: Timestamp,
}

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
    /// An API server that knows our kind, and nothing else.
    pub fn new() -> Self {
        let store = Store::in_memory(Box::<Counter>::default());
        let key = Key { namespace: "default".into(), name: "orders".into() };
        let operator = Operator::start(settings(&key), 7);
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let mut world = Self { store, log: vec![], watches: operator.watches(), operator, key, now };
        world.create("customresourcedefinitions", serde_json::to_value(v1::crd()).unwrap());
        world
    }

    /// A cluster `orders` in a namespace of its own, and an operator that looks after that namespace only.
    pub fn with_cluster(mut self, namespace: &str, replicas: i32) -> Self {
        self.log.clear();
        self.create("namespaces", json!({"metadata": {"name": namespace}}));
        self.key.namespace = namespace.to_owned();
        self.restart();
        let spec = json!({"replicas": replicas});
        self.create(
            "postgresclusters",
            json!({
                "apiVersion": "bellwether.dev/v1", "kind": "PostgresCluster", "metadata": {"name": "orders"}, "spec": spec,
            }),
        );
        self
    }

    /// Everything that there is to see reaches the operator.
    pub fn look(&mut self) {
        for watch in &mut self.watches {
            for event in watch.news(&self.store) {
                watch.deliver(event);
            }
        }
    }

    /// One pass; a second goes by.
    pub fn pass(&mut self, mut decide: impl FnMut(&Request) -> Fate) {
        self.now += SignedDuration::from_secs(1);
        let mut step = self.operator.begin(&self.key, self.now);
        while let Step::Asks(pass, request) = step {
            let fate = decide(&request);
            let carried_out = !matches!(fate, Fate::CrashBefore | Fate::Refused(_));
            let answer = carried_out.then(|| serve(&mut self.store, &request, self.now));
            self.log.push(request);
            step = match (fate, answer) {
                (Fate::Refused(error), _) => pass.resume(Err(error)),
                (Fate::Lost, _) => pass.resume(lost()),
                (Fate::Served, Some(answer)) => pass.resume(answer),
                (Fate::CrashBefore | Fate::CrashAfter | Fate::Served, _) => {
                    drop(pass);
                    return self.restart();
                }
            };
        }
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

    fn plurals(&self) -> impl Iterator<Item = String> {
        self.store.resources().into_iter().filter(|one| one.namespaced).map(|one| one.plural.clone())
    }

    fn list(&self, plural: &str) -> Vec<Value> {
        let resource = self.store.resources().into_iter().find(|resource| resource.plural == plural).unwrap();
        let page = self.store.list(&resource, Some(&self.key.namespace), &ListOptions::default()).unwrap();
        page.items.iter().map(|object| Value::clone(object)).collect()
    }

    fn create(&mut self, plural: &str, object: Value) {
        let (target, write) = (self.target(plural, ""), self.by_a_user());
        self.store.create(&target, object, &write).unwrap();
    }

    /// Somebody deletes it. What has a finalizer, as a namespace has, stays on its way out.
    pub fn delete(&mut self, plural: &str, name: &str) {
        let (target, write) = (self.target(plural, name), self.by_a_user());
        let at_once = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
        self.store.delete(&target, &at_once, &write).unwrap();
    }

    fn target(&self, plural: &str, name: &str) -> Target {
        let resource = self.store.resources().into_iter().find(|resource| resource.plural == plural).unwrap();
        let namespace = resource.namespaced.then(|| self.key.namespace.clone());
        Target { resource, namespace, name: name.to_owned(), subresource: Subresource::Main }
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

fn settings(key: &Key) -> Settings {
    Settings { namespaces: Namespaces::Only([key.namespace.clone()].into()), ..Settings::default() }
}
