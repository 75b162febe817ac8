//! Decides whether a switchover that somebody asked for is begun: only to a standby that streams and lacks little.
//!
//! From: the request on the Lease, and what the primary sees of its standbys. Never: stops a primary for one who could not take over; the
//! rest is the election's, which stops first, checks that everything arrived, and resumes if it did not.

use crate::election::MemberId;
use crate::instance::space::Space;

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
    /// How much room its volumes have, if it said.
    pub space: Option<Space>,
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
    /// It could not write.
    #[error("a switchover to {0} was asked for, whose volume is full")]
    Full(String),
    /// Nobody could take over.
    #[error("a switchover was asked for, and no standby streams closely enough and has room to take over")]
    Nobody,
}

/// Whom to hand over to: the one that was asked for, or the one that lacks least.
pub fn choose(wanted: &str, standbys: &[Candidate]) -> Result<MemberId, Refusal> {
    if wanted.is_empty() || wanted == ANY {
        let writable = standbys.iter().filter(|standby| standby.space != Some(Space::Full));
        return nearest(writable).ok_or(Refusal::Nobody);
    }
    let name = wanted.to_owned();
    let standby = standbys.iter().find(|standby| standby.name == wanted);
    if standby.is_some_and(|standby| standby.space == Some(Space::Full)) {
        return Err(Refusal::Full(name));
    }
    match standby.map(|standby| (standby.id, standby.lag)) {
        None => Err(Refusal::NoStandby(name)),
        Some((_, None)) => Err(Refusal::NotStreaming(name)),
        Some((_, Some(lag))) if lag > LAG => Err(Refusal::Behind { name, lag }),
        Some((id, Some(_))) => Ok(id),
    }
}

/// Whom a primary hands over to whose own volume is full: one that is known to have ample room. Two that are nearly full would hand over to
/// each other in turns.
pub fn with_room(standbys: &[Candidate]) -> Option<MemberId> {
    nearest(standbys.iter().filter(|standby| standby.space == Some(Space::Ample)))
}

fn nearest<'a>(standbys: impl Iterator<Item = &'a Candidate>) -> Option<MemberId> {
    let near = standbys.filter_map(|standby| Some((standby.lag.filter(|lag| *lag <= LAG)?, standby.id)));
    near.min().map(|(_, id)| id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standbys() -> Vec<Candidate> {
        let standby = |name: &str, id, lag| Candidate { name: name.to_owned(), id: MemberId(id), lag, space: None };
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

    #[test]
    fn one_that_is_full_is_handed_over_to_by_nobody() {
        let mut standbys = standbys();
        standbys[1].space = Some(Space::Full);
        assert_eq!(choose("b", &standbys), Err(Refusal::Full("b".to_owned())));
        assert_eq!(choose("any", &standbys), Ok(MemberId(1)));
    }

    #[test]
    fn a_full_primary_hands_over_only_to_one_that_is_known_to_have_room() {
        let mut standbys = standbys();
        assert_eq!(with_room(&standbys), None, "nobody said");
        standbys[0].space = Some(Space::Ample);
        standbys[1].space = Some(Space::Low);
        standbys[2].space = Some(Space::Ample);
        assert_eq!(with_room(&standbys), Some(MemberId(1)), "the nearest of them is low, another does not stream");
    }
}
