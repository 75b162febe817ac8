//! Which loopback addresses one `bellwether up` uses: a /16 of its own, `127.N.0.0`.
//!
//! The range is claimed by listening on one port in it, which any kind of death releases and which is scoped exactly as the
//! addresses are. It is kept in the data directory, because Services keep their addresses for life; where a directory begins to look for one
//! follows from its name, so that one that is stopped seldom finds another on its range. Never: two homes on one range, or an
//! address that a stranger listens on.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};
use std::path::Path;
use std::str::FromStr;

use bellwether_core::contract::{AGENT_PORT, PEER_PORT, POSTGRES_PORT};

/// The port that stands for the whole range.
const CLAIM_PORT: u16 = 6442;
/// The API's port, on the range's first address, when `--listen` is left out.
pub const API_PORT: u16 = 6443;
/// 127.0 is everybody's, and the first dozens are popular with other tools.
const FIRST: u8 = 64;
const LAST: u8 = 254;

/// A /16 of loopback addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range(u8);

/// A range that is ours until this is dropped.
#[derive(Debug)]
pub struct Claim {
    /// The range.
    pub range: Range,
    _listener: TcpListener,
}

/// Why a range can't be had.
#[derive(Debug, thiserror::Error)]
pub enum RangeError {
    /// The text isn't a range.
    #[error("--range {text:?}: write it as 127.N with N from 1 to 254, such as 127.64")]
    Malformed {
        /// What was written.
        text: String,
    },
    /// The data directory has another.
    #[error(
        "--range {wanted}: this data directory has the range {kept}, and its Services keep their addresses; leave \
             the option out, or choose another directory with --data-dir"
    )]
    Kept {
        /// What was asked for.
        wanted: Range,
        /// What the directory has.
        kept: Range,
    },
    /// Somebody has it.
    #[error(
        "the address range {range} is in use: {address} is taken{by}; stop what uses it, or choose another with \
             --range 127.N and a new --data-dir"
    )]
    Busy {
        /// The range.
        range: Range,
        /// The address that is taken.
        address: SocketAddr,
        /// Who has it, if that can be told.
        by: String,
    },
    /// Somebody listens on this port of every address.
    #[error(
        "port {port} is taken on every loopback address{by}; stop what listens there, or make it listen on \
             127.0.0.1 only"
    )]
    PortTakenEverywhere {
        /// The port.
        port: u16,
        /// Who has it, if that can be told.
        by: String,
    },
    /// The directory's own file can't be read or written.
    #[error("the file {path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
}

impl Range {
    /// Where the API listens unless told otherwise.
    pub fn api(self) -> SocketAddr {
        SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(127, self.0, 0, 1), API_PORT))
    }
    /// The address of node `n` (1, 2, 3).
    pub fn node(self, n: u8) -> Ipv4Addr {
        Ipv4Addr::new(127, self.0, 0, 10 + n)
    }
    /// Whether an address is in the range.
    pub fn holds(self, address: Ipv4Addr) -> bool {
        address.octets()[..2] == [127, self.0]
    }
    /// The addresses for Services: 127.N.1.1 to 127.N.15.254.
    pub fn services(self) -> Pool {
        Pool { range: self, subnets: (1, 15), last: None }
    }
    /// The addresses for pods: 127.N.16.1 to 127.N.254.254.
    pub fn pods(self) -> Pool {
        Pool { range: self, subnets: (16, 254), last: None }
    }

    /// Takes the range that `file` keeps, or the wanted one, or one that is free, and keeps it in `file`.
    pub fn claim(file: &Path, wanted: Option<Self>) -> Result<Claim, RangeError> {
        let io = |source| RangeError::Io { path: file.display().to_string(), source };
        let kept = match std::fs::read_to_string(file) {
            Ok(text) => Some(text.trim().parse::<Self>()?),
            Err(missing) if missing.kind() == ErrorKind::NotFound => None,
            Err(other) => return Err(io(other)),
        };
        let claim = match (kept, wanted) {
            (Some(kept), Some(wanted)) if kept != wanted => return Err(RangeError::Kept { wanted, kept }),
            (Some(range), _) | (None, Some(range)) => range.take()?,
            (None, None) => free(beginning(file))?,
        };
        if kept.is_none() {
            std::fs::write(file, format!("{}\n", claim.range)).map_err(io)?;
        }
        Ok(claim)
    }

    fn take(self) -> Result<Claim, RangeError> {
        let address = |port| SocketAddr::from((Ipv4Addr::new(127, self.0, 0, 1), port));
        let busy = |address: SocketAddr| RangeError::Busy { range: self, address, by: listener_of(address) };
        let listener = TcpListener::bind(address(CLAIM_PORT)).map_err(|_| busy(address(CLAIM_PORT)))?;
        for port in [POSTGRES_PORT, AGENT_PORT, PEER_PORT] {
            // A pod's address: what listens on all addresses would be in its way.
            let pod = SocketAddr::from((Ipv4Addr::new(127, self.0, 16, 1), port));
            TcpListener::bind(pod).map_err(|_| busy(pod))?;
        }
        Ok(Claim { range: self, _listener: listener })
    }
}

/// Where a directory begins to look.
fn beginning(file: &Path) -> u8 {
    let mut hash = DefaultHasher::new();
    file.hash(&mut hash);
    FIRST + u8::try_from(hash.finish() % u64::from(LAST - FIRST)).unwrap_or(0)
}

/// The first that is free, from here on and then from the beginning.
fn free(from: u8) -> Result<Claim, RangeError> {
    for port in [POSTGRES_PORT, AGENT_PORT, PEER_PORT, CLAIM_PORT] {
        let everywhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        let taken = |n: u8| TcpListener::bind((Ipv4Addr::new(127, n, 255, 254), port)).is_err();
        if taken(FIRST) && taken(LAST) {
            return Err(RangeError::PortTakenEverywhere { port, by: listener_of(everywhere) });
        }
    }
    let mut all = (from..=LAST).chain(FIRST..from);
    all.find_map(|n| Range(n).take().ok()).map_or_else(|| Range(LAST).take(), Ok)
}

/// " by pid 12 (postgres)", or nothing when that can't be seen.
pub fn listener_of(address: SocketAddr) -> String {
    crate::proc::listener(address).map_or_else(String::new, |(pid, name)| format!(" by pid {pid} ({name})"))
}

/// Addresses to give out. The next one after the last given is tried first, so that an address that was just left isn't
/// somebody else's at once while old connections and caches still point at it.
#[derive(Debug)]
pub struct Pool {
    range: Range,
    subnets: (u8, u8),
    last: Option<Ipv4Addr>,
}

impl Pool {
    /// An address that isn't taken; nothing when all are.
    pub fn next_free(&mut self, is_taken: impl Fn(Ipv4Addr) -> bool) -> Option<Ipv4Addr> {
        let (first, last) = self.subnets;
        let all = move |range: Range| {
            (first..=last)
                .flat_map(move |third| (1..=254).map(move |fourth| Ipv4Addr::new(127, range.0, third, fourth)))
        };
        let after = all(self.range).filter(|address| self.last.is_none_or(|last| *address > last));
        let found = after.chain(all(self.range)).find(|address| !is_taken(*address))?;
        self.last = Some(found);
        Some(found)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "127.{}", self.0)
    }
}

impl FromStr for Range {
    type Err = RangeError;
    fn from_str(text: &str) -> Result<Self, RangeError> {
        let n = text.strip_prefix("127.").and_then(|n| n.parse().ok()).filter(|n| (1..=254).contains(n));
        n.map(Self).ok_or_else(|| RangeError::Malformed { text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_range_is_written_as_the_first_two_numbers() {
        assert_eq!("127.64".parse::<Range>().unwrap().to_string(), "127.64");
        for text in ["127.0", "127.255", "127.x", "10.1", "127.1.2", ""] {
            assert!(text.parse::<Range>().is_err(), "{text}");
        }
    }

    #[test]
    fn two_homes_get_two_ranges_and_keep_them() {
        let temp = tempfile::tempdir().unwrap();
        let (one, two) = (temp.path().join("one"), temp.path().join("two"));
        let first = Range::claim(&one, None).unwrap();
        let second = Range::claim(&two, None).unwrap();
        assert_ne!(first.range, second.range);
        let range = first.range;
        let refusal = Range::claim(&one, None).unwrap_err().to_string();
        assert!(refusal.contains(&range.to_string()) && refusal.contains("--range"), "{refusal}");
        drop(first);
        assert_eq!(Range::claim(&one, None).unwrap().range, range);
    }

    #[test]
    fn a_directory_never_changes_its_range() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("range");
        let kept = Range::claim(&file, None).unwrap().range;
        let other = Range(if kept.0 == 200 { 201 } else { 200 });
        assert!(matches!(Range::claim(&file, Some(other)), Err(RangeError::Kept { .. })));
    }

    #[test]
    fn addresses_go_round_before_one_comes_back() {
        let mut pool = Range(99).pods();
        let mut used = BTreeSet::new();
        let first = pool.next_free(|address| used.contains(&address)).unwrap();
        assert_eq!(first, Ipv4Addr::new(127, 99, 16, 1));
        assert_eq!(pool.next_free(|address| used.contains(&address)).unwrap(), Ipv4Addr::new(127, 99, 16, 2));
        used.insert(Ipv4Addr::new(127, 99, 16, 3));
        assert_eq!(pool.next_free(|address| used.contains(&address)).unwrap(), Ipv4Addr::new(127, 99, 16, 4));
    }
}
