//! A proxy before a store, on loopback: it passes each request on over a connection of its own, and fails where it was told to.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// What goes wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is carried out, and the answer is lost.
    LoseAnswer,
    /// It never arrives, and the connection ends.
    LoseRequest,
    /// It is not carried out: 503.
    Unavailable,
    /// It is not carried out: 409, as Amazon answers while another create of the same object is under way.
    Undecided,
    /// It is carried out, and the answer comes this much later.
    Slow(Duration),
    /// The answer ends before its last so many bytes.
    Truncate(usize),
    /// A byte of the answer's body is another, this far before its end.
    Flip(usize),
}

#[derive(Debug, Default)]
struct Plan {
    /// Method, part of the path, what happens, and how often.
    faults: Vec<(&'static str, String, Fault, usize)>,
    seen: Vec<String>,
}

pub struct Proxy {
    pub address: SocketAddr,
    plan: Arc<Mutex<Plan>>,
    accepting: JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Proxy {
    pub async fn before(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let plan = Arc::new(Mutex::new(Plan::default()));
        let accepting = tokio::spawn({
            let plan = plan.clone();
            async move {
                let mut connections = JoinSet::new();
                while let Ok((client, _)) = listener.accept().await {
                    let plan = plan.clone();
                    connections.spawn(async move { pass(client, upstream, &plan).await });
                }
            }
        });
        Self { address, plan, accepting }
    }

    /// The next so many requests of this method, for a path with this part in it, fail so.
    pub fn fail(&self, method: &'static str, part: &str, fault: Fault, times: usize) {
        self.plan.lock().unwrap().faults.push((method, part.to_owned(), fault, times));
    }

    /// From now on everything is passed on.
    pub fn mend(&self) {
        self.plan.lock().unwrap().faults.clear();
    }

    /// Nothing fails any more.
    pub fn heal(&self) {
        self.plan.lock().unwrap().faults.clear();
    }

    /// How many requests of this method there were for such a path.
    pub fn seen(&self, method: &str, part: &str) -> usize {
        let plan = self.plan.lock().unwrap();
        plan.seen.iter().filter(|line| line.starts_with(method) && line.contains(part)).count()
    }
}

impl Plan {
    fn fault(&mut self, line: &str) -> Option<Fault> {
        self.seen.push(line.to_owned());
        let meant = |(method, part, _, left): &&mut (&str, String, Fault, usize)| {
            line.starts_with(*method) && line.contains(part.as_str()) && *left > 0
        };
        let (_, _, fault, left) = self.faults.iter_mut().find(meant)?;
        *left -= 1;
        Some(*fault)
    }
}

/// One request of a connection, which then ends.
async fn pass(mut client: TcpStream, upstream: SocketAddr, plan: &Mutex<Plan>) -> Option<()> {
    let (head, rest) = head(&mut client).await?;
    let mut body = rest;
    let length = field(&head, "content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    body.resize(body.len().min(length), 0);
    let there = body.len();
    body.resize(length, 0);
    client.read_exact(&mut body[there..]).await.ok()?;
    let line = readable(head.lines().next()?);
    let fault = plan.lock().unwrap().fault(&line);
    match fault {
        Some(Fault::LoseRequest) => return None,
        Some(Fault::Unavailable) => {
            return refuse(&mut client, "503 Service Unavailable", "SlowDown", "Please reduce your request rate.")
                .await;
        }
        Some(Fault::Undecided) => {
            return refuse(&mut client, "409 Conflict", "ConditionalRequestConflict", "Another is under way.").await;
        }
        _ => {}
    }
    let mut server = TcpStream::connect(upstream).await.ok()?;
    let head = head.replacen("\r\n", "\r\nconnection: close\r\n", 1);
    server.write_all(head.as_bytes()).await.ok()?;
    server.write_all(&body).await.ok()?;
    let mut answer = vec![];
    server.read_to_end(&mut answer).await.ok()?;
    match fault {
        Some(Fault::LoseAnswer) => return None,
        Some(Fault::Slow(by)) => tokio::time::sleep(by).await,
        Some(Fault::Truncate(by)) => answer.truncate(answer.len() - by),
        Some(Fault::Flip(before)) => {
            let at = answer.len() - before;
            answer[at] ^= 1;
        }
        _ => {}
    }
    client.write_all(&answer).await.ok()?;
    client.shutdown().await.ok()
}

/// With the characters of a key that some clients write by their numbers.
fn readable(line: &str) -> String {
    ["%2F", "%2E", "%2D", "%5F"]
        .iter()
        .zip(["/", ".", "-", "_"])
        .fold(line.to_owned(), |line, (code, character)| line.replace(code, character))
}

async fn refuse(client: &mut TcpStream, status: &str, code: &str, message: &str) -> Option<()> {
    let said = format!("<Error><Code>{code}</Code><Message>{message}</Message></Error>");
    let length = said.len();
    let answer = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{said}");
    client.write_all(answer.as_bytes()).await.ok()
}

/// The head of a request, and what of its body came with it.
async fn head(client: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut read = vec![];
    loop {
        if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            let body = read.split_off(end + 4);
            return Some((String::from_utf8(read).ok()?, body));
        }
        if client.read_buf(&mut read).await.ok()? == 0 {
            return None;
        }
    }
}

fn field(head: &str, name: &str) -> Option<String> {
    let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with(&format!("{name}:")))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
