//! Writes answers: objects, lists, tables, refusals, with their headers.

use axum::body::Body;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WARNING};
use http::{HeaderValue, Response, StatusCode};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::accept::{Accepted, Encoding, Form};
use super::options;
use super::route::Query;
use super::table::{Table, partial_metadata};
use crate::error::ApiError;
use crate::registry::Resource;
use crate::request::Page;

/// An HTTP answer.
pub(super) type Answer = Response<Body>;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct List<'a> {
    kind: &'a str,
    api_version: String,
    metadata: Value,
    items: Vec<Item<'a>>,
}

/// An object in a list. A list of a built-in kind does not repeat kind and version in each item; one of a CRD's kind does.
struct Item<'a> {
    object: &'a Value,
    names_its_kind: bool,
}

impl Serialize for Item<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.object {
            Value::Object(fields) if !self.names_its_kind => {
                serializer.collect_map(fields.iter().filter(|(name, _)| *name != "kind" && *name != "apiVersion"))
            }
            other => other.serialize(serializer),
        }
    }
}

/// A document.
pub(super) fn document(code: u16, encoding: Encoding, value: &impl Serialize) -> Answer {
    let written = match encoding {
        Encoding::Json => {
            serde_json::to_vec(value).map(|body| (body, "application/json")).map_err(|error| error.to_string())
        }
        Encoding::Yaml => serde_saphyr::to_string(value)
            .map(|text| (text.into_bytes(), "application/yaml"))
            .map_err(|error| error.to_string()),
    };
    match written {
        Ok((body, media)) => bytes(code, media, body),
        Err(error) => refusal(&ApiError::internal(format!("writing the answer: {error}"))),
    }
}

/// Bytes of a media type.
pub(super) fn bytes(code: u16, media: &'static str, body: impl Into<Body>) -> Answer {
    let mut answer = Response::new(body.into());
    *answer.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    answer
}

/// A refusal as a `Status`.
pub(super) fn refusal(error: &ApiError) -> Answer {
    let mut answer = document(error.code, Encoding::Json, &error.to_status());
    let wait = error.details.as_ref().and_then(|details| details["retryAfterSeconds"].as_u64());
    if let Some(wait) = wait.or((error.code == 429).then_some(10)) {
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(wait));
    }
    answer
}

/// One object in the form that was asked for.
pub(super) fn object(
    code: u16,
    accepted: Accepted,
    query: &Query,
    resource: &Resource,
    object: &Value,
    now: jiff::Timestamp,
) -> Answer {
    match accepted.form {
        Form::Table(version) => {
            let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
            let table = Table::of(resource, version).render(&[object], &metadata, options::include_object(query), now);
            document(code, accepted.encoding, &table)
        }
        Form::PartialMetadata(version) => document(code, accepted.encoding, &partial_metadata(object, version)),
        Form::Plain | Form::AggregatedDiscovery => document(code, accepted.encoding, object),
    }
}

/// A list in the form that was asked for.
pub(super) fn list(
    accepted: Accepted,
    query: &Query,
    resource: &Resource,
    page: &Page,
    now: jiff::Timestamp,
) -> Answer {
    let mut metadata = json!({"resourceVersion": page.resource_version.to_string()});
    if let Some(token) = &page.continue_token {
        metadata["continue"] = token.as_str().into();
    }
    if let Some(remaining) = page.remaining {
        metadata["remainingItemCount"] = remaining.into();
    }
    match accepted.form {
        Form::Table(version) => {
            let objects: Vec<&Value> = page.items.iter().map(|object| &**object).collect();
            let table = Table::of(resource, version).render(&objects, &metadata, options::include_object(query), now);
            document(200, accepted.encoding, &table)
        }
        Form::PartialMetadata(version) => {
            let items: Vec<Value> = page.items.iter().map(|item| partial_metadata(item, version)).collect();
            let api_version = version.api_version();
            let list = json!({"kind": "PartialObjectMetadataList", "apiVersion": api_version, "metadata": metadata, "items": items});
            document(200, accepted.encoding, &list)
        }
        Form::Plain | Form::AggregatedDiscovery => {
            let items = page.items.iter().map(|object| Item { object, names_its_kind: resource.custom }).collect();
            let list = List { kind: &resource.list_kind, api_version: resource.api_version(), metadata, items };
            document(200, accepted.encoding, &list)
        }
    }
}

/// The `Status` of something that succeeded and has nothing else to show.
pub(super) fn success(code: u16, details: Option<Value>) -> Answer {
    let mut status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
    match details {
        Some(details) => status["details"] = details,
        None => status["code"] = code.into(),
    }
    document(code, Encoding::Json, &status)
}

/// Adds a `Warning` header for each.
pub(super) fn warn(mut answer: Answer, warnings: &[String]) -> Answer {
    for warning in warnings {
        let quoted = format!("299 - {}", Value::from(warning.replace(char::is_control, " ")));
        if let Ok(value) = HeaderValue::from_bytes(quoted.as_bytes()) {
            answer.headers_mut().append(WARNING, value);
        }
    }
    answer
}
