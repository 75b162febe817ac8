//! The port to a real API server: kube's client, the system's clock and randomness.
//!
//! Never: a call without a deadline (a worker would be held by it), one that is sent again here (the queue decides when), one that
//! is sent by a process that does not lead at that moment, however its tasks were scheduled, or one that is begun when the process
//! has no time left to hear its answer.

use std::sync::Arc;

use bellwether_api::labels;
use bellwether_runtime::client::within;
use bellwether_runtime::leader::Office;
use jiff::Timestamp;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{Answer, CallError, Port, Request, Verb};
use crate::mint::{Genuine, Mint};

/// The API server behind a client.
#[derive(Clone)]
pub struct Kube {
    client: Client,
    office: Office,
    closed: CancellationToken,
}

impl Kube {
    /// By this client, as long as the office is held and until the port is closed. A pass ends at its next request then: between
    /// two requests it may end anywhere, as if the process had crashed there.
    pub fn new(client: Client, office: Office, closed: CancellationToken) -> Self {
        Self { client, office, closed }
    }
}

impl Port for Kube {
    async fn send(&self, request: Request) -> Answer {
        if !self.office.held() {
            return Err(CallError::Unanswered { cause: "not sent: another operator may lead by now".to_owned() });
        }
        if self.closed.is_cancelled() {
            return Err(CallError::Unanswered { cause: "not sent: the operator is shutting down".to_owned() });
        }
        let resource = request.resource.api_resource();
        let api: Api<DynamicObject> = match request.resource.place(&request.namespace) {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        match within(carry_out(&api, &request.name, request.verb)).await {
            Ok(answer) => answer,
            Err(late) => Err(CallError::Unanswered { cause: late.to_string() }),
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn fraction(&self) -> f64 {
        let mut bytes = [0u8; 2];
        // Without randomness everybody comes at once, which is a burden and not an error.
        let _ = getrandom::fill(&mut bytes);
        f64::from(u16::from_le_bytes(bytes)) / f64::from(u16::MAX)
    }

    fn mint(&self) -> &dyn Mint {
        &Genuine
    }
}

async fn carry_out(api: &Api<DynamicObject>, name: &str, verb: Verb) -> Answer {
    let manager = || Some(labels::OPERATOR_MANAGER.to_owned());
    let written = match verb {
        Verb::Get => return Ok(api.get_opt(name).await?.map(|found| json(&found))),
        Verb::Create(object) => {
            let params = PostParams { field_manager: manager(), ..PostParams::default() };
            api.create(&params, &readable(object)?).await
        }
        Verb::Apply(object) => {
            api.patch(name, &PatchParams::apply(labels::OPERATOR_MANAGER).force(), &Patch::Apply(&*object)).await
        }
        Verb::ApplyStatus(object) => {
            api.patch_status(name, &PatchParams::apply(labels::STATUS_MANAGER).force(), &Patch::Apply(&object)).await
        }
        Verb::Merge(patch) => {
            let params = PatchParams { field_manager: manager(), ..PatchParams::default() };
            api.patch(name, &params, &Patch::Merge(&patch)).await
        }
        Verb::Delete { uid, resource_version } => {
            let preconditions = Preconditions { uid: Some(uid), resource_version: Some(resource_version) };
            let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            return api.delete(name, &params).await.map(|_| None).map_err(|error| error.into());
        }
    };
    Ok(Some(json(&written?)))
}

fn json(object: &DynamicObject) -> Arc<Value> {
    // It came from JSON.
    Arc::new(serde_json::to_value(object).unwrap_or_default())
}

/// What we build always is an object; were it not, the API server would say the same.
fn readable(object: Value) -> Result<DynamicObject, CallError> {
    serde_json::from_value(object).map_err(|error| CallError::Refused { code: 400, message: error.to_string() })
}

impl From<kube::Error> for CallError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::Refused { code: status.code, message: status.message },
            other => Self::Unanswered { cause: other.to_string() },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http_body_util::Full;
    use hyper::body::Bytes;
    use hyper::{Request as HttpRequest, Response};

    use super::*;
    use crate::port::Resource;

    #[tokio::test]
    async fn nothing_is_begun_when_the_port_is_closed() {
        let sent = Arc::new(AtomicUsize::new(0));
        let counted = sent.clone();
        let service = move |_: HttpRequest<kube::client::Body>| {
            counted.fetch_add(1, Ordering::SeqCst);
            let object = r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}"#;
            std::future::ready(Ok::<_, std::convert::Infallible>(Response::new(Full::new(Bytes::from(object)))))
        };
        let closed = CancellationToken::new();
        let port = Kube::new(Client::new(tower::service_fn(service), "default"), Office::always(), closed.clone());
        let read = || Request {
            resource: Resource::Namespace,
            namespace: String::new(),
            name: "shop".to_owned(),
            verb: Verb::Get,
        };
        port.send(read()).await.unwrap();
        closed.cancel();
        let error = port.send(read()).await.unwrap_err();
        assert!(error.to_string().contains("shutting down"), "{error}");
        assert_eq!(sent.load(Ordering::SeqCst), 1);
    }
}
