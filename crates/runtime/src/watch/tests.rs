//! Caches against API servers that hang up, fall silent, forget, and send what nobody can read.

use std::convert::Infallible;
use std::sync::atomic::AtomicUsize;

use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Bytes, Frame};
use kube::client::{Body, ClientBuilder};
use kube::core::GroupVersionKind;
use serde_json::json;
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::loopback::{Answer, Server};
use crate::traffic::{Observed, Traffic};

const PATH: &str = "/api/v1/pods";

fn pod(name: &str, version: u64) -> Value {
    json!({"metadata": {
        "name": name, "namespace": "ns", "uid": name, "resourceVersion": version.to_string(), "labels": {"owner": "o"},
    }})
}
fn list(version: u64, items: &[Value]) -> String {
    let metadata = json!({"resourceVersion": version.to_string()});
    json!({"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items}).to_string()
}
fn event(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": kind, "object": object}))
}
fn is_watch(target: &str) -> bool {
    target.contains("watch=true")
}

/// A cache of pods that is fed by this client until the test is over.
struct Fed {
    cache: Arc<Cache>,
    changed: Arc<Notify>,
    _task: AbortOnDropHandle<()>,
}

fn feed(client: Client) -> Fed {
    let pods = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Pod"), "pods");
    let cache = Cache::new(pods, GroupBy::Label("owner"), &Namespaces::All, None);
    let changed = Arc::<Notify>::default();
    let heard = changed.clone();
    let run = cache.clone().run(client, Namespaces::All, move |_, _| heard.notify_one(), CancellationToken::new());
    Fed { cache, changed, _task: AbortOnDropHandle::new(tokio::spawn(run)) }
}

impl Fed {
    fn names(&self) -> Vec<String> {
        self.cache.group(&Key { namespace: "ns".into(), name: "o".into() }).into_keys().collect()
    }

    /// Waits until the cache holds these pods.
    async fn until(&self, wanted: &[&str]) {
        while self.names() != wanted {
            self.changed.notified().await;
        }
    }
}

#[tokio::test]
async fn a_watch_that_is_hung_up_on_goes_on_where_it_was() {
    let watches = AtomicUsize::new(0);
    let server =
        Server::start(move |_, target| match is_watch(target).then(|| watches.fetch_add(1, Ordering::SeqCst)) {
            None => Answer::new(200, list(5, &[pod("a", 5)])),
            Some(0) => Answer::new(200, event("ADDED", &pod("b", 6))),
            Some(_) if target.contains("resourceVersion=6") => Answer::hanging(event("ADDED", &pod("c", 7))),
            Some(_) => Answer::new(400, "{}"),
        })
        .await;
    let fed = feed(server.client());
    fed.until(&["a", "b", "c"]).await;
    assert_eq!(server.requests(), 3, "nothing was listed again");
}

#[tokio::test]
async fn a_watch_whose_past_is_forgotten_begins_with_a_list() {
    let gone = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"});
    let lists = AtomicUsize::new(0);
    let server = Server::start(move |_, target| {
        if is_watch(target) {
            let expired = lists.load(Ordering::SeqCst) == 1;
            return Answer::hanging(if expired { event("ERROR", &gone) } else { String::new() });
        }
        match lists.fetch_add(1, Ordering::SeqCst) {
            0 => Answer::new(200, list(5, &[pod("a", 5)])),
            _ => Answer::new(200, list(9, &[pod("b", 9)])),
        }
    })
    .await;
    let fed = feed(server.client());
    fed.until(&["b"]).await;
    assert_eq!((fed.cache.breaks(), fed.cache.silences()), (1, 0));
}

type Stalling = UnsyncBoxBody<Bytes, Infallible>;

/// A client whose server accepts every watch, says this to the one with this number, and then nothing.
fn stalling(traffic: &Arc<Traffic>, said: impl Fn(usize) -> String + Send + Sync + 'static) -> Client {
    let watches = Arc::new(AtomicUsize::new(0));
    let said = Arc::new(said);
    let answer = tower::service_fn(move |request: Request<Body>| {
        let (watches, said) = (watches.clone(), said.clone());
        async move {
            let body: Stalling = if is_watch(&request.uri().to_string()) {
                let said = Some(said(watches.fetch_add(1, Ordering::SeqCst))).filter(|said| !said.is_empty());
                let said = futures::stream::iter(said.map(|said| Ok(Frame::data(Bytes::from(said)))));
                StreamBody::new(said.chain(futures::stream::pending())).boxed_unsync()
            } else {
                Full::new(Bytes::from(list(5, &[pod("a", 5)]))).boxed_unsync()
            };
            Ok::<_, Infallible>(Response::new(body))
        }
    });
    ClientBuilder::new(answer, "default").with_layer(&Observed(traffic.clone())).build()
}

#[tokio::test(start_paused = true)]
async fn note_10_a_watch_that_stalls_is_begun_again_counted_and_told_to_liveness() {
    let traffic = Arc::<Traffic>::default();
    let fed = feed(stalling(&traffic, |_| String::new()));
    fed.until(&["a"]).await;
    let minutes = |minutes: u64| tokio::time::sleep(std::time::Duration::from_secs(60 * minutes));
    minutes(1).await;
    assert_eq!((fed.cache.silences(), traffic.silences(PATH)), (0, 0), "not yet");
    minutes(9).await;
    assert!(fed.cache.silences() >= 3, "{}", fed.cache.silences());
    assert!(traffic.silences(PATH) >= 3, "{}", traffic.silences(PATH));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_heard_of_again_after_a_silence_is_well() {
    let traffic = Arc::<Traffic>::default();
    let said = |watch| if watch == 2 { event("ADDED", &pod("b", 6)) } else { String::new() };
    let fed = feed(stalling(&traffic, said));
    fed.until(&["a", "b"]).await;
    assert_eq!((fed.cache.silences(), traffic.silences(PATH)), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn lists_that_fail_one_after_the_other_are_one_break() {
    let lists = Arc::new(AtomicUsize::new(0));
    let answer = tower::service_fn(move |request: Request<Body>| {
        let number = lists.fetch_add(1, Ordering::SeqCst);
        async move {
            let body: Stalling = if is_watch(&request.uri().to_string()) {
                StreamBody::new(futures::stream::pending()).boxed_unsync()
            } else {
                Full::new(Bytes::from(list(5, &[pod("a", 5)]))).boxed_unsync()
            };
            let code = if number < 3 { 500 } else { 200 };
            Response::builder().status(code).body(body)
        }
    });
    let fed = feed(ClientBuilder::new(answer, "default").build());
    fed.until(&["a"]).await;
    assert_eq!(fed.cache.breaks(), 1);
}

#[tokio::test]
async fn an_object_that_nobody_can_read_is_counted_and_stalls_nobody() {
    let unreadable =
        [json!("text"), json!({"metadata": 7}), json!({"metadata": {"name": "x", "namespace": "ns", "labels": []}})];
    let mut broken = pod("broken", 6);
    broken["metadata"]["labels"] = json!({"owner": {"not": "a text"}});
    let news = [broken, pod("b", 7)].map(|object| event("ADDED", &object)).concat();
    let server = Server::start(move |_, target| match is_watch(target) {
        false => Answer::new(200, list(5, &[&unreadable[..], &[pod("a", 5)]].concat())),
        true => Answer::hanging(news.clone()),
    })
    .await;
    let fed = feed(server.client());
    fed.until(&["a", "b"]).await;
    assert_eq!((fed.cache.unreadable(), server.requests()), (4, 2));
}
