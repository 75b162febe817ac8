//! Decides what a kubelet is told, from the report: whether the instance is ready, and if not, why, in one line.
//!
//! Never: ready while SQL isn't answered, or on a standby that has lost its primary.

use bellwether_api::v1::{InstanceRole, InstanceState};

use crate::contract::Report;

/// Ready, or the reason why not.
pub fn ready(report: &Report) -> Result<(), String> {
    let state = match (report.role, report.state) {
        _ if !report.accepts_sql => Err("SQL is not answered"),
        (Some(InstanceRole::Primary), InstanceState::Leading) => Ok(()),
        (Some(InstanceRole::Standby), InstanceState::Streaming | InstanceState::CatchingUp) => Ok(()),
        (Some(InstanceRole::Standby), _) => Err("the standby does not stream"),
        _ => Err("the instance has no role"),
    };
    state.map_err(|why| match &report.message {
        Some(message) => format!("{why} ({:?}): {message}", report.state),
        None => format!("{why} ({:?})", report.state),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(role: Option<InstanceRole>, state: InstanceState, accepts_sql: bool) -> Report {
        Report { role, state, accepts_sql, ..Report::default() }
    }

    #[test]
    fn who_leads_or_streams_and_answers_is_ready() {
        assert_eq!(ready(&report(Some(InstanceRole::Primary), InstanceState::Leading, true)), Ok(()));
        assert_eq!(ready(&report(Some(InstanceRole::Standby), InstanceState::Streaming, true)), Ok(()));
        assert_eq!(ready(&report(Some(InstanceRole::Standby), InstanceState::CatchingUp, true)), Ok(()));
    }

    #[test]
    fn who_does_not_answer_is_not_ready_whatever_it_is() {
        for role in [None, Some(InstanceRole::Primary), Some(InstanceRole::Standby)] {
            for state in [InstanceState::Leading, InstanceState::Streaming, InstanceState::Down] {
                assert!(ready(&report(role, state, false)).is_err(), "{role:?} {state:?}");
            }
        }
    }

    #[test]
    fn a_standby_without_its_primary_is_not_ready_and_says_why() {
        let mut lost = report(Some(InstanceRole::Standby), InstanceState::NotStreaming, true);
        lost.message = Some("connection refused".into());
        assert!(ready(&lost).unwrap_err().contains("connection refused"));
    }
}
