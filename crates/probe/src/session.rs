//! One session with a server: opens it, writes rows, and says what became of each.
//!
//! Everything has a deadline on our side: a frozen server must not hang the probe. An answer that misses its deadline is not
//! thrown away but handed back as [`Pending`], so that whoever holds on to the session learns what the server says when it
//! comes to life again. Never: COMMIT sent for a row whose INSERT missed its deadline, because that row is recorded as refused.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::poll_fn;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::config::SslMode;
use tokio_postgres::error::{DbError, Severity};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, Client, Connection, NoTls, SimpleQueryMessage, SimpleQueryRow};

use crate::access::{Access, Target};
use crate::clock::Micros;
use crate::history::{Outcome, Server, WriterId};
use crate::outcome::{CommitAnswer, Grade, Said, in_words, of_commit};
use crate::table;

/// How long each part may take before the probe gives up on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// Looking the name up, and the TCP connection.
    pub connect: Duration,
    /// TLS and logging in.
    pub login: Duration,
    /// A statement.
    pub statement: Duration,
    /// COMMIT.
    pub commit: Duration,
}

impl Default for Deadlines {
    /// Longer than any answer of a healthy server, shorter than any outage worth measuring; a refused connection is tried
    /// again long before.
    fn default() -> Self {
        let second = Duration::from_secs(1);
        Self { connect: second, login: 2 * second, statement: 2 * second, commit: 2 * second }
    }
}

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
#[error("{phase}: {problem}")]
pub struct NotOpened {
    phase: &'static str,
    problem: String,
}

/// A session.
#[derive(Debug)]
pub struct Session {
    client: Arc<Client>,
    driver: Option<JoinHandle<()>>,
    notices: Arc<Mutex<Vec<Said>>>,
    deadlines: Deadlines,
    /// When it was open.
    pub opened: Micros,
    /// Whom it is with, as far as anybody said.
    pub server: Option<Server>,
}

/// The row to write.
#[derive(Clone, Debug)]
pub struct Row<'a> {
    /// The run.
    pub run: &'a str,
    /// The writer.
    pub writer: WriterId,
    /// Its count.
    pub seq: u64,
}

type Answer = Result<Vec<SimpleQueryMessage>, tokio_postgres::Error>;
type Asked = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// A question whose answer missed its deadline.
pub enum Pending {
    /// The INSERT: it must not be committed when it comes.
    Insert(Asked),
    /// The COMMIT.
    Commit(Asked),
}

/// What is left of a session after a write.
pub enum After {
    /// It can be used again.
    Usable,
    /// It waits for an answer.
    Waiting(Pending),
    /// It is of no use.
    Gone,
}

/// A write that was tried.
pub struct Tried {
    /// When COMMIT was sent, if it was.
    pub committing: Option<Micros>,
    /// What became of it.
    pub outcome: Outcome,
    /// The server that the write itself named.
    pub server: Option<Server>,
    /// What is left of the session.
    pub after: After,
}

impl Session {
    /// Opens one.
    pub async fn open(access: &Access, target: &Target, deadlines: Deadlines) -> Result<Self, NotOpened> {
        let stream = connect(target, deadlines.connect).await?;
        let (mut config, tls) = access.config();
        config.host(&target.host).port(target.port);
        let notices = Arc::new(Mutex::new(vec![]));
        let login = |problem: String| NotOpened { phase: "log in", problem };
        let late = |_| login(format!("no answer in {:?}", deadlines.login));
        let failed = |error: tokio_postgres::Error| login(describe(&error));
        let (client, driver) = match tls {
            Some(mut tls) => {
                config.ssl_mode(SslMode::Require);
                let handshake = MakeTlsConnect::<TcpStream>::make_tls_connect(&mut tls, &target.host)
                    .map_err(|error| login(format!("{}: {error}", target.host)))?;
                let opening = config.connect_raw(stream, handshake);
                let (client, connection) = timeout(deadlines.login, opening).await.map_err(late)?.map_err(failed)?;
                (client, tokio::spawn(drive(connection, Arc::clone(&notices))))
            }
            None => {
                config.ssl_mode(SslMode::Disable);
                let opening = config.connect_raw(stream, NoTls);
                let (client, connection) = timeout(deadlines.login, opening).await.map_err(late)?.map_err(failed)?;
                (client, tokio::spawn(drive(connection, Arc::clone(&notices))))
            }
        };
        let client = Arc::new(client);
        Ok(Self { client, driver: Some(driver), notices, deadlines, opened: Micros::now(), server: None })
    }

    /// Asks the server who it is, for a session that is kept: so that it is known also when its first write fails.
    pub async fn introduce(&mut self) -> Result<(), String> {
        let rows = self.ask(table::who()).await?;
        self.server = rows.first().and_then(table::server);
        Ok(())
    }

    /// Runs SQL within the statement's deadline.
    pub async fn ask(&self, sql: String) -> Result<Vec<SimpleQueryRow>, String> {
        let asked = timeout(self.deadlines.statement, self.send(sql)).await;
        let answer = asked.map_err(|_| format!("no answer in {:?}", self.deadlines.statement))?;
        Ok(rows(answer.map_err(|error| describe(&error))?))
    }

    /// Writes one row, in a transaction of its own.
    pub async fn write(&mut self, row: &Row<'_>) -> Tried {
        let mut insert = self.send(table::insert(row));
        let server = match timeout(self.deadlines.statement, &mut insert).await {
            Ok(Ok(answer)) => rows(answer).first().and_then(table::server),
            Ok(Err(error)) => return self.not_inserted(&error).await,
            Err(_) => {
                let why = format!("INSERT: no answer in {:?}; COMMIT was not sent", self.deadlines.statement);
                return Tried::refused(why, After::Waiting(Pending::Insert(insert)));
            }
        };
        let Some(server) = server else {
            return self.rolled_back("INSERT: the server did not say who it is".to_owned()).await;
        };
        self.server = Some(server.clone());
        self.commit(server).await
    }

    async fn commit(&mut self, server: Server) -> Tried {
        self.forget_notices();
        if self.client.is_closed() {
            let why = "the connection ended before COMMIT was sent".to_owned();
            return Tried { server: Some(server), ..Tried::refused(why, After::Gone) };
        }
        let committing = Micros::now();
        let mut commit = self.send("commit".to_owned());
        let (answer, after) = match timeout(self.deadlines.commit, &mut commit).await {
            Ok(answer) => (commit_answer(answer), self.after()),
            Err(_) => (CommitAnswer::Silence(self.deadlines.commit), After::Waiting(Pending::Commit(commit))),
        };
        let outcome = of_commit(&answer, &self.notices());
        Tried { committing: Some(committing), outcome, server: Some(server), after }
    }

    async fn not_inserted(&mut self, error: &tokio_postgres::Error) -> Tried {
        self.rolled_back(format!("INSERT: {}", describe(error))).await
    }

    async fn rolled_back(&mut self, why: String) -> Tried {
        let mut rollback = self.send("rollback".to_owned());
        let after = match timeout(self.deadlines.statement, &mut rollback).await {
            Ok(Ok(_)) => self.after(),
            Ok(Err(_)) => After::Gone,
            // As with an INSERT, nothing of this transaction is ever committed.
            Err(_) => After::Waiting(Pending::Insert(rollback)),
        };
        Tried::refused(why, after)
    }

    /// Waits, for as long as it takes, for what missed its deadline. For a COMMIT it says what became of the write.
    pub async fn resume(&mut self, pending: Pending) -> (Option<Outcome>, After) {
        match pending {
            Pending::Insert(answer) => {
                let _never_committed = answer.await;
                let rolled_back = self.rolled_back(String::new()).await;
                (None, rolled_back.after)
            }
            Pending::Commit(answer) => {
                let answer = commit_answer(answer.await);
                (Some(of_commit(&answer, &self.notices())), self.after())
            }
        }
    }

    /// Takes leave as a client should.
    pub fn close(mut self) {
        self.driver = None;
    }

    fn after(&self) -> After {
        if self.client.is_closed() { After::Gone } else { After::Usable }
    }

    fn send(&self, sql: String) -> Asked {
        let client = Arc::clone(&self.client);
        Box::pin(async move { client.simple_query(&sql).await })
    }

    fn notices(&self) -> Vec<Said> {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn forget_notices(&self) {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Drop for Session {
    /// Breaks the connection off, unless [`Session::close`] took leave: a frozen server would never let the driver end.
    fn drop(&mut self) {
        if let Some(driver) = self.driver.take() {
            driver.abort();
        }
    }
}

impl Tried {
    fn refused(why: String, after: After) -> Self {
        Self { committing: None, outcome: Outcome::Refused { why }, server: None, after }
    }
}

async fn connect(target: &Target, within: Duration) -> Result<TcpStream, NotOpened> {
    let failed = |problem: String| NotOpened { phase: "connect", problem };
    let connecting = async {
        match target.address {
            Some(address) => TcpStream::connect((address, target.port)).await,
            None => TcpStream::connect((target.host.as_str(), target.port)).await,
        }
    };
    let stream = timeout(within, connecting).await.map_err(|_| failed(format!("no answer in {within:?}")))?;
    let stream = stream.map_err(|error| failed(error.to_string()))?;
    stream.set_nodelay(true).map_err(|error| failed(error.to_string()))?;
    Ok(stream)
}

/// Moves the bytes. A notice is noted before the answer behind it is handed on, so whoever has the answer has the notice.
async fn drive<S, T>(mut connection: Connection<S, T>, notices: Arc<Mutex<Vec<Said>>>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
        if let AsyncMessage::Notice(notice) = message {
            notices.lock().unwrap_or_else(PoisonError::into_inner).push(said(&notice));
        }
    }
}

fn rows(answer: Vec<SimpleQueryMessage>) -> Vec<SimpleQueryRow> {
    let row = |message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    };
    answer.into_iter().filter_map(row).collect()
}

fn commit_answer(answer: Answer) -> CommitAnswer {
    match answer {
        Ok(_) => CommitAnswer::Done,
        Err(error) => match error.as_db_error() {
            Some(db) => CommitAnswer::Error(said(db)),
            None => CommitAnswer::Broken(describe(&error)),
        },
    }
}

fn said(error: &DbError) -> Said {
    let grade = match error.parsed_severity() {
        Some(Severity::Panic | Severity::Fatal) => Grade::Fatal,
        Some(Severity::Error) => Grade::Error,
        Some(Severity::Notice | Severity::Debug | Severity::Info | Severity::Log) => Grade::Notice,
        // A severity that can't be read (a server older than 9.6, in its own language) must not pass for harmless.
        Some(Severity::Warning) | None => Grade::Warning,
    };
    Said { grade, code: error.code().code().to_owned(), message: error.message().to_owned() }
}

/// What went wrong, with what the server said or the system's cause.
fn describe(error: &tokio_postgres::Error) -> String {
    if let Some(db) = error.as_db_error() {
        return in_words(&said(db));
    }
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
