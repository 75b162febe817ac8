//! Asks the agents themselves, on their HTTPS port: what an operator wrote down may be old, what they say is so now.
//!
//! The question is [`probe::DETAIL`], for holders of a certificate of the cluster's CA: that for replication, from its Secret, which whoever asks
//! must be allowed to read. An agent proves by its own certificate that it is that instance. Never: an answer of somebody else at the address; a
//! wait without end; an agent that could not be asked taken for one that is down, or for one that is well.

pub mod forward;
mod secret;
mod way;
mod websocket;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bellwether_api::names::Names;
use bellwether_core::contract::{AGENT_PORT, Detail, probe};
use bellwether_core::observed::Pod;
use futures::future::join_all;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use kube::Client;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;

pub use way::{NoWay, Stream, to};

/// How long one agent may take. On a healthy network it takes milliseconds, through a port-forward some tens of them.
const WITHIN: Duration = Duration::from_secs(4);
/// More than any agent has to say.
const ANSWER_LIMIT: usize = 1 << 20;

/// What came of asking an agent.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// It said this, just now.
    Said(Box<Detail>),
    /// It was asked, and did not answer: why, as far as that is known.
    Silent(String),
    /// It could not be asked, for a reason that says nothing about it.
    NotAsked(String),
}

impl Answer {
    /// What it said.
    pub fn said(&self) -> Option<&Detail> {
        match self {
            Self::Said(detail) => Some(detail),
            Self::Silent(_) | Self::NotAsked(_) => None,
        }
    }
}

/// Asks the agent of each pod, all at the same time.
pub async fn all<'a>(
    client: &Client,
    namespace: &str,
    cluster: &str,
    pods: impl Iterator<Item = &'a Pod>,
) -> BTreeMap<String, Answer> {
    let names = Names::of(cluster);
    let pods: Vec<_> = pods.collect();
    if pods.is_empty() {
        return BTreeMap::new();
    }
    let tls = secret::client_config(client, namespace, &names).await;
    let answers = pods.into_iter().map(async |pod| {
        let answer = match &tls {
            Ok(tls) => one(client, namespace, &names, pod, tls.clone()).await,
            Err(why) => Answer::NotAsked(why.clone()),
        };
        (pod.name.clone(), answer)
    });
    join_all(answers).await.into_iter().collect()
}

async fn one(client: &Client, namespace: &str, names: &Names, pod: &Pod, tls: Arc<ClientConfig>) -> Answer {
    if pod.ip.is_none() {
        return Answer::Silent("its pod has no address yet".to_owned());
    }
    let host = names.host(&pod.name, namespace);
    let asked = async {
        let stream = to(client, namespace, pod, AGENT_PORT).await.map_err(|lost| match lost {
            NoWay::Refused(why) => Answer::NotAsked(why),
            NoWay::Unreachable(why) => Answer::Silent(why),
        })?;
        detail(stream, &host, tls).await.map(Box::new).map(Answer::Said).map_err(Answer::Silent)
    };
    match tokio::time::timeout(WITHIN, asked).await {
        Ok(answer) => answer.unwrap_or_else(|other| other),
        Err(_) => Answer::Silent(format!("no answer within {} s", WITHIN.as_secs())),
    }
}

async fn detail(stream: Stream, host: &str, tls: Arc<ClientConfig>) -> Result<Detail, String> {
    let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
    let stream =
        TlsConnector::from(tls).connect(name, stream).await.map_err(|error| format!("no TLS with it: {error}"))?;
    let broken = |error: hyper::Error| format!("its answer broke off: {error}");
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let connection = tokio::spawn(connection);
    let asked = async {
        let request = Request::get(probe::DETAIL).header(header::HOST, host).body(Empty::<Bytes>::new());
        let request = request.map_err(|error| error.to_string())?;
        let response = sender.send_request(request).await.map_err(broken)?;
        let status = response.status();
        let body =
            Limited::new(response.into_body(), ANSWER_LIMIT).collect().await.map_err(|error| error.to_string())?;
        let body = body.to_bytes();
        if status != StatusCode::OK {
            return Err(format!("it answered {status}: {}", String::from_utf8_lossy(&body).trim()));
        }
        serde_json::from_slice(&body).map_err(|error| format!("its answer can't be read: {error}"))
    };
    let answer = asked.await;
    connection.abort();
    answer
}
