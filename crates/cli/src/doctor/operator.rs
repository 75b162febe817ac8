//! Which operator leads, by the Lease of its election, wherever it was installed.
//!
//! Never: calls an operator gone because whoever asks may not see its Lease, or because it takes part in no election.

use bellwether_core::rbac::LEADER_LEASE;
use bellwether_runtime::client::within;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

/// What is known of the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operator {
    /// This one leads, or led.
    Leads {
        /// Its namespace.
        namespace: String,
        /// Who it is.
        holder: String,
        /// When it said so last.
        renewed: Option<Timestamp>,
    },
    /// There is no Lease: one that runs alone has none.
    NoElection,
    /// That could not be looked at.
    Unseen(String),
}

/// Looks for it.
pub async fn look(client: &Client) -> Operator {
    let api: Api<Lease> = Api::all(client.clone());
    let params = ListParams::default().fields(&format!("metadata.name={LEADER_LEASE}"));
    let leases = match within(api.list(&params)).await {
        Ok(Ok(leases)) => leases.items,
        Ok(Err(error)) => return Operator::Unseen(error.to_string()),
        Err(late) => return Operator::Unseen(late.to_string()),
    };
    // Of several installations, the one that was heard of last.
    let led = leases.iter().filter_map(|lease| {
        let spec = lease.spec.as_ref()?;
        let holder = spec.holder_identity.clone().filter(|holder| !holder.is_empty())?;
        let renewed = spec.renew_time.as_ref().map(|at| at.0);
        Some((renewed, Operator::Leads { namespace: lease.namespace().unwrap_or_default(), holder, renewed }))
    });
    led.max_by_key(|(renewed, _)| *renewed).map_or(Operator::NoElection, |(_, operator)| operator)
}
