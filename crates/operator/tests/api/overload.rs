//! An API server that says that it is too much.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bellwether_core::object::Kind;
use bellwether_runtime::leader::Timing;
use hyper::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::json;

use crate::leader::{holder, until_leads, until_renewed};
use crate::stage::{SYSTEM_NAMESPACE, Stage};

/// Refuses so many requests with 429, and asks to be left alone for so many seconds. Nothing that is about the leader's Lease.
fn refusing(client: Client, refusals: usize, pause: u64, refused: &Arc<AtomicUsize>) -> Client {
    let refused = refused.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, refused) = (client.clone(), refused.clone());
        async move {
            let path = request.uri().path();
            let spared = path.contains(SYSTEM_NAMESPACE) || path.ends_with("selfsubjectaccessreviews");
            if spared || refused.load(Ordering::SeqCst) >= refusals {
                return client.send(request).await;
            }
            refused.fetch_add(1, Ordering::SeqCst);
            let status = json!({"kind": "Status", "code": 429, "reason": "TooManyRequests", "message": "too much"});
            let body = Body::from(status.to_string().into_bytes());
            let response = Response::builder().status(429).header("retry-after", pause.to_string()).body(body);
            Ok(response.unwrap())
        }
    });
    Client::new(service, "default")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_that_was_refused_leaves_the_api_server_alone_and_goes_on_after_that() {
    let (stage, refused) = (Stage::set().await, Arc::<AtomicUsize>::default());
    let operator = stage.candidate_by("alpha", Timing::default(), |client| refusing(client, 15, 1, &refused)).await;
    stage.create_cluster("orders", json!({"replicas": 1})).await;
    stage.wait("orders", "orders has a status", |cluster| cluster.status.is_some()).await;
    assert_eq!(refused.load(Ordering::SeqCst), 15);
    operator.stop().await;
    stage.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leader_keeps_its_lease_and_gives_it_back_while_everything_else_is_held() {
    let (stage, refused) = (Stage::set().await, Arc::<AtomicUsize>::default());
    let refuse = |client| refusing(client, usize::MAX, 60, &refused);
    let operator = stage.candidate_by("alpha", Timing::default(), refuse).await;
    until_leads(&stage, "alpha").await;
    until_renewed(&stage, 3).await;
    // Those that were on their way together: a list for each kind.
    let refused = refused.load(Ordering::SeqCst);
    assert!((1..=1 + Kind::ALL.len()).contains(&refused), "{refused}");
    operator.stop().await;
    assert_eq!(holder(&stage).await, None, "it was given back");
    stage.server.shutdown().await;
}
