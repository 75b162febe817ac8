//! A Secret that the user named: what it takes to get into the object store.
//!
//! Never: its contents in an error or a log.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;

use super::{ApiError, call};

/// Its keys with their values.
pub async fn read(api: &Api<Secret>, name: &str) -> Result<BTreeMap<String, String>, ApiError> {
    let secret = call("read the Secret", api.get(name)).await?;
    let text = |(key, value): (String, k8s_openapi::ByteString)| match String::from_utf8(value.0) {
        // People make Secrets with `echo`.
        Ok(text) => Ok((key, text.strip_suffix('\n').map_or(text.clone(), str::to_owned))),
        Err(_) => Err(ApiError::Malformed { what: "the Secret", why: format!("{name}: key {key:?} is no text") }),
    };
    secret.data.unwrap_or_default().into_iter().map(text).collect()
}
