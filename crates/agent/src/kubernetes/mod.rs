//! What the agent reads from and writes to the Kubernetes API: the Lease, its own Pod's report, the `rw` EndpointSlice.
//!
//! Never: a call without a deadline, or one that a library repeats behind our back: a Lease write that is sent twice could
//! commit after somebody else took over (the client has no retries, see `bellwether_runtime::client`).

pub mod endpoint;
pub mod lease;
pub mod pod;
pub mod secret;

use std::time::Duration;

/// How long a call may take. A healthy API answers in tens of milliseconds; whoever waits longer is better off deciding
/// again on fresh facts.
pub const DEADLINE: Duration = Duration::from_secs(3);

/// Why a call did not work.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The API answered no, or could not be reached.
    #[error("{what}: {}", said(cause))]
    Call {
        /// What was tried.
        what: &'static str,
        /// What came back.
        cause: Box<kube::Error>,
    },
    /// It didn't answer in time. Whether the call took effect is unknown.
    #[error("{what}: no answer from the API within {} s", DEADLINE.as_secs())]
    Timeout {
        /// What was tried.
        what: &'static str,
    },
    /// The object holds something that we can't read.
    #[error("{what}: {why}")]
    Malformed {
        /// What was read.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
}

/// What the API said, for people; kube's own text repeats the whole Status object.
fn said(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("{} ({})", status.message, status.code),
        other => other.to_string(),
    }
}

/// Runs a call with the deadline.
async fn call<T>(what: &'static str, future: impl Future<Output = kube::Result<T>>) -> Result<T, ApiError> {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(cause)) => Err(ApiError::Call { what, cause: Box::new(cause) }),
        Err(_) => Err(ApiError::Timeout { what }),
    }
}
