//! Sees every request that a client sends: counts answers by verb and code, knows when each kind was last asked for and what was
//! heard of it, and gives up on who doesn't begin to answer, or falls silent in the middle.
//!
//! Never: a request that waits for ever for the first byte of its answer, or for the next one. Watches have no deadline as a whole,
//! but the API server answers them at once too, and ends them when it was asked to; a list or a watch that hung would wedge its
//! cache until the process is restarted.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Request, Response, Uri};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use kube::client::Body;
use tokio::time::{Instant, Sleep};
use tower::{BoxError, Layer, Service};

use crate::client::{DeadlinePassed, REQUEST_TIMEOUT};

/// How a request was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answered {
    /// With this HTTP status code.
    Code(u16),
    /// Not at all, or not in time.
    Never,
}

/// What was sent by one client and its clones.
#[derive(Debug, Default)]
pub struct Traffic {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Verbs are words of the client's own and codes are those of HTTP: this does not grow.
    answers: BTreeMap<(&'static str, Answered), u64>,
    /// By path, for lists and watches only: one entry for each kind and namespace that is watched.
    looked: BTreeMap<String, Instant>,
    /// By path: how many watches in a row were accepted, and then nothing came.
    silences: BTreeMap<String, u32>,
}

/// How much later than it was asked to the API server may end a watch: the end has to travel. kube's watcher gives up two seconds
/// later, and does not say so.
const END_TRAVELS: Duration = Duration::from_secs(3);

/// Nothing came for so long, neither news nor a bookmark nor the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing was heard for {} s", .0.as_secs())]
pub struct Silent(pub Duration);

/// For how long the answer to this request may be silent before it is given up. A watch says itself when it is to end; a list has
/// nothing to wait for.
fn silent_after(verb: &str, uri: &Uri) -> Option<Duration> {
    match verb {
        "watch" => {
            let mut options = uri.query().unwrap_or_default().split('&');
            let ends = options.find_map(|option| option.strip_prefix("timeoutSeconds="))?.parse().ok()?;
            Some(Duration::from_secs(ends) + END_TRAVELS)
        }
        "list" => Some(REQUEST_TIMEOUT),
        _ => None,
    }
}

impl Traffic {
    /// How many requests were answered how, by verb.
    pub fn answers(&self) -> BTreeMap<(&'static str, Answered), u64> {
        self.state().answers.clone()
    }

    /// When the collection at this path was last listed or watched, or tried to.
    pub fn last_look(&self, path: &str) -> Option<Instant> {
        self.state().looked.get(path).copied()
    }

    /// How many watches of this collection in a row were accepted and then silent for too long.
    pub fn silences(&self, path: &str) -> u32 {
        self.state().silences.get(path).copied().unwrap_or(0)
    }

    fn heard(&self, path: &str) {
        self.state().silences.remove(path);
    }

    fn silent(&self, path: &str) {
        *self.state().silences.entry(path.to_owned()).or_insert(0) += 1;
    }

    fn sent(&self, verb: &'static str, path: &str) {
        if matches!(verb, "list" | "watch") {
            self.state().looked.insert(path.to_owned(), Instant::now());
        }
    }

    fn answered(&self, verb: &'static str, answered: Answered) {
        *self.state().answers.entry((verb, answered)).or_insert(0) += 1;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Puts [`Traffic`] between a client and the network.
#[derive(Clone, Debug)]
pub struct Observed(pub Arc<Traffic>);

impl<S> Layer<S> for Observed {
    type Service = Observing<S>;

    fn layer(&self, inner: S) -> Observing<S> {
        Observing { inner, traffic: self.0.clone() }
    }
}

/// The service that [`Observed`] makes.
#[derive(Clone, Debug)]
pub struct Observing<S> {
    inner: S,
    traffic: Arc<Traffic>,
}

impl<S, B> Service<Request<Body>> for Observing<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
{
    type Response = Response<Heard<B>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // kube says what it is about to do; what it doesn't name is none of our requests.
        let verb = request.extensions().get::<&'static str>().copied().unwrap_or("other");
        self.traffic.sent(verb, request.uri().path());
        let (limit, path) = (silent_after(verb, request.uri()), request.uri().path().to_owned());
        let (traffic, answer) = (self.traffic.clone(), self.inner.call(request));
        Box::pin(async move {
            let answer = tokio::time::timeout(REQUEST_TIMEOUT, answer).await;
            let (answered, answer) = match answer {
                Ok(Ok(answer)) => (Answered::Code(answer.status().as_u16()), Ok(answer)),
                Ok(Err(error)) => (Answered::Never, Err(error.into())),
                Err(_) => (Answered::Never, Err(DeadlinePassed(REQUEST_TIMEOUT).into())),
            };
            traffic.answered(verb, answered);
            // Only of watches it is told: a list that hangs says nothing of them, nor does one that is answered.
            let watch = (verb == "watch").then_some((traffic, path));
            let ear = limit.map(|limit| Ear { watch, limit, alarm: Box::pin(tokio::time::sleep(limit)) });
            answer.map(|answer| answer.map(|body| Heard { body, ear }))
        })
    }
}

/// The body of an answer that must not be silent for too long.
#[derive(Debug)]
pub struct Heard<B> {
    body: B,
    ear: Option<Ear>,
}

#[derive(Debug)]
struct Ear {
    /// Who is told, and of which watch.
    watch: Option<(Arc<Traffic>, String)>,
    limit: Duration,
    alarm: Pin<Box<Sleep>>,
}

impl Ear {
    fn heard(&mut self) {
        self.alarm.as_mut().reset(Instant::now() + self.limit);
        if let Some((traffic, path)) = &self.watch {
            traffic.heard(path);
        }
    }

    fn silent(&self) -> Silent {
        if let Some((traffic, path)) = &self.watch {
            traffic.silent(path);
        }
        Silent(self.limit)
    }
}

impl<B> HttpBody for Heard<B>
where
    B: HttpBody + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let this = &mut *self;
        match (Pin::new(&mut this.body).poll_frame(context), &mut this.ear) {
            (Poll::Pending, Some(ear)) => {
                ready!(ear.alarm.as_mut().poll(context));
                Poll::Ready(Some(Err(ear.silent().into())))
            }
            // An end that was to be expected is a sign of life too. A broken connection is none, and no silence either.
            (frame @ Poll::Ready(None | Some(Ok(_))), Some(ear)) => {
                ear.heard();
                frame.map_err(Into::into)
            }
            (frame, _) => frame.map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::StreamExt;
    use http_body_util::StreamBody;
    use hyper::body::Bytes;
    use k8s_openapi::api::core::v1::Pod;
    use kube::api::{Api, ListParams};
    use kube::client::ClientBuilder;

    use super::*;

    /// A client whose requests are answered with 404, or, with a namespace called `nowhere`, never.
    fn client(traffic: &Arc<Traffic>) -> kube::Client {
        let answer = tower::service_fn(|request: Request<Body>| async move {
            if request.uri().path().contains("nowhere") {
                std::future::pending::<()>().await;
            }
            Response::builder().status(404).body(Body::empty())
        });
        ClientBuilder::new(answer, "default").with_layer(&Observed(traffic.clone())).build()
    }

    #[tokio::test(start_paused = true)]
    async fn answers_are_counted_by_verb_and_code() {
        let traffic = Arc::<Traffic>::default();
        let pods: Api<Pod> = Api::namespaced(client(&traffic), "shop");
        pods.get("a").await.unwrap_err();
        pods.get("b").await.unwrap_err();
        assert_eq!(traffic.answers(), BTreeMap::from([(("get", Answered::Code(404)), 2)]));
        assert_eq!(traffic.last_look("/api/v1/namespaces/shop/pods"), None);
        pods.list(&ListParams::default()).await.unwrap_err();
        assert!(traffic.last_look("/api/v1/namespaces/shop/pods").is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_is_never_answered_is_given_up() {
        let traffic = Arc::<Traffic>::default();
        let pods: Api<Pod> = Api::namespaced(client(&traffic), "nowhere");
        let error = pods.list(&ListParams::default()).await.unwrap_err();
        assert!(format!("{error:?}").contains("DeadlinePassed"), "{error:?}");
        assert_eq!(traffic.answers(), BTreeMap::from([(("list", Answered::Never), 1)]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_hangs_in_the_middle_is_given_up() {
        let answer = tower::service_fn(|_: Request<Body>| async {
            let begun = futures::stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"{\"items\": [")))]);
            Ok::<_, Infallible>(Response::new(StreamBody::new(begun.chain(futures::stream::pending()))))
        });
        let traffic = Arc::<Traffic>::default();
        let client = ClientBuilder::new(answer, "default").with_layer(&Observed(traffic.clone())).build();
        let error = Api::<Pod>::namespaced(client, "shop").list(&ListParams::default()).await.unwrap_err();
        assert!(format!("{error:?}").contains("Silent"), "{error:?}");
        assert_eq!(traffic.silences("/api/v1/namespaces/shop/pods"), 0, "a slow API server is no reason to restart");
    }

    #[test]
    fn a_watch_says_itself_when_its_silence_is_too_long() {
        let after = |verb, target: &str| silent_after(verb, &target.parse().unwrap()).map(|limit| limit.as_secs());
        assert_eq!(after("watch", "/api/v1/pods?watch=true&timeoutSeconds=120&allowWatchBookmarks=true"), Some(123));
        assert_eq!(after("watch", "/api/v1/pods?watch=true"), None, "nobody knows when it is to end");
        assert_eq!(after("get", "/api/v1/namespaces/shop/pods/orders-1"), None, "who asks has a deadline");
    }
}
