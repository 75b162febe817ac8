//! Speaks PostgreSQL's protocol over the local socket: commands of replication, and plain SQL.
//!
//! As little of it as a backup needs: simple queries whose answers are text, and the one COPY that `BASE_BACKUP` sends ([`Copy`]). A server that
//! says nothing for too long is an error; one that we don't read from is not silent.
//!
//! There is no command that cancels a base backup: the connection is dropped. The server notices when it next writes to it, ends its backup mode,
//! and logs `connection to client lost`; while it waits for its checkpoint it writes nothing, and so notices when that is done.
//!
//! Never: an answer taken for whole before the server said that it is; memory without end for a message.

mod copy;
mod pump;

use std::io;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use bellwether_core::contract::SUPERUSER;
use bellwether_core::wal::{Lsn, SystemIdentifier, Timeline};
use bytes::BytesMut;
use fallible_iterator::FallibleIterator as _;
use postgres_protocol::message::backend::{DataRowBody, ErrorFields, Header, Message};
use postgres_protocol::message::frontend;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use pump::{Frame, Pump};

pub use copy::{Archive, Checkpoint, Copy, End, FileChecksums, Request, Start, Step, Tablespace};

/// The longest message that is read. PostgreSQL's of a base backup are of 32 KiB; a row, or an error, may be longer.
const LONGEST: i32 = 16 << 20;
/// What is read at once of an answer.
const READ: usize = 16 << 10;
/// How many of the server's warnings are kept: enough to see what is wrong, not a line for each page of a broken disk.
const WARNINGS: usize = 20;
/// What our connections are called in `pg_stat_activity`.
const APPLICATION: &str = "bellwether-backup";

/// Why the server did not do or say what was asked.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    /// It can't be reached.
    #[error("{socket}: no connection: {cause}")]
    Unreachable {
        /// Its socket.
        socket: String,
        /// What the system said.
        cause: io::Error,
    },
    /// It wants a password, or worse.
    #[error("{socket}: the server does not trust {SUPERUSER} on its socket")]
    NotTrusted {
        /// Its socket.
        socket: String,
    },
    /// It says no.
    #[error("{what}: {message} ({code}){}", .warnings.iter().map(|warning| format!("; {warning}")).collect::<String>())]
    Server {
        /// What was asked.
        what: &'static str,
        /// What it said.
        message: String,
        /// PostgreSQL's code.
        code: String,
        /// What it had warned of before.
        warnings: Vec<String>,
    },
    /// No word in time.
    #[error("{what}: the server has said nothing for {after:?}")]
    Silent {
        /// What was asked.
        what: &'static str,
        /// How long we waited.
        after: Duration,
    },
    /// The connection broke.
    #[error("{what}: the connection broke: {cause}")]
    Broken {
        /// What was asked.
        what: &'static str,
        /// What the system said.
        cause: io::Error,
    },
    /// It answers what no server should.
    #[error("{what}: unexpected answer: {problem}")]
    Unexpected {
        /// What was asked.
        what: &'static str,
        /// What is wrong with the answer.
        problem: String,
    },
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose<'a> {
    /// Commands of replication.
    Replication,
    /// SQL in a database.
    Database(&'a str),
}

/// A row of an answer: each column's text, or nothing where it is null.
pub type Row = Vec<Option<String>>;

/// Who a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Whose data it serves.
    pub system_identifier: SystemIdentifier,
    /// Its timeline.
    pub timeline: Timeline,
    /// How far it has written, or received.
    pub position: Lsn,
}

/// A connection to a server. Dropped, it breaks off whatever the server was doing for it.
pub struct Connection {
    source: Source,
    received: BytesMut,
    /// How long the server may be silent.
    patience: Duration,
    version: String,
    warnings: Vec<String>,
}

/// Where messages come from.
enum Source {
    /// The runtime reads them when they are asked for.
    Socket(UnixStream),
    /// A thread reads them all the time.
    Pump(Pump),
}

impl Connection {
    /// As superuser through the socket. `patience` is how long the server may say nothing, now and later.
    pub async fn open(
        socket_dir: &Path,
        port: u16,
        purpose: Purpose<'_>,
        patience: Duration,
    ) -> Result<Self, ProtocolError> {
        let path = socket_dir.join(format!(".s.PGSQL.{port}"));
        let socket = path.display().to_string();
        let stream = match tokio::time::timeout(patience, UnixStream::connect(&path)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(cause)) => return Err(ProtocolError::Unreachable { socket, cause }),
            Err(_) => return Err(ProtocolError::Silent { what: "connect", after: patience }),
        };
        let received = BytesMut::with_capacity(READ);
        let mut connection =
            Self { source: Source::Socket(stream), received, patience, version: String::new(), warnings: vec![] };
        let kind = match purpose {
            Purpose::Replication => ("replication", "true"),
            Purpose::Database(name) => ("database", name),
        };
        connection.start(kind, socket).await?;
        Ok(connection)
    }

    async fn start(&mut self, kind: (&str, &str), socket: String) -> Result<(), ProtocolError> {
        const WHAT: &str = "connect";
        let mut message = BytesMut::new();
        let parameters = [("user", SUPERUSER), ("client_encoding", "UTF8"), ("application_name", APPLICATION), kind];
        frontend::startup_message(parameters, &mut message).map_err(|cause| broken(WHAT, cause))?;
        self.send(WHAT, &message).await?;
        loop {
            match self.message(WHAT).await? {
                Message::AuthenticationOk | Message::BackendKeyData(_) => {}
                Message::ReadyForQuery(_) => return Ok(()),
                _ => return Err(ProtocolError::NotTrusted { socket }),
            }
        }
    }

    /// The server's full version, such as `17.6`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Who the server is.
    pub async fn identify_system(&mut self) -> Result<Identity, ProtocolError> {
        const WHAT: &str = "IDENTIFY_SYSTEM";
        let row = self.row(WHAT, WHAT).await?;
        Ok(Identity {
            system_identifier: column(WHAT, &row, 0)?,
            timeline: Timeline(column(WHAT, &row, 1)?),
            position: column(WHAT, &row, 2)?,
        })
    }

    /// Bytes in a segment of WAL.
    pub async fn segment_size(&mut self) -> Result<u64, ProtocolError> {
        const WHAT: &str = "SHOW wal_segment_size";
        let row = self.row(WHAT, WHAT).await?;
        let text: String = column(WHAT, &row, 0)?;
        let unit = |(unit, size): (&str, u64)| text.strip_suffix(unit)?.parse::<u64>().ok()?.checked_mul(size);
        let size = [("kB", 1 << 10), ("MB", 1 << 20), ("GB", 1 << 30), ("B", 1)].into_iter().find_map(unit);
        size.filter(|size| size.is_power_of_two() && (1 << 20..=1 << 30).contains(size))
            .ok_or_else(|| unexpected(WHAT, format!("{text:?}")))
    }

    /// The history of a timeline, as its file says it. The first timeline has none.
    pub async fn timeline_history(&mut self, timeline: Timeline) -> Result<String, ProtocolError> {
        const WHAT: &str = "TIMELINE_HISTORY";
        let row = self.row(WHAT, &format!("{WHAT} {timeline}")).await?;
        column(WHAT, &row, 1)
    }

    /// Runs a statement; the rows that it answers with.
    pub async fn query(&mut self, what: &'static str, sql: &str) -> Result<Vec<Row>, ProtocolError> {
        self.ask(what, sql).await?;
        let mut rows = vec![];
        loop {
            match self.message(what).await? {
                Message::DataRow(row) => rows.push(texts(what, &row)?),
                Message::RowDescription(_) | Message::CommandComplete(_) | Message::EmptyQueryResponse => {}
                Message::ReadyForQuery(_) => return Ok(rows),
                _ => return Err(unexpected(what, "no rows".to_owned())),
            }
        }
    }

    async fn row(&mut self, what: &'static str, sql: &str) -> Result<Row, ProtocolError> {
        match <[Row; 1]>::try_from(self.query(what, sql).await?) {
            Ok([row]) => Ok(row),
            Err(rows) => Err(unexpected(what, format!("{} rows", rows.len()))),
        }
    }

    async fn ask(&mut self, what: &'static str, sql: &str) -> Result<(), ProtocolError> {
        let mut message = BytesMut::new();
        frontend::query(sql, &mut message).map_err(|cause| broken(what, cause))?;
        self.send(what, &message).await
    }

    async fn send(&mut self, what: &'static str, message: &[u8]) -> Result<(), ProtocolError> {
        let Source::Socket(stream) = &mut self.source else {
            return Err(unexpected(what, "the server is busy with a backup".to_owned()));
        };
        match tokio::time::timeout(self.patience, stream.write_all(message)).await {
            Ok(sent) => sent.map_err(|cause| broken(what, cause)),
            Err(_) => Err(ProtocolError::Silent { what, after: self.patience }),
        }
    }

    /// From now on a thread reads what comes, for as long as there is this connection.
    fn pump(self, what: &'static str) -> Result<Self, ProtocolError> {
        match self.source {
            Source::Pump(_) => Ok(self),
            Source::Socket(stream) => {
                let pump = Pump::start(stream, &self.received, self.patience).map_err(|cause| broken(what, cause))?;
                Ok(Self { source: Source::Pump(pump), received: BytesMut::new(), ..self })
            }
        }
    }

    /// The next message that says something: settings and warnings are noted on the way, and an error is one.
    async fn message(&mut self, what: &'static str) -> Result<Message, ProtocolError> {
        loop {
            let message = self.any_message(what).await?;
            if let Some(message) = self.note(what, message)? {
                return Ok(message);
            }
        }
    }

    /// Notes what says nothing about what was asked.
    fn note(&mut self, what: &'static str, message: Message) -> Result<Option<Message>, ProtocolError> {
        match message {
            Message::ParameterStatus(status) => {
                if let (Ok("server_version"), Ok(value)) = (status.name(), status.value()) {
                    self.version = value.split_whitespace().next().unwrap_or_default().to_owned();
                }
            }
            Message::NoticeResponse(notice) => {
                let said = Said::of(notice.fields());
                // What is merely informative is of no use to anybody later.
                if said.severity == "WARNING" {
                    tracing::warn!(warning = said.message, "PostgreSQL warns during {what}");
                    if self.warnings.len() < WARNINGS {
                        self.warnings.push(said.message);
                    }
                }
            }
            Message::NotificationResponse(_) => {}
            Message::ErrorResponse(error) => {
                let Said { message, code, .. } = Said::of(error.fields());
                let warnings = std::mem::take(&mut self.warnings);
                return Err(ProtocolError::Server { what, message, code, warnings });
            }
            message => return Ok(Some(message)),
        }
        Ok(None)
    }

    async fn any_message(&mut self, what: &'static str) -> Result<Message, ProtocolError> {
        if let Source::Pump(_) = self.source {
            let Frame { whole, .. } = self.frame(what).await?;
            return self.parse(what, whole);
        }
        loop {
            if let Some(header) = Header::parse(&self.received).map_err(|cause| broken(what, cause))?
                && header.len() > LONGEST
            {
                return Err(unexpected(what, format!("a message of {} bytes", header.len())));
            }
            if let Some(message) = Message::parse(&mut self.received).map_err(|cause| broken(what, cause))? {
                return Ok(message);
            }
            self.receive(what).await?;
        }
    }

    /// Waits for more of an answer.
    async fn receive(&mut self, what: &'static str) -> Result<(), ProtocolError> {
        let Source::Socket(stream) = &mut self.source else { return Ok(()) };
        self.received.reserve(READ);
        match tokio::time::timeout(self.patience, stream.read_buf(&mut self.received)).await {
            Ok(Ok(0)) => Err(broken(what, io::ErrorKind::UnexpectedEof.into())),
            Ok(Ok(_)) => Ok(()),
            Ok(Err(cause)) => Err(broken(what, cause)),
            Err(_) => Err(ProtocolError::Silent { what, after: self.patience }),
        }
    }

    /// The next message that the thread has read, as it is.
    async fn frame(&mut self, what: &'static str) -> Result<Frame, ProtocolError> {
        let Source::Pump(pump) = &mut self.source else { return Err(unexpected(what, "no thread reads".to_owned())) };
        match pump.next().await {
            Some(Ok(frame)) => Ok(frame),
            Some(Err(error)) if error.kind() == io::ErrorKind::TimedOut => {
                Err(ProtocolError::Silent { what, after: self.patience })
            }
            Some(Err(cause)) => Err(broken(what, cause)),
            None => Err(broken(what, io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// What a message of the thread's holds.
    fn bytes(&self, range: Range<usize>) -> &[u8] {
        match &self.source {
            Source::Pump(pump) => pump.bytes(range),
            Source::Socket(_) => &[],
        }
    }

    fn parse(&self, what: &'static str, whole: Range<usize>) -> Result<Message, ProtocolError> {
        let mut bytes = BytesMut::from(self.bytes(whole));
        let message = Message::parse(&mut bytes).map_err(|cause| broken(what, cause))?;
        message.ok_or_else(|| unexpected(what, "half a message".to_owned()))
    }
}

fn broken(what: &'static str, cause: io::Error) -> ProtocolError {
    ProtocolError::Broken { what, cause }
}

fn unexpected(what: &'static str, problem: String) -> ProtocolError {
    ProtocolError::Unexpected { what, problem }
}

/// What an error or a warning says.
struct Said {
    severity: String,
    code: String,
    message: String,
}

impl Said {
    fn of(mut fields: ErrorFields<'_>) -> Self {
        let mut said = Self { severity: String::new(), code: String::new(), message: String::new() };
        // What can't be read of an error is left out: the rest of it is worth more than a complaint about that.
        while let Ok(Some(field)) = fields.next() {
            let value = String::from_utf8_lossy(field.value_bytes()).into_owned();
            match field.type_() {
                b'V' => said.severity = value,
                b'C' => said.code = value,
                b'M' => said.message = format!("{value}{}", said.message),
                b'D' => said.message.push_str(&format!(": {value}")),
                b'H' => said.message.push_str(&format!(" (hint: {value})")),
                _ => {}
            }
        }
        said
    }
}

fn texts(what: &'static str, row: &DataRowBody) -> Result<Row, ProtocolError> {
    let text = |range: Range<usize>| String::from_utf8_lossy(&row.buffer()[range]).into_owned();
    row.ranges().map(|range| Ok(range.map(text))).collect().map_err(|cause| broken(what, cause))
}

/// A column that must be there and be such a value.
fn column<T: std::str::FromStr>(what: &'static str, row: &[Option<String>], number: usize) -> Result<T, ProtocolError> {
    let text = row.get(number).cloned().flatten();
    let parsed = text.as_deref().and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| unexpected(what, format!("column {} is {text:?}", number + 1)))
}
