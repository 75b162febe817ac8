//! What agent and guard say to each other: a few bytes down, single lines up.
//!
//! Each order is written at once, and is so short that a pipe takes it whole or not at all: half an order can't exist, though an
//! agent may be killed between any two instructions.

use std::fmt;
use std::str::FromStr;

use bellwether_core::election::{Deadline, Moment};
use nix::sys::signal::Signal;
use nix::sys::wait::WaitStatus;

/// What the agent tells its guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Read the configuration again.
    Reload,
    /// Fast shutdown.
    StopFast,
    /// Immediate shutdown.
    StopImmediate,
    /// Kill every process of PostgreSQL. The end of the pipe means the same.
    Kill,
    /// Kill every process of PostgreSQL when this has passed, unless told otherwise before. The first order is one of these.
    Until(Deadline),
}

/// Before the eight bytes of a deadline: milliseconds of `CLOCK_BOOTTIME`, big endian.
const UNTIL: u8 = b'd';
/// No moment of any machine.
const NEVER: u64 = u64::MAX;

impl Order {
    /// As it goes through the pipe.
    pub fn bytes(self) -> Vec<u8> {
        match self {
            Self::Reload => vec![b'r'],
            Self::StopFast => vec![b'f'],
            Self::StopImmediate => vec![b'i'],
            Self::Kill => vec![b'k'],
            Self::Until(deadline) => {
                let moment = match deadline {
                    Deadline::At(Moment(moment)) => moment,
                    Deadline::Never => NEVER,
                };
                let mut bytes = vec![UNTIL];
                bytes.extend(moment.to_be_bytes());
                bytes
            }
        }
    }
    /// The signal to the postmaster; none when it isn't done by one.
    pub fn signal(self) -> Option<Signal> {
        match self {
            Self::Reload => Some(Signal::SIGHUP),
            Self::StopFast => Some(Signal::SIGINT),
            Self::StopImmediate => Some(Signal::SIGQUIT),
            Self::Kill | Self::Until(_) => None,
        }
    }
}

/// Puts orders together from what came through the pipe, in pieces of any size.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The bytes of a deadline so far.
    moment: Option<([u8; 8], usize)>,
}

impl Decoder {
    /// The order that ends with this byte, if one does.
    pub fn next(&mut self, byte: u8) -> Option<Order> {
        if let Some((mut bytes, count)) = self.moment.take() {
            bytes[count] = byte;
            if count + 1 < bytes.len() {
                self.moment = Some((bytes, count + 1));
                return None;
            }
            return Some(Order::Until(match u64::from_be_bytes(bytes) {
                NEVER => Deadline::Never,
                moment => Deadline::At(Moment(moment)),
            }));
        }
        match byte {
            b'r' => Some(Order::Reload),
            b'f' => Some(Order::StopFast),
            b'i' => Some(Order::StopImmediate),
            b'k' => Some(Order::Kill),
            UNTIL => {
                self.moment = Some(([0; 8], 0));
                None
            }
            _ => None,
        }
    }
}

/// What the guard tells its agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The postmaster's process id.
    Started(i32),
    /// The deadline has passed: everything is being killed.
    Expired,
    /// The postmaster is dead, and so is everything that it started.
    Ended(End),
}

/// How a postmaster ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It exited with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
    /// Nobody saw how: its guard was killed.
    Unknown,
}

impl End {
    /// From what `waitpid` said.
    pub fn of(status: WaitStatus) -> Self {
        match status {
            WaitStatus::Exited(_, code) => Self::Code(code),
            WaitStatus::Signaled(_, signal, _) => Self::Signal(signal as i32),
            _ => Self::Unknown,
        }
    }
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started(pid) => write!(f, "started {pid}"),
            Self::Expired => f.write_str("expired"),
            Self::Ended(End::Code(code)) => write!(f, "exited {code}"),
            Self::Ended(End::Signal(signal)) => write!(f, "killed {signal}"),
            Self::Ended(End::Unknown) => f.write_str("ended"),
        }
    }
}

impl FromStr for News {
    type Err = ();
    fn from_str(line: &str) -> Result<Self, ()> {
        let (word, number) = line.split_once(' ').unwrap_or((line, "0"));
        let number = number.parse().map_err(|_| ())?;
        match word {
            "started" => Ok(Self::Started(number)),
            "expired" => Ok(Self::Expired),
            "exited" => Ok(Self::Ended(End::Code(number))),
            "killed" => Ok(Self::Ended(End::Signal(number))),
            "ended" => Ok(Self::Ended(End::Unknown)),
            _ => Err(()),
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(0) => f.write_str("PostgreSQL has shut down"),
            Self::Code(code) => write!(f, "PostgreSQL exited with code {code}"),
            Self::Signal(signal) => write!(f, "PostgreSQL was killed by signal {signal}"),
            Self::Unknown => f.write_str("PostgreSQL ended with its guard"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_arrive_as_they_were_sent() {
        let sent = [
            Order::Reload,
            Order::Until(Deadline::At(Moment(0x6672_6b69_0a64))),
            Order::StopFast,
            Order::Until(Deadline::Never),
            Order::Until(Deadline::At(Moment(u64::MAX - 1))),
            Order::StopImmediate,
            Order::Kill,
        ];
        let mut decoder = Decoder::default();
        let bytes = sent.into_iter().flat_map(Order::bytes);
        assert_eq!(bytes.filter_map(|byte| decoder.next(byte)).collect::<Vec<_>>(), sent);
        assert_eq!(decoder.next(b'\n'), None);
    }

    #[test]
    fn a_deadline_is_nine_bytes() {
        assert_eq!(Order::Until(Deadline::At(Moment(258))).bytes(), [b'd', 0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(Order::Until(Deadline::Never).bytes()[1..], [0xff; 8]);
    }

    #[test]
    fn news_arrive_as_they_were_sent() {
        for news in [
            News::Started(7),
            News::Expired,
            News::Ended(End::Code(1)),
            News::Ended(End::Signal(9)),
            News::Ended(End::Unknown),
        ] {
            assert_eq!(news.to_string().parse(), Ok(news));
        }
        assert!("nonsense".parse::<News>().is_err());
    }
}
