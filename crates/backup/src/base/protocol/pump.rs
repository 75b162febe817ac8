//! Reads a connection on a thread of its own, while a base backup comes through it.
//!
//! PostgreSQL writes 8 KiB at a time. Whoever waits for each of them is woken two hundred thousand times for 2.5 GB, and takes the processor from
//! PostgreSQL each time: measured on two cores, the bare stream took 4.0 s that way, and 2.0 s when its reader lets the socket fill for a moment
//! before it looks again. No timer of the runtime is as short as that moment, so it is spent on a thread.
//!
//! Never: a message handed on that is not whole; a thread that waits for a server when nobody waits for the thread.

use std::io::{self, Read as _};
use std::net::Shutdown;
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::sync::mpsc as blocking;
use std::time::Duration;

use postgres_protocol::message::backend::Header;
use tokio::sync::mpsc;

use super::LONGEST;

/// What is read at once: more than a Unix socket holds.
const READ: usize = 256 << 10;
/// A buffer has room for that, and for the message that the one before it ended within.
const BUFFER: usize = READ + (64 << 10);
/// What was as much as this came faster than it was taken: there is no need to wait.
const ENOUGH: usize = READ / 4;
/// How long the socket may fill. At a gigabyte a second it holds what comes in twice that time, and PostgreSQL need not wait.
const MOMENT: Duration = Duration::from_micros(100);
/// Buffers that are read ahead: enough that neither side waits for the other's turn on the processor.
const AHEAD: usize = 8;

/// Whole messages, one behind the other.
#[derive(Default)]
struct Piece {
    buffer: Vec<u8>,
    end: usize,
}

/// A message: its kind, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// The letter that says what it is.
    pub tag: u8,
    /// All of it.
    pub whole: Range<usize>,
    /// What follows its header.
    pub body: Range<usize>,
}

/// A connection that is read by a thread.
pub(super) struct Pump {
    pieces: mpsc::Receiver<io::Result<Piece>>,
    /// Buffers go back and are used again: new memory costs more than what is copied into it.
    spent: blocking::Sender<Vec<u8>>,
    piece: Piece,
    at: usize,
    socket: UnixStream,
}

impl Pump {
    /// Reads on from where somebody else has stopped, who has this much already. A server that is silent for so long is an error
    /// ([`io::ErrorKind::TimedOut`]).
    pub(super) fn start(stream: tokio::net::UnixStream, have: &[u8], patience: Duration) -> io::Result<Self> {
        let stream = stream.into_std()?;
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(patience))?;
        let socket = stream.try_clone()?;
        let (sender, pieces) = mpsc::channel(AHEAD);
        let (spent, free) = blocking::channel();
        let mut buffer = have.to_vec();
        buffer.resize(have.len() + BUFFER, 0);
        let thread = Thread { stream, buffer, filled: have.len(), free, sender };
        // Detached: it ends with the connection, which ends with this.
        drop(tokio::task::spawn_blocking(move || thread.run()));
        Ok(Self { pieces, spent, piece: Piece::default(), at: 0, socket })
    }

    /// The next message. `None`: the connection has ended.
    pub(super) async fn next(&mut self) -> Option<io::Result<Frame>> {
        if self.at == self.piece.end {
            let next = match self.pieces.recv().await? {
                Ok(piece) => piece,
                Err(error) => return Some(Err(error)),
            };
            // A thread that has ended needs none.
            drop(self.spent.send(std::mem::replace(&mut self.piece, next).buffer));
            self.at = 0;
        }
        let start = self.at;
        let header = match Header::parse(&self.piece.buffer[start..self.piece.end]) {
            Ok(Some(header)) => header,
            Ok(None) => return Some(Err(io::ErrorKind::InvalidData.into())),
            Err(error) => return Some(Err(error)),
        };
        self.at = end_of(start, header);
        Some(Ok(Frame { tag: header.tag(), whole: start..self.at, body: start + HEADER..self.at }))
    }

    /// What is in a message, until the next one is asked for.
    pub(super) fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.piece.buffer[range]
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// A message's kind and its length.
const HEADER: usize = 5;

/// Where a message ends. Its length counts itself, and not the letter before it.
fn end_of(start: usize, header: Header) -> usize {
    start + 1 + usize::try_from(header.len()).unwrap_or(usize::MAX - start - 1)
}

struct Thread {
    stream: UnixStream,
    buffer: Vec<u8>,
    filled: usize,
    free: blocking::Receiver<Vec<u8>>,
    sender: mpsc::Sender<io::Result<Piece>>,
}

impl Thread {
    fn run(mut self) {
        // Nobody may be there any more to be told.
        if let Err(error) = self.pump() {
            drop(self.sender.blocking_send(Err(error)));
        }
    }

    /// Until the connection ends, or nobody takes what comes.
    fn pump(&mut self) -> io::Result<()> {
        loop {
            let end = whole(&self.buffer[..self.filled])?;
            if end > 0 && !self.hand_on(end) {
                return Ok(());
            }
            if self.filled == self.buffer.len() {
                self.buffer.resize(self.filled + BUFFER, 0);
            }
            let length = match self.stream.read(&mut self.buffer[self.filled..]) {
                Ok(0) => return Ok(()),
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(io::ErrorKind::TimedOut.into()),
                Err(error) => return Err(error),
            };
            self.filled += length;
            if length < ENOUGH {
                std::thread::sleep(MOMENT);
            }
        }
    }

    /// Hands whole messages on, and moves what is left to the front of another buffer. Whether anybody takes them.
    fn hand_on(&mut self, end: usize) -> bool {
        let mut next = self.free.try_recv().unwrap_or_default();
        let left = self.filled - end;
        next.resize(next.len().max(left + READ).max(BUFFER), 0);
        next[..left].copy_from_slice(&self.buffer[end..self.filled]);
        self.filled = left;
        let buffer = std::mem::replace(&mut self.buffer, next);
        self.sender.blocking_send(Ok(Piece { buffer, end })).is_ok()
    }
}

/// How many bytes at the front are whole messages.
fn whole(bytes: &[u8]) -> io::Result<usize> {
    let mut at = 0;
    while let Some(header) = Header::parse(&bytes[at..])? {
        if header.len() > LONGEST {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a message of {} bytes", header.len())));
        }
        match end_of(at, header) {
            end if end <= bytes.len() => at = end,
            _ => break,
        }
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn message(length: usize) -> Vec<u8> {
        let mut message = vec![b'd'];
        message.extend(u32::try_from(length + 4).unwrap().to_be_bytes());
        message.resize(length + 5, 7);
        message
    }

    #[tokio::test]
    async fn only_whole_messages_are_handed_on_however_they_come() {
        let (ours, mut theirs) = tokio::net::UnixStream::pair().map(|(a, b)| (a, b.into_std().unwrap())).unwrap();
        theirs.set_nonblocking(false).unwrap();
        let sent = [message(0), message(10), message(40_000), message(300_000), message(1)].concat();
        let (have, later) = sent.split_at(7);
        let later = later.to_vec();
        let writer = std::thread::spawn(move || later.chunks(777).for_each(|chunk| theirs.write_all(chunk).unwrap()));
        let mut pump = Pump::start(ours, have, Duration::from_secs(60)).unwrap();
        let (mut received, mut lengths) = (vec![], vec![]);
        while let Some(frame) = pump.next().await {
            let frame = frame.unwrap();
            assert_eq!(frame.tag, b'd');
            received.extend_from_slice(pump.bytes(frame.whole));
            lengths.push(frame.body.len());
        }
        writer.join().unwrap();
        assert!(received == sent);
        assert_eq!(lengths, [0, 10, 40_000, 300_000, 1]);
    }

    #[tokio::test]
    async fn a_message_of_any_length_is_not_believed() {
        let (ours, mut theirs) = tokio::net::UnixStream::pair().map(|(a, b)| (a, b.into_std().unwrap())).unwrap();
        theirs.write_all(b"d\x7f\xff\xff\xff").unwrap();
        let mut pump = Pump::start(ours, &[], Duration::from_secs(60)).unwrap();
        assert_eq!(pump.next().await.unwrap().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[tokio::test]
    async fn the_thread_ends_when_nobody_waits_for_it() {
        let (ours, theirs) = tokio::net::UnixStream::pair().unwrap();
        drop(Pump::start(ours, &[], Duration::from_secs(3600)).unwrap());
        let mut theirs = theirs.into_std().unwrap();
        theirs.set_nonblocking(false).unwrap();
        assert_eq!(theirs.read(&mut [0]).unwrap(), 0, "the connection is closed at once");
    }
}
