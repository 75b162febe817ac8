//! The HTTP client of object stores: hyper on rustls, with a limit for every wait.
//!
//! From: which authorities are trusted, and how long to wait ([`Patience`]). What it says of a failure decides whether the same is sent again: "not sent" only
//! of what can't have reached the store.
//!
//! Never: a wait without end, be it for a connection, an answer or the next byte; plain HTTP where nobody wrote `http://`; a request that may have been
//! carried out called one that was not sent.

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::Uri;
use hyper::body::{Body, Frame, SizeHint};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector as TcpConnector;
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse, HttpResponseBody,
    HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use tokio::time::{Instant, Sleep, timeout};

/// How long a store is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// For a connection.
    pub connect: Duration,
    /// For an answer to a request without a body, and for the next bytes of an answer.
    pub answer: Duration,
    /// No attempt is begun later than this after the first one.
    pub total: Duration,
    /// Attempts after the first one.
    pub retries: usize,
}

impl Default for Patience {
    /// A connection within a region takes milliseconds; five seconds are for a lost packet or two. Stores answer within a second or two, and say 503 rather than
    /// let one wait; what took half a minute is lost. Whoever archives tries again by himself, so that a failure is better told soon.
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { connect: seconds(5), answer: seconds(30), total: seconds(30), retries: 4 }
    }
}

/// Bytes a second that a connection must carry at least: on one that is slower, a segment takes a minute, and a log that is written at that pace
/// never gets out.
const LEAST_RATE: u64 = 256 * 1024;
/// Idle connections are closed before the store does it, which would fail a request that was just being sent. S3 closes them after some twenty seconds.
const IDLE: Duration = Duration::from_secs(15);
/// As many as there are parallel transfers at most.
const IDLE_CONNECTIONS: usize = 16;

impl Patience {
    fn with_bytes(self, bytes: u64) -> Duration {
        self.answer + Duration::from_secs(bytes / LEAST_RATE)
    }
}

/// Makes the clients of one store: of its objects, and of the services that give out credentials for it.
#[derive(Clone)]
pub(super) struct Connector {
    tls: ClientConfig,
    patience: Patience,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("patience", &self.patience).finish_non_exhaustive()
    }
}

impl Connector {
    /// Trusts these authorities and no others.
    pub fn new(trusted: Vec<CertificateDer<'static>>, patience: Patience) -> Result<Self, rustls::Error> {
        let mut roots = rustls::RootCertStore::empty();
        // Of what a system trusts some may be beyond us; what is missing fails where it is needed.
        roots.add_parsable_certificates(trusted);
        let tls = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { tls, patience })
    }
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let plain = options.get_config_value(&ClientConfigKey::AllowHttp).as_deref() == Some("true");
        let mut tcp = TcpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(self.patience.connect));
        tcp.set_keepalive(Some(Duration::from_secs(15)));
        let tls = HttpsConnectorBuilder::new().with_tls_config(self.tls.clone()).https_or_http().enable_http1();
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .build(tls.wrap_connector(tcp));
        Ok(HttpClient::new(Service { client, plain, patience: self.patience }))
    }
}

struct Service {
    client: Client<HttpsConnector<TcpConnector>, HttpRequestBody>,
    plain: bool,
    patience: Patience,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("patience", &self.patience).finish_non_exhaustive()
    }
}

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if !self.plain && !is_https(request.uri()) {
            return Err(HttpError::new(HttpErrorKind::Unknown, Unmet::Plain));
        }
        let limit = self.patience.with_bytes(request.body().content_length() as u64);
        let answer = timeout(limit, self.client.request(request)).await;
        let answer = answer.map_err(|_| HttpError::new(HttpErrorKind::Timeout, Unmet::Answer(limit)))?;
        let patience = self.patience;
        Ok(answer.map_err(failed)?.map(|body| HttpResponseBody::new(Timed::new(body, patience))))
    }
}

fn is_https(uri: &Uri) -> bool {
    uri.scheme_str() == Some("https")
}

/// What can't be waited for any longer, or must not be sent.
#[derive(Debug, thiserror::Error)]
enum Unmet {
    #[error("no plain HTTP: the address of the store must begin with https://, or be written with http://")]
    Plain,
    #[error("no answer within {} s", .0.as_secs_f32())]
    Answer(Duration),
    #[error("the answer stalled: nothing more of it came within {} s", .0.as_secs_f32())]
    Stalled(Duration),
}

fn failed(error: ClientError) -> HttpError {
    let kind = if error.is_connect() { HttpErrorKind::Connect } else { kind(&error) };
    HttpError::new(kind, error)
}

/// What an error means for the request: only a cancelled one was surely not sent. A connection that ended may have carried the request.
fn kind(error: &(dyn StdError + 'static)) -> HttpErrorKind {
    let mut cause = Some(error);
    while let Some(inner) = cause {
        if let Some(error) = inner.downcast_ref::<hyper::Error>() {
            match error {
                error if error.is_canceled() => return HttpErrorKind::Request,
                error if error.is_timeout() => return HttpErrorKind::Timeout,
                error if error.is_parse() => return HttpErrorKind::Decode,
                error if error.is_user() => return HttpErrorKind::Unknown,
                _ => {}
            }
        }
        cause = inner.source();
    }
    HttpErrorKind::Interrupted
}

/// An answer's body that does not keep one waiting. Only waiting is measured: whoever takes his time between two reads does not use it up.
struct Timed<B> {
    body: B,
    patience: Patience,
    arrived: u64,
    waited: Duration,
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl<B> Timed<B> {
    fn new(body: B, patience: Patience) -> Self {
        Self { body, patience, arrived: 0, waited: Duration::ZERO, waiting: None }
    }
}

impl<B> Body for Timed<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: StdError + Send + Sync + 'static,
{
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let this = &mut *self;
        match Pin::new(&mut this.body).poll_frame(cx) {
            Poll::Ready(frame) => {
                if let Some((since, _)) = this.waiting.take() {
                    this.waited += since.elapsed();
                }
                let frame = frame.map(|frame| frame.map_err(|error| HttpError::new(kind(&error), error)));
                if let Some(Ok(frame)) = &frame {
                    this.arrived += frame.data_ref().map_or(0, |data| data.len() as u64);
                }
                Poll::Ready(frame)
            }
            Poll::Pending => {
                // Bytes that trickle in, one just before each limit, would be waited for for ever: all waits together have one too.
                let left = this.patience.with_bytes(this.arrived).saturating_sub(this.waited).min(this.patience.answer);
                let (_, sleep) =
                    this.waiting.get_or_insert_with(|| (Instant::now(), Box::pin(tokio::time::sleep(left))));
                sleep.as_mut().poll(cx).map(|()| {
                    this.waiting = None;
                    Some(Err(HttpError::new(HttpErrorKind::Timeout, Unmet::Stalled(left))))
                })
            }
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

    use futures::stream::{self, StreamExt as _};
    use http_body_util::{BodyExt as _, StreamBody};

    use super::*;

    const PATIENCE: Patience = Patience {
        connect: Duration::from_secs(5),
        answer: Duration::from_secs(10),
        total: Duration::from_secs(30),
        retries: 1,
    };

    /// A body of so many pieces of this size, each after a while.
    fn pieces(count: usize, size: usize, after: Duration) -> impl Body<Data = Bytes, Error = Infallible> + Unpin {
        let pieces = stream::iter(0..count).then(move |_| async move {
            tokio::time::sleep(after).await;
            Ok(Frame::data(Bytes::from(vec![0; size])))
        });
        StreamBody::new(pieces.boxed())
    }

    async fn read<B: Body<Data = Bytes, Error = Infallible> + Unpin>(body: B) -> Result<usize, HttpErrorKind> {
        let read = Timed::new(body, PATIENCE).collect().await;
        read.map(|read| read.to_bytes().len()).map_err(|error| error.kind())
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_may_take_long_but_not_stall() {
        assert_eq!(read(pieces(100, 1 << 20, Duration::from_secs(3))).await, Ok(100 << 20));
        assert_eq!(read(pieces(2, 1 << 20, Duration::from_secs(11))).await, Err(HttpErrorKind::Timeout));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_trickles_ends() {
        assert_eq!(read(pieces(1000, 1, Duration::from_secs(3))).await, Err(HttpErrorKind::Timeout));
    }

    #[tokio::test(start_paused = true)]
    async fn who_reads_slowly_is_not_cut_off() {
        let mut body = Timed::new(pieces(50, 1, Duration::from_millis(1)), PATIENCE);
        while let Some(frame) = body.frame().await {
            frame.unwrap();
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
    }

    #[tokio::test]
    async fn without_the_word_nothing_goes_out_in_the_clear() {
        let connector = Connector::new(vec![], PATIENCE).unwrap();
        let client = connector.connect(&ClientOptions::new()).unwrap();
        let request = http::Request::get("http://127.0.0.1:1/").body(HttpRequestBody::empty()).unwrap();
        let error = client.execute(request).await.unwrap_err();
        assert_eq!(error.kind(), HttpErrorKind::Unknown, "{error}");
    }
}
