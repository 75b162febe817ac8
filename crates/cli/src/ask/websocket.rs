//! The client's side of a WebSocket (RFC 6455), as far as a forwarded port needs it: binary messages, pings, the end.
//!
//! Written here because it is this little: a library for it would be the largest thing in the program that only one command uses. Never: a frame
//! sent without its mask, or a message larger than [`LIMIT`] taken in.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// API servers and kubelets send what they read at once, some tens of kilobytes.
const LIMIT: usize = 4 << 20;

const CONTINUATION: u8 = 0x0;
const TEXT: u8 = 0x1;
const BINARY: u8 = 0x2;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const PONG: u8 = 0xa;
const FINAL: u8 = 0x80;
const MASKED: u8 = 0x80;

/// A WebSocket whose handshake is done.
pub struct Socket<S> {
    stream: S,
    /// What was read and is not a complete frame yet.
    read: Vec<u8>,
    /// What came of a message in several frames.
    begun: Vec<u8>,
}

/// What comes.
#[derive(Debug, PartialEq, Eq)]
pub enum Message {
    /// Bytes.
    Data(Vec<u8>),
    /// Nothing more.
    End,
}

struct Frame {
    last: bool,
    opcode: u8,
    payload: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket<S> {
    /// On this stream.
    pub fn new(stream: S) -> Self {
        Self { stream, read: vec![], begun: vec![] }
    }

    /// The next message. Whoever stops waiting for it loses nothing.
    pub async fn next(&mut self) -> io::Result<Message> {
        loop {
            while let Some(frame) = take(&mut self.read)? {
                match frame.opcode {
                    BINARY | TEXT | CONTINUATION => {
                        self.begun.extend_from_slice(&frame.payload);
                        if self.begun.len() > LIMIT {
                            return Err(too_large());
                        }
                        if frame.last {
                            return Ok(Message::Data(std::mem::take(&mut self.begun)));
                        }
                    }
                    PING => self.frame(PONG, &frame.payload).await?,
                    CLOSE => return Ok(Message::End),
                    _ => {}
                }
            }
            if self.stream.read_buf(&mut self.read).await? == 0 {
                return Ok(Message::End);
            }
        }
    }

    /// Sends a message.
    pub async fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.frame(BINARY, message).await
    }

    /// Says that nothing more comes.
    pub async fn close(&mut self) -> io::Result<()> {
        self.frame(CLOSE, &[]).await
    }

    async fn frame(&mut self, opcode: u8, payload: &[u8]) -> io::Result<()> {
        let mut mask = [0u8; 4];
        getrandom::fill(&mut mask).map_err(|error| io::Error::other(error.to_string()))?;
        self.stream.write_all(&written(opcode, payload, mask)).await?;
        self.stream.flush().await
    }
}

/// A frame of ours.
fn written(opcode: u8, payload: &[u8], mask: [u8; 4]) -> Vec<u8> {
    let mut frame = vec![FINAL | opcode];
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(length @ 0..=125), _) => frame.push(MASKED | length),
        (_, Ok(length)) => {
            frame.push(MASKED | 126);
            frame.extend(length.to_be_bytes());
        }
        _ => {
            frame.push(MASKED | 127);
            frame.extend((payload.len() as u64).to_be_bytes());
        }
    }
    frame.extend(mask);
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

/// Takes a complete frame of theirs off the beginning of what was read.
fn take(read: &mut Vec<u8>) -> io::Result<Option<Frame>> {
    let [first, second, rest @ ..] = read.as_slice() else { return Ok(None) };
    if second & MASKED != 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a server's frame has a mask"));
    }
    let (header, length) = match second & !MASKED {
        126 => match rest.first_chunk::<2>() {
            Some(length) => (4, u64::from(u16::from_be_bytes(*length))),
            None => return Ok(None),
        },
        127 => match rest.first_chunk::<8>() {
            Some(length) => (10, u64::from_be_bytes(*length)),
            None => return Ok(None),
        },
        length => (2, u64::from(length)),
    };
    let length = usize::try_from(length).ok().filter(|length| *length <= LIMIT).ok_or_else(too_large)?;
    let (last, opcode) = (first & FINAL != 0, first & 0x0f);
    if read.len() < header + length {
        return Ok(None);
    }
    let payload = read[header..header + length].to_vec();
    read.drain(..header + length);
    Ok(Some(Frame { last, opcode, payload }))
}

fn too_large() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a WebSocket message of more than 4 MiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame as a server sends it.
    fn theirs(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = written(0, payload, [0; 4]);
        let mask_at = frame.len() - payload.len() - 4;
        frame.drain(mask_at..mask_at + 4);
        frame[1] &= !MASKED;
        frame[0] = first;
        frame
    }

    async fn heard(bytes: &[u8]) -> io::Result<Vec<Message>> {
        let (ours, mut other) = tokio::io::duplex(1 << 20);
        other.write_all(bytes).await?;
        other.shutdown().await?;
        let mut socket = Socket::new(ours);
        let mut all = vec![];
        loop {
            match socket.next().await? {
                Message::End => return Ok(all),
                message => all.push(message),
            }
        }
    }

    #[tokio::test]
    async fn messages_of_every_length_arrive_whole_also_in_several_frames() {
        for length in [0, 1, 125, 126, 65_535, 65_536] {
            let payload = vec![7; length];
            assert_eq!(heard(&theirs(0x82, &payload)).await.unwrap(), [Message::Data(payload)], "{length}");
        }
        let parts = [theirs(0x02, b"ab"), theirs(0x89, b"ping"), theirs(0x80, b"cd"), theirs(0x82, b"e")].concat();
        let whole = [Message::Data(b"abcd".to_vec()), Message::Data(b"e".to_vec())];
        assert_eq!(heard(&parts).await.unwrap(), whole);
        let ended = [theirs(0x88, &[]), theirs(0x82, b"late")].concat();
        assert_eq!(heard(&ended).await.unwrap(), []);
    }

    #[tokio::test]
    async fn a_ping_is_answered_with_what_it_said() {
        let (ours, mut other) = tokio::io::duplex(1 << 10);
        other.write_all(&[theirs(0x89, b"hello"), theirs(0x82, b"x")].concat()).await.unwrap();
        let mut socket = Socket::new(ours);
        socket.next().await.unwrap();
        let mut pong = [0; 11];
        other.read_exact(&mut pong).await.unwrap();
        assert_eq!(pong[..2], [0x8a, 0x85]);
        let said: Vec<u8> = pong[6..].iter().zip(pong[2..6].iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
        assert_eq!(said, b"hello");
    }

    #[tokio::test]
    async fn what_no_server_sends_ends_it() {
        let mut masked = theirs(0x82, b"x");
        masked[1] |= MASKED;
        assert!(heard(&masked).await.is_err());
        let huge = [&[0x82, 127][..], &u64::MAX.to_be_bytes()].concat();
        assert!(heard(&huge).await.unwrap_err().to_string().contains("4 MiB"));
    }

    #[test]
    fn what_we_send_is_masked() {
        assert_eq!(
            written(BINARY, b"Hello", [0x37, 0xfa, 0x21, 0x3d])[2..],
            [0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58]
        );
        assert_eq!(written(BINARY, &[0; 126], [0; 4])[..4], [0x82, 0xfe, 0, 126]);
        assert_eq!(written(BINARY, &[0; 65_536], [0; 4])[..2], [0x82, 0xff]);
    }
}
