//! Sets a condition the way Kubernetes means it.
//!
//! From: the conditions as they are, and the new finding. Never: moves `lastTransitionTime` unless the status flips (it
//! answers "since when", and people and alerts rely on it), or lists a type twice.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::reason::Reason;

/// Whether a condition holds. "We could not look" is `Unknown`, never `False`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It holds.
    True,
    /// It doesn't.
    False,
    /// It could not be observed.
    Unknown,
}

impl Status {
    /// As Kubernetes writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for Status {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// Sets the condition `type_` in `conditions`, adding it at the end when it is new.
pub fn set(
    conditions: &mut Vec<Condition>,
    type_: &str,
    status: Status,
    reason: Reason,
    message: impl Into<String>,
    generation: Option<i64>,
    now: Timestamp,
) {
    let before = conditions.iter().position(|condition| condition.type_ == type_);
    let since = before.map(|place| &conditions[place]).filter(|condition| condition.status == status.as_str());
    let condition = Condition {
        type_: type_.to_owned(),
        status: status.as_str().to_owned(),
        reason: reason.to_string(),
        message: message.into(),
        observed_generation: generation,
        last_transition_time: since
            .map_or_else(|| Time(whole_seconds(now)), |condition| condition.last_transition_time.clone()),
    };
    match before {
        Some(place) => conditions[place] = condition,
        None => conditions.push(condition),
    }
}

/// The API stores whole seconds. A finer time would read back different from what was written, and the next pass would
/// write it again.
fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(millis).expect("a time")
    }

    fn ready(conditions: &mut Vec<Condition>, status: Status, reason: Reason, now: Timestamp) {
        set(conditions, "Ready", status, reason, reason.to_string(), Some(1), now);
    }

    #[test]
    fn the_time_stays_while_the_status_does() {
        let mut conditions = vec![];
        ready(&mut conditions, Status::False, Reason::Provisioning, at(10_000));
        ready(&mut conditions, Status::False, Reason::Bootstrapping, at(20_000));
        assert_eq!(conditions[0].last_transition_time.0, at(10_000));
        assert_eq!(conditions[0].reason, "Bootstrapping", "reason and message move on");
    }

    #[test]
    fn the_time_moves_when_the_status_flips() {
        let mut conditions = vec![];
        ready(&mut conditions, Status::False, Reason::Joining, at(10_000));
        ready(&mut conditions, Status::True, Reason::AsSpecified, at(20_000));
        ready(&mut conditions, Status::Unknown, Reason::AsSpecified, at(30_000));
        assert_eq!(conditions[0].last_transition_time.0, at(30_000));
    }

    #[test]
    fn a_type_is_listed_once_and_keeps_its_place() {
        let mut conditions = vec![];
        ready(&mut conditions, Status::True, Reason::AsSpecified, at(0));
        set(&mut conditions, "Degraded", Status::False, Reason::AsSpecified, "", None, at(0));
        ready(&mut conditions, Status::False, Reason::NoPrimary, at(0));
        let types: Vec<_> = conditions.iter().map(|condition| condition.type_.as_str()).collect();
        assert_eq!(types, ["Ready", "Degraded"]);
    }

    #[test]
    fn setting_the_same_twice_changes_nothing() {
        let mut once = vec![];
        ready(&mut once, Status::True, Reason::AsSpecified, at(10_500));
        let mut twice = once.clone();
        ready(&mut twice, Status::True, Reason::AsSpecified, at(99_000));
        assert_eq!(once, twice);
    }

    #[test]
    fn the_time_reads_back_as_it_was_written() {
        let mut conditions = vec![];
        ready(&mut conditions, Status::True, Reason::AsSpecified, at(10_987));
        let stored = serde_json::to_value(&conditions).expect("conditions are JSON");
        let read: Vec<Condition> = serde_json::from_value(stored).expect("and back");
        assert_eq!(read, conditions);
    }
}
