//! The port without a world: whoever drives a pass hears each request as data and decides what comes of it.
//!
//! ```text
//! let mut step = operator.begin(&key, now);             // runs up to its first request
//! loop {
//!     match step {
//!         Step::Asks(pass, request) => {
//!             // before the write: drop the pass (a crash), or answer with an error without serving
//!             let answer = serve(&mut store, &request, now);
//!             // after the write: drop the pass, or answer `lost()` although it was carried out
//!             step = pass.resume(answer);
//!         }
//!         Step::Done(outcome) => break,                 // feeds `queue::Rules::finish`
//!     }
//! }
//! ```
//!
//! No runtime, no thread, no clock: the pass is polled with a waker that does nothing. [`Watch`] reads the store as the operator's
//! watches do; its events go into the caches when the driver says so, by [`Cache::take`], as in production. Several passes of one
//! operator may be in flight at once; each has its own request.
//!
//! Never: an answer that went to another pass, or a run that differs for the same inputs.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bellwether_api::labels;
use bellwether_apiserver::error::ApiError;
use bellwether_apiserver::request::{
    DeleteOptions, FieldValidation, ListOptions, PatchKind, Subresource, Target, WatchKind, Write,
};
use bellwether_apiserver::store::{Cursor, Store, WatchFrom};
use bellwether_core::object::hash;
use bellwether_runtime::queue::Outcome;
use bellwether_runtime::watch::{Cache, Key};
use jiff::Timestamp;
use kube::api::ApiResource;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};

use super::{Answer, CallError, Port, Request, Verb};
use crate::caches::Caches;
use crate::events::Events;
use crate::familiar::Familiars;
use crate::metrics::Corrections;
use crate::mint::{Mint, MintError, Pair, Subject, Validity};
use crate::reconcile::Reconciler;
use crate::settings::Settings;

/// An operator process. Dropping it is a crash: the next one begins with empty caches.
pub struct Operator {
    reconciler: Rc<Reconciler<Simulated>>,
}

/// A pass that waits for an answer. Dropping it is a crash of the operator in the middle of it.
pub struct Pass {
    future: Pin<Box<dyn Future<Output = Outcome>>>,
    operator: Rc<Reconciler<Simulated>>,
}

/// How far a pass has come.
pub enum Step {
    /// It asks, and goes on when it is resumed with an answer.
    Asks(Pass, Request),
    /// It is over.
    Done(Outcome),
}

/// The port of a simulated operator.
pub struct Simulated {
    now: Cell<Timestamp>,
    chance: Cell<u64>,
    mint: Counterfeit,
    /// Between a pass that asks and the driver, within one poll.
    asked: RefCell<Option<Request>>,
    /// Between the driver and the pass that is resumed, within one poll.
    answer: RefCell<Option<Answer>>,
}

impl Operator {
    /// A process that has just started. The seed is all the chance that it has.
    pub fn start(settings: Settings, seed: u64) -> Self {
        let port = Simulated {
            now: Cell::new(Timestamp::UNIX_EPOCH),
            chance: Cell::new(seed),
            mint: Counterfeit { seed, made: Cell::new(0) },
            asked: RefCell::default(),
            answer: RefCell::default(),
        };
        let caches = Caches::new(&settings.namespaces);
        Self {
            reconciler: Rc::new(Reconciler {
                port,
                caches,
                settings,
                events: Events::default(),
                familiars: Familiars::default(),
                corrections: Corrections::default(),
            }),
        }
    }

    /// What it believes of the world.
    pub fn caches(&self) -> &Caches {
        &self.reconciler.caches
    }

    /// Its watches, none of which has looked yet: one for each kind and namespace.
    pub fn watches(&self) -> Vec<Watch> {
        let scopes = self.reconciler.settings.namespaces.scopes();
        let watch =
            |cache: &Arc<Cache>, scope: &String| Watch { cache: cache.clone(), scope: scope.clone(), cursor: None };
        self.caches().all().flat_map(|cache| scopes.iter().map(move |scope| watch(cache, scope))).collect()
    }

    /// Begins a pass over one cluster and runs it up to its first request.
    pub fn begin(&self, key: &Key, now: Timestamp) -> Step {
        self.reconciler.port.now.set(now);
        let (operator, key) = (self.reconciler.clone(), key.clone());
        let future = Box::pin(async move { operator.reconcile(&key).await });
        Pass { future, operator: self.reconciler.clone() }.go_on()
    }
}

impl Pass {
    /// Gives the answer to what it asked, and runs it up to its next request.
    pub fn resume(self, answer: Answer) -> Step {
        self.operator.port.answer.replace(Some(answer));
        self.go_on()
    }

    fn go_on(mut self) -> Step {
        match self.future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => Step::Done(outcome),
            Poll::Pending => {
                let request = self.operator.port.asked.take();
                let request = request.expect("a pass waits for nothing but the answer to a request of its own");
                Step::Asks(self, request)
            }
        }
    }
}

impl Port for Simulated {
    async fn send(&self, request: Request) -> Answer {
        let mut request = Some(request);
        std::future::poll_fn(|_| match request.take() {
            Some(request) => {
                self.asked.replace(Some(request));
                Poll::Pending
            }
            None => self.answer.take().map_or(Poll::Pending, Poll::Ready),
        })
        .await
    }

    fn now(&self) -> Timestamp {
        self.now.get()
    }

    /// SplitMix64: small, and every seed is a good one.
    fn fraction(&self) -> f64 {
        let state = self.chance.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.chance.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        // Thirty-two bits are more than any jitter needs, and exact in a float.
        f64::from(u32::try_from((mixed ^ (mixed >> 31)) >> 32).unwrap_or(0)) / f64::from(u32::MAX)
    }

    fn mint(&self) -> &dyn Mint {
        &self.mint
    }
}

/// Materials that cost nothing and say what they are. No two are alike; a certificate names the key of the authority that issued
/// it, so that a test can see whether it still belongs to it.
struct Counterfeit {
    seed: u64,
    made: Cell<u64>,
}

impl Counterfeit {
    fn unique(&self, what: &str) -> Vec<u8> {
        self.made.set(self.made.get() + 1);
        format!("simulated {what} {:016x}-{}", self.seed, self.made.get()).into_bytes()
    }
}

impl Mint for Counterfeit {
    fn password(&self) -> Result<Vec<u8>, MintError> {
        Ok(self.unique("password"))
    }

    fn authority(&self, common_name: &str, key: Option<&[u8]>, validity: Validity) -> Result<Pair, MintError> {
        let key = key.map_or_else(|| self.unique("key"), <[u8]>::to_vec);
        let certificate = format!("simulated authority {common_name} until {}", validity.not_after);
        Ok(Pair { certificate: certificate.into_bytes(), key })
    }

    fn issue(&self, subject: Subject<'_>, authority: &Pair, validity: Validity) -> Result<Pair, MintError> {
        let issuer = hash(&json!(authority.key));
        let certificate = format!("simulated {subject:?} until {} by key {issuer}", validity.not_after);
        Ok(Pair { certificate: certificate.into_bytes(), key: self.unique("key") })
    }
}

/// Carries out a request as the API server would, for somebody who may do everything.
pub fn serve(store: &mut Store, request: &Request, now: Timestamp) -> Answer {
    let resource = request.resource.api_resource();
    let Some(resource) = store.resource(&resource.group, &resource.version, &resource.plural) else {
        let message = "the server could not find the requested resource".to_owned();
        return Err(CallError::Refused { code: 404, message });
    };
    let target = Target {
        resource,
        namespace: request.resource.place(&request.namespace).map(str::to_owned),
        name: request.name.clone(),
        subresource: Subresource::Main,
    };
    let write = |manager: &str, force: bool| Write {
        now,
        manager: manager.to_owned(),
        dry_run: false,
        force,
        validation: FieldValidation::Warn,
    };
    let own = write(labels::OPERATOR_MANAGER, false);
    let written = match &request.verb {
        Verb::Get => match store.get(&target) {
            Ok(found) => return Ok(Some(found.plain().clone())),
            Err(error) if error.code == 404 => return Ok(None),
            Err(error) => return Err(error.into()),
        },
        Verb::Create(object) => store.create(&target, object.clone(), &own),
        Verb::Apply(object) => store.patch(&target, PatchKind::Apply, object, &write(labels::OPERATOR_MANAGER, true)),
        Verb::ApplyStatus(object) => {
            let target = Target { subresource: Subresource::Status, ..target };
            store.patch(&target, PatchKind::Apply, object, &write(labels::STATUS_MANAGER, true))
        }
        Verb::Merge(patch) => store.patch(&target, PatchKind::Merge, patch, &own),
        Verb::Delete { uid, resource_version } => {
            let (uid, resource_version) = (Some(uid.clone()), Some(resource_version.clone()));
            let options = DeleteOptions { uid, resource_version, ..DeleteOptions::default() };
            store.delete(&target, &options, &own)?;
            return Ok(None);
        }
    };
    Ok(Some(written?.object.plain().clone()))
}

/// The answer that never came, though the request may have been carried out.
pub fn lost() -> Answer {
    Err(CallError::Unanswered { cause: "no answer; whether it was carried out is unknown".to_owned() })
}

impl From<ApiError> for CallError {
    fn from(error: ApiError) -> Self {
        Self::Refused { code: error.code, message: error.message }
    }
}

/// One of the operator's watches: a list first, changes after it, and a list again when history doesn't reach far enough.
pub struct Watch {
    cache: Arc<Cache>,
    /// The namespace, empty for all.
    scope: String,
    cursor: Option<Cursor>,
}

impl Watch {
    /// The cache that it is for.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// What the API server has told since the last time. It reaches the operator when the driver gives it to [`Watch::deliver`].
    pub fn news(&mut self, store: &Store) -> Vec<Event<Arc<Value>>> {
        if let Some(cursor) = &mut self.cursor {
            match store.poll(cursor) {
                Ok(changes) => {
                    let event = |change: bellwether_apiserver::request::WatchEvent| match change.kind {
                        WatchKind::Added | WatchKind::Modified => Event::Apply(change.object.plain().clone()),
                        WatchKind::Deleted => Event::Delete(change.object.plain().clone()),
                    };
                    return changes.into_iter().map(event).collect();
                }
                Err(_too_old) => self.cursor = None,
            }
        }
        self.list(store)
    }

    /// Hands an event to the cache, as the real watch does. Whose objects changed is for the queue.
    pub fn deliver(&self, event: Event<Arc<Value>>) -> Vec<Key> {
        self.cache.take(&self.scope, event)
    }

    /// The connection broke for so long that the next news begin with a list.
    pub fn interrupt(&mut self) {
        self.cursor = None;
    }

    /// Nothing as long as the kind isn't served, as after a CRD was removed.
    fn list(&mut self, store: &Store) -> Vec<Event<Arc<Value>>> {
        let ApiResource { group, version, plural, .. } = &self.cache.resource;
        let Some(resource) = store.resource(group, version, plural) else { return vec![] };
        let options =
            ListOptions { label_selector: self.cache.selector().map(str::to_owned), ..ListOptions::default() };
        let namespace = Some(self.scope.as_str()).filter(|scope| !scope.is_empty());
        let Ok(page) = store.list(&resource, namespace, &options) else { return vec![] };
        self.cursor = store.watch(&resource, namespace, &options, WatchFrom::Revision(page.resource_version)).ok();
        let items = page.items.iter().map(|item| Event::InitApply(item.plain().clone()));
        std::iter::once(Event::Init).chain(items).chain([Event::InitDone]).collect()
    }
}
