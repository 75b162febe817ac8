//! A tiny HTTP server on loopback for tests: it answers each request as it is told, and hangs when it is told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kube::{Client, Config};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use crate::client;
use crate::traffic::Traffic;

/// What is sent back.
pub struct Answer {
    code: u16,
    headers: String,
    body: String,
    /// After the body nothing follows: neither more of it, nor its end.
    hangs: bool,
}

impl Answer {
    pub fn new(code: u16, body: impl Into<String>) -> Self {
        Self { code, headers: String::new(), body: body.into(), hangs: false }
    }

    pub fn with_header(mut self, line: &str) -> Self {
        self.headers.push_str(line);
        self
    }

    /// A watch that says this, and then nothing more.
    pub fn hanging(body: impl Into<String>) -> Self {
        Self { hangs: true, ..Self::new(200, body) }
    }

    fn bytes(&self) -> Vec<u8> {
        let length = if self.hangs { String::new() } else { format!("content-length: {}\r\n", self.body.len()) };
        let head = format!("HTTP/1.1 {} Told\r\ncontent-type: application/json\r\nconnection: close\r\n", self.code);
        format!("{head}{length}{}\r\n{}", self.headers, self.body).into_bytes()
    }
}

/// A server, until it is dropped.
pub struct Server {
    address: std::net::SocketAddr,
    requests: Arc<AtomicUsize>,
    _serving: AbortOnDropHandle<()>,
}

impl Server {
    /// Answers the request with this number (from 0) and this path and query.
    pub async fn start(answer: impl Fn(usize, &str) -> Answer + Send + Sync + 'static) -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, requests) = (socket.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let (answer, counted) = (Arc::new(answer), requests.clone());
        let serving = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = socket.accept().await.unwrap();
                let (answer, counted) = (answer.clone(), counted.clone());
                connections.spawn(async move {
                    serve(stream, |target| answer(counted.fetch_add(1, Ordering::SeqCst), target)).await;
                });
            }
        });
        Self { address, requests, _serving: AbortOnDropHandle::new(serving) }
    }

    /// How many requests came.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    pub fn client(&self) -> Client {
        self.observed(&Arc::default())
    }

    pub fn observed(&self, traffic: &Arc<Traffic>) -> Client {
        let config = Config::new(format!("http://{}", self.address).parse().unwrap());
        client::observed(config, traffic).unwrap()
    }
}

/// One request, without a body.
async fn serve(mut stream: TcpStream, answer: impl FnOnce(&str) -> Answer) {
    let (mut read, mut chunk) = (Vec::new(), [0; 1024]);
    while !read.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return,
            Ok(length) => read.extend_from_slice(&chunk[..length]),
        }
    }
    let request = String::from_utf8_lossy(&read).into_owned();
    let answer = answer(request.split(' ').nth(1).unwrap_or_default());
    // Who hung up does not want it.
    let _ = stream.write_all(&answer.bytes()).await;
    if answer.hangs {
        // Until the other side hangs up.
        while stream.read(&mut chunk).await.is_ok_and(|length| length > 0) {}
    }
}
