//! EndpointSlices: addresses of one type, on ports with names.

use serde_json::{Value, json};

use super::{each, immutable, set_default};
use crate::error::FieldError;

/// The defaults of a slice.
pub(super) fn defaults(slice: &mut Value) {
    for port in each(slice, "ports") {
        set_default(port, "name", "");
        set_default(port, "protocol", "TCP");
    }
    each(slice, "endpoints").for_each(|endpoint| set_default(endpoint, "conditions", json!({})));
}

/// What is wrong with a slice. Loopback addresses are fine here: they are all that a home on one machine has.
pub(super) fn validate(slice: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let types = ["FQDN", "IPv4", "IPv6"];
    let kind = slice["addressType"].as_str().unwrap_or_default();
    if kind.is_empty() {
        errors.push(FieldError::required("addressType", ""));
    } else if !types.contains(&kind) {
        errors.push(FieldError::not_supported("addressType", &kind.into(), &types.map(String::from)));
    }
    for (index, endpoint) in slice["endpoints"].as_array().into_iter().flatten().enumerate() {
        let at = format!("endpoints[{index}].addresses");
        let addresses = endpoint["addresses"].as_array().map(Vec::as_slice).unwrap_or_default();
        if addresses.is_empty() {
            errors.push(FieldError::required(&at, "must contain at least 1 address"));
        }
        for (place, address) in addresses.iter().enumerate() {
            errors.extend(address_error(kind, &format!("{at}[{place}]"), address));
        }
    }
    errors
}

fn address_error(kind: &str, field: &str, address: &Value) -> Option<FieldError> {
    let parsed = address.as_str().and_then(|text| text.parse::<std::net::IpAddr>().ok());
    let rule = match (kind, parsed) {
        ("IPv4" | "IPv6", None) => "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        ("IPv4", Some(found)) if !found.is_ipv4() => "must be an IPv4 address",
        ("IPv6", Some(found)) if !found.is_ipv6() => "must be an IPv6 address",
        _ => return None,
    };
    Some(FieldError::invalid(field, address, rule))
}

/// A slice keeps its type of address.
pub(super) fn validate_update(slice: &Value, current: &Value) -> Vec<FieldError> {
    if slice["addressType"] == current["addressType"] {
        Vec::new()
    } else {
        vec![immutable("addressType", &slice["addressType"])]
    }
}
