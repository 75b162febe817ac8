//! Sees every request that a client sends: counts answers by verb and code, knows when each kind was last asked for, and gives up
//! on who doesn't begin to answer.
//!
//! Never: a request that waits for ever for the first byte of its answer. Watches have no deadline as a whole, but the API server
//! answers them at once too; a list that hung without one would wedge its watch until the process is restarted.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use http::{Request, Response};
use kube::client::Body;
use tokio::time::Instant;
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
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // kube says what it is about to do; what it doesn't name is none of our requests.
        let verb = request.extensions().get::<&'static str>().copied().unwrap_or("other");
        self.traffic.sent(verb, request.uri().path());
        let (traffic, answer) = (self.traffic.clone(), self.inner.call(request));
        Box::pin(async move {
            let answer = tokio::time::timeout(REQUEST_TIMEOUT, answer).await;
            let (answered, answer) = match answer {
                Ok(Ok(answer)) => (Answered::Code(answer.status().as_u16()), Ok(answer)),
                Ok(Err(error)) => (Answered::Never, Err(error.into())),
                Err(_) => (Answered::Never, Err(DeadlinePassed(REQUEST_TIMEOUT).into())),
            };
            traffic.answered(verb, answered);
            answer
        })
    }
}

#[cfg(test)]
mod tests {
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
}
