//! Decides whether a switchover that somebody asked for is begun: only to a standby that streams and lacks little.
//!
//! From: the request on the Lease, and what the primary sees of its standbys. Never: stops a primary for one who could not take over; the
//! rest is the election's, which stops first, checks that everything arrived, and resumes if it did not.

use crate::election::MemberId;

/// What a request says when anybody will do.
pub const ANY: &str = "any";

/// A standby, as its primary sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The instance.
    pub name: String,
    /// The identity of its volume.
    pub id: MemberId,
    /// Bytes that it has not flushed yet; nothing when it doesn't stream.
    pub lag: Option<u64>,
}

/// How far a standby may be behind: a segment. The shutdown waits until it has the rest.
pub const LAG: u64 = 16 * 1024 * 1024;

/// Why it is not begun.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is none of this name.
    #[error("a switchover to {0} was asked for, which is no standby of this cluster")]
    NoStandby(String),
    /// It doesn't stream.
    #[error("a switchover to {0} was asked for, which does not stream")]
    NotStreaming(String),
    /// It lacks too much.
    #[error("a switchover to {name} was asked for, which lacks {lag} bytes; at most {LAG} may be missing")]
    Behind {
        /// Which.
        name: String,
        /// How much.
        lag: u64,
    },
    /// Nobody could take over.
    #[error("a switchover was asked for, and no standby streams closely enough to take over")]
    Nobody,
}

/// Whom to hand over to: the one that was asked for, or the one that lacks least.
pub fn choose(wanted: &str, standbys: &[Candidate]) -> Result<MemberId, Refusal> {
    if wanted.is_empty() || wanted == ANY {
        let near = standbys.iter().filter_map(|standby| Some((standby.lag.filter(|lag| *lag <= LAG)?, standby.id)));
        return near.min().map(|(_, id)| id).ok_or(Refusal::Nobody);
    }
    let name = wanted.to_owned();
    let standby = standbys.iter().find(|standby| standby.name == wanted);
    match standby.map(|standby| (standby.id, standby.lag)) {
        None => Err(Refusal::NoStandby(name)),
        Some((_, None)) => Err(Refusal::NotStreaming(name)),
        Some((_, Some(lag))) if lag > LAG => Err(Refusal::Behind { name, lag }),
        Some((id, Some(_))) => Ok(id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standbys() -> Vec<Candidate> {
        let standby = |name: &str, id, lag| Candidate { name: name.to_owned(), id: MemberId(id), lag };
        vec![
            standby("a", 1, Some(500)),
            standby("b", 2, Some(100)),
            standby("c", 3, None),
            standby("d", 4, Some(LAG + 1)),
        ]
    }

    #[test]
    fn the_one_that_was_asked_for_or_the_one_that_lacks_least() {
        assert_eq!(choose("a", &standbys()), Ok(MemberId(1)));
        assert_eq!(choose("any", &standbys()), Ok(MemberId(2)));
        assert_eq!(choose("", &standbys()), Ok(MemberId(2)));
    }

    #[test]
    fn nobody_is_stopped_for_one_who_could_not_take_over() {
        assert_eq!(choose("c", &standbys()), Err(Refusal::NotStreaming("c".to_owned())));
        assert_eq!(choose("d", &standbys()), Err(Refusal::Behind { name: "d".to_owned(), lag: LAG + 1 }));
        assert_eq!(choose("x", &standbys()), Err(Refusal::NoStandby("x".to_owned())));
        assert_eq!(choose("any", &standbys()[2..]), Err(Refusal::Nobody));
    }
}
