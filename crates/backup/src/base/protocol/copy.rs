//! `BASE_BACKUP`: how it is asked for, and what comes back.
//!
//! Where the backup begins, the tablespaces, one COPY with every archive and the manifest in it, and where the backup ends; of PostgreSQL 15
//! and later. Never: an end taken for good before the server is ready for the next command. A page whose checksum was wrong is said at the
//! very last, as an error behind the end.

use std::fmt::Write as _;
use std::time::Duration;

use bellwether_core::wal::{Lsn, Timeline};
use postgres_protocol::message::backend::{COPY_DATA_TAG, Message};

use super::pump::Frame;
use super::{Connection, ProtocolError, Row, column, texts, unexpected};

const WHAT: &str = "BASE_BACKUP";

/// How the checkpoint is made that a backup begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checkpoint {
    /// At once.
    Fast,
    /// As slowly as the server's own: minutes, and hardly felt by anybody.
    Spread,
}

/// What the manifest says of each file's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileChecksums {
    /// Finds what a disk, a network or we break. It costs next to nothing.
    Crc32c,
    /// Finds what somebody changed on purpose and did not know of the manifest. It costs the server a hash over everything.
    Sha256,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// What the backup is called in `backup_label`, and in the server's progress views.
    pub label: &'a str,
    /// How it begins.
    pub checkpoint: Checkpoint,
    /// How long the server may need for that: it says nothing meanwhile.
    pub checkpoint_patience: Duration,
    /// What the manifest holds.
    pub checksums: FileChecksums,
    /// What the server sends at most, in KiB each second; it takes 32 to 1048576.
    pub max_rate: Option<u32>,
}

/// Where a backup begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// WAL is needed from here on.
    pub position: Lsn,
    /// The timeline.
    pub timeline: Timeline,
    /// Tablespaces outside the data directory.
    pub tablespaces: Vec<Tablespace>,
    /// The server's estimate of everything, in bytes.
    pub estimate: u64,
}

/// A tablespace outside the data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tablespace {
    /// Its OID.
    pub oid: u32,
    /// Where it is.
    pub location: String,
}

/// Where a backup ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// WAL is needed up to here.
    pub position: Lsn,
    /// The timeline.
    pub timeline: Timeline,
}

/// What an archive holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Archive {
    /// The data directory.
    Main,
    /// The tablespace of this OID.
    Tablespace(u32),
}

/// What comes next.
#[derive(Debug)]
pub enum Step<'a> {
    /// An archive begins, and the one before it is whole.
    Archive(Archive),
    /// The manifest begins, and all archives are whole.
    Manifest,
    /// A piece of what began last.
    Data(&'a [u8]),
}

/// A base backup under way. Dropped, it is broken off.
pub struct Copy {
    connection: Connection,
}

impl Connection {
    /// Begins a base backup. It takes as long as the server's checkpoint.
    pub async fn base_backup(mut self, request: &Request<'_>) -> Result<(Start, Copy), ProtocolError> {
        self.ask(WHAT, &request.command()).await?;
        let patience = std::mem::replace(&mut self.patience, request.checkpoint_patience);
        let first = self.rows().await?;
        self.patience = patience;
        let [start] = first.as_slice() else { return Err(unexpected(WHAT, format!("{} starts", first.len()))) };
        let (position, timeline) = (column(WHAT, start, 0)?, Timeline(column(WHAT, start, 1)?));
        let (mut tablespaces, mut estimate) = (vec![], 0u64);
        for row in self.rows().await? {
            estimate = estimate.saturating_add(column::<u64>(WHAT, &row, 2)?.saturating_mul(1024));
            // The data directory itself has neither.
            if row.first().is_some_and(Option::is_some) {
                tablespaces.push(Tablespace { oid: column(WHAT, &row, 0)?, location: column(WHAT, &row, 1)? });
            }
        }
        match self.message(WHAT).await? {
            Message::CopyOutResponse(_) => {}
            _ => return Err(unexpected(WHAT, "no data".to_owned())),
        }
        Ok((Start { position, timeline, tablespaces, estimate }, Copy { connection: self.pump(WHAT)? }))
    }

    /// One of several sets of rows.
    async fn rows(&mut self) -> Result<Vec<Row>, ProtocolError> {
        let mut rows = vec![];
        loop {
            match self.message(WHAT).await? {
                Message::RowDescription(_) => {}
                Message::DataRow(row) => rows.push(texts(WHAT, &row)?),
                Message::CommandComplete(_) => return Ok(rows),
                _ => return Err(unexpected(WHAT, "no rows".to_owned())),
            }
        }
    }
}

impl Copy {
    /// What comes next. `None`: that was all, and [`Copy::end`] says where it ends.
    pub async fn next(&mut self) -> Result<Option<Step<'_>>, ProtocolError> {
        let connection = &mut self.connection;
        loop {
            let Frame { tag, whole, body } = connection.frame(WHAT).await?;
            if tag != COPY_DATA_TAG {
                let message = connection.parse(WHAT, whole)?;
                match connection.note(WHAT, message)? {
                    None => continue,
                    Some(Message::CopyDone) => return Ok(None),
                    Some(_) => return Err(unexpected(WHAT, "no data".to_owned())),
                }
            }
            let kind = connection.bytes(body.clone()).first().copied();
            let data = (body.start + 1).min(body.end)..body.end;
            match kind {
                Some(b'd') => return Ok(Some(Step::Data(connection.bytes(data)))),
                Some(b'n') => return archive(connection.bytes(data)).map(Some),
                Some(b'm') => return Ok(Some(Step::Manifest)),
                // How much the server has read. We count for ourselves what has arrived.
                Some(b'p') => {}
                Some(kind) => return Err(unexpected(WHAT, format!("a message of kind {:?}", char::from(kind)))),
                None => return Err(unexpected(WHAT, "an empty message".to_owned())),
            }
        }
    }

    /// Where the backup ends, once the server has said that all went well.
    pub async fn end(mut self) -> Result<End, ProtocolError> {
        let rows = self.connection.rows().await?;
        let [end] = rows.as_slice() else { return Err(unexpected(WHAT, format!("{} ends", rows.len()))) };
        let end = End { position: column(WHAT, end, 0)?, timeline: Timeline(column(WHAT, end, 1)?) };
        loop {
            match self.connection.message(WHAT).await? {
                Message::CommandComplete(_) => {}
                Message::ReadyForQuery(_) => return Ok(end),
                _ => return Err(unexpected(WHAT, "something behind the end".to_owned())),
            }
        }
    }
}

/// The archive's name, and behind it the tablespace's directory, which the list of tablespaces said already.
fn archive(data: &[u8]) -> Result<Step<'static>, ProtocolError> {
    let name = String::from_utf8_lossy(data.split(|&byte| byte == 0).next().unwrap_or_default());
    let oid = name.strip_suffix(".tar").and_then(|oid| oid.parse().ok());
    match (name.as_ref(), oid) {
        ("base.tar", _) => Ok(Step::Archive(Archive::Main)),
        (_, Some(oid)) => Ok(Step::Archive(Archive::Tablespace(oid))),
        _ => Err(unexpected(WHAT, format!("an archive called {name:?}"))),
    }
}

impl Request<'_> {
    fn command(&self) -> String {
        let checkpoint = match self.checkpoint {
            Checkpoint::Fast => "fast",
            Checkpoint::Spread => "spread",
        };
        let checksums = match self.checksums {
            FileChecksums::Crc32c => "CRC32C",
            FileChecksums::Sha256 => "SHA256",
        };
        let label = self.label.replace('\'', "''");
        // The caller looks after the WAL. Links of tablespaces are in a file of their own: in tar, longer ones would not fit.
        let mut command = format!(
            "BASE_BACKUP (LABEL '{label}', PROGRESS true, CHECKPOINT '{checkpoint}', WAIT false, MANIFEST 'yes', \
             MANIFEST_CHECKSUMS '{checksums}', TABLESPACE_MAP true"
        );
        if let Some(rate) = self.max_rate {
            // Writing to a String does not fail.
            let _ = write!(command, ", MAX_RATE {rate}");
        }
        command + ")"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_ends_a_label_early() {
        let request = Request {
            label: "it's', WAIT true",
            checkpoint: Checkpoint::Fast,
            checkpoint_patience: Duration::ZERO,
            checksums: FileChecksums::Crc32c,
            max_rate: Some(32),
        };
        let command = request.command();
        assert!(command.contains("(LABEL 'it''s'', WAIT true', PROGRESS true,"), "{command}");
        assert!(command.ends_with(", MAX_RATE 32)"), "{command}");
    }

    #[test]
    fn an_archive_is_that_of_the_data_directory_or_of_a_tablespace() {
        let of = |name: &[u8]| archive(name).map_err(|error| error.to_string());
        assert!(matches!(of(b"base.tar\0\0"), Ok(Step::Archive(Archive::Main))));
        assert!(matches!(of(b"16384.tar\0/ts\0"), Ok(Step::Archive(Archive::Tablespace(16384)))));
        assert!(of(b"../etc.tar\0\0").is_err());
    }
}
