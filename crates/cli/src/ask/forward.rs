//! A connection to a port of a pod through the API server: the subresource `portforward` over a WebSocket, by `v4.channel.k8s.io`.
//!
//! Each message begins with the number of a channel: 0 has the bytes, 1 what went wrong. The first message on each says the port, and is no part of
//! the connection. Never: an end that looks like a complete answer after the other side said what went wrong.

use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http_body_util::{BodyExt as _, Limited};
use hyper::header::{CONNECTION, HeaderMap, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use hyper::header::{SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use ring::digest;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};

use super::websocket::{Message, Socket};

/// What a kubelet speaks here.
const PROTOCOL: &str = "v4.channel.k8s.io";
/// By which a server shows that it understood (RFC 6455, 1.3).
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const DATA: u8 = 0;
const ERROR: u8 = 1;
/// Between us and whoever reads: more than an agent's answer.
const BUFFER: usize = 64 << 10;
/// An API server's refusal is a few lines.
const REFUSAL_LIMIT: usize = 64 << 10;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// The API server was not reached.
    #[error("the API server: {0}")]
    Api(String),
    /// It said no.
    #[error("{message}")]
    Refused {
        /// The HTTP status.
        code: u16,
        /// In its words.
        message: String,
    },
    /// It doesn't speak this.
    #[error("the API server does not forward ports over WebSockets: {0}")]
    NotSpoken(String),
}

/// Opens one.
pub async fn open(client: &Client, namespace: &str, pod: &str, port: u16) -> Result<DuplexStream, ForwardError> {
    let key = key()?;
    let uri = format!("/api/v1/namespaces/{namespace}/pods/{pod}/portforward?ports={port}");
    let request = Request::get(uri)
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header(SEC_WEBSOCKET_VERSION, "13")
        .header(SEC_WEBSOCKET_KEY, &key)
        .header(SEC_WEBSOCKET_PROTOCOL, PROTOCOL)
        .body(Body::empty())
        .map_err(|error| ForwardError::Api(error.to_string()))?;
    let response = client.send(request).await.map_err(|error| ForwardError::Api(error.to_string()))?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let code = response.status().as_u16();
        return Err(ForwardError::Refused { code, message: refusal(code, response.into_body()).await });
    }
    understood(response.headers(), &key).map_err(ForwardError::NotSpoken)?;
    let upgraded = hyper::upgrade::on(response).await.map_err(|error| ForwardError::Api(error.to_string()))?;
    let (ours, theirs) = tokio::io::duplex(BUFFER);
    // It ends when either end is closed.
    tokio::spawn(pump(Socket::new(TokioIo::new(upgraded)), theirs));
    Ok(ours)
}

fn key() -> Result<String, ForwardError> {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes).map_err(|error| ForwardError::Api(format!("no randomness: {error}")))?;
    Ok(BASE64.encode(bytes))
}

/// The message of the `Status` that refuses it.
async fn refusal(code: u16, body: Body) -> String {
    let read = Limited::new(body, REFUSAL_LIMIT).collect().await;
    let bytes = read.map(|read| read.to_bytes()).unwrap_or_default();
    let status = serde_json::from_slice::<serde_json::Value>(&bytes).ok();
    let message = status.and_then(|status| status["message"].as_str().map(str::to_owned));
    message.filter(|message| !message.is_empty()).unwrap_or_else(|| format!("the API server answered {code}"))
}

/// Whether whoever answered has understood the question.
fn understood(headers: &HeaderMap, key: &str) -> Result<(), String> {
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let hash = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{GUID}").as_bytes());
    if !header(UPGRADE).eq_ignore_ascii_case("websocket") || header(SEC_WEBSOCKET_ACCEPT) != BASE64.encode(hash) {
        return Err("its answer is not one to our question".to_owned());
    }
    match header(SEC_WEBSOCKET_PROTOCOL) {
        PROTOCOL => Ok(()),
        other => Err(format!("it speaks {other:?} and not {PROTOCOL}")),
    }
}

/// Carries bytes both ways until one of the ends has had enough.
async fn pump<S: AsyncRead + AsyncWrite + Unpin>(mut socket: Socket<S>, mut local: DuplexStream) -> io::Result<()> {
    let mut buffer = vec![0; 16 << 10];
    let mut greeted = [false; 2];
    loop {
        tokio::select! {
            message = socket.next() => match message? {
                Message::Data(bytes) => {
                    let Some((channel, bytes)) = bytes.split_first() else { continue };
                    let Some(greeted) = greeted.get_mut(usize::from(*channel)) else { continue };
                    if !std::mem::replace(greeted, true) {
                        continue;
                    }
                    match *channel {
                        DATA => local.write_all(bytes).await?,
                        ERROR => {
                            // Whoever reads sees the connection end, in the middle of what it waited for.
                            tracing::debug!(why = %String::from_utf8_lossy(bytes), "the forwarded connection failed");
                            return Ok(());
                        }
                        _ => {}
                    }
                }
                Message::End => return local.shutdown().await,
            },
            read = local.read(&mut buffer) => match read? {
                0 => return socket.close().await,
                count => {
                    let mut message = Vec::with_capacity(count + 1);
                    message.push(DATA);
                    message.extend_from_slice(&buffer[..count]);
                    socket.send(&message).await?;
                }
            },
        }
    }
}

#[cfg(test)]
mod tests;
