//! The Lease that says who leads. The operator creates it empty and never writes it again: from then on it is the agents'.

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};

use super::Parent;
use crate::object::{Desired, Kind};
use crate::wal::Term;

/// The empty Lease. Should it have been deleted under a cluster that had leaders, it starts at the last term known, because
/// a term that goes backwards would let a former leader's messages pass as new.
pub fn lease(parent: &Parent<'_>, last_term: Option<Term>) -> Desired {
    let name = parent.names.lease();
    let transitions = last_term.and_then(|term| i32::try_from(term.0).ok());
    let object = Lease {
        metadata: parent.owned(&name),
        spec: Some(LeaseSpec { lease_transitions: transitions, ..LeaseSpec::default() }),
    };
    Desired::of(Kind::Lease, name, &object)
}
