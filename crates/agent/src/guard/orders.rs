//! What agent and guard say to each other: single bytes down, single lines up.
//!
//! Bytes, because a half-written message can't exist then: an agent may be killed between any two instructions.

use std::fmt;
use std::str::FromStr;

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
}

impl Order {
    const ALL: [Self; 4] = [Self::Reload, Self::StopFast, Self::StopImmediate, Self::Kill];

    /// As it goes through the pipe.
    pub fn byte(self) -> u8 {
        match self {
            Self::Reload => b'r',
            Self::StopFast => b'f',
            Self::StopImmediate => b'i',
            Self::Kill => b'k',
        }
    }
    /// What came through the pipe.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|order| order.byte() == byte)
    }
    /// The signal to the postmaster; none when it isn't done by one.
    pub fn signal(self) -> Option<Signal> {
        match self {
            Self::Reload => Some(Signal::SIGHUP),
            Self::StopFast => Some(Signal::SIGINT),
            Self::StopImmediate => Some(Signal::SIGQUIT),
            Self::Kill => None,
        }
    }
}

/// What the guard tells its agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The postmaster's process id.
    Started(i32),
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
        for order in Order::ALL {
            assert_eq!(Order::from_byte(order.byte()), Some(order));
        }
        assert_eq!(Order::from_byte(b'\n'), None);
    }

    #[test]
    fn news_arrive_as_they_were_sent() {
        for news in
            [News::Started(7), News::Ended(End::Code(1)), News::Ended(End::Signal(9)), News::Ended(End::Unknown)]
        {
            assert_eq!(news.to_string().parse(), Ok(news));
        }
        assert!("nonsense".parse::<News>().is_err());
    }
}
