//! Reads the body of a request: JSON or YAML, within the size limit, with its duplicate fields.
//!
//! Never: more than the limit in memory, whatever `Content-Length` says.

use std::fmt;

use bytes::Bytes;
use http::HeaderMap;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::protobuf::{self, WireError};
use super::refusal;
use crate::error::ApiError;
use crate::request::PatchKind;

/// The same limit as a kube-apiserver's.
pub(super) const LIMIT: usize = 3 << 20;

/// Reads all of a body.
pub(super) async fn read<B>(body: B) -> Result<Bytes, ApiError>
where
    B: axum::body::HttpBody<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match Limited::new(body, LIMIT).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.downcast_ref::<LengthLimitError>().is_some() => Err(refusal::too_large(LIMIT)),
        Err(error) => Err(ApiError::bad_request(format!("reading the request's body: {error}"))),
    }
}

/// An object and the paths of the fields that it has twice (the last one counts).
#[derive(Debug)]
pub(super) struct Parsed {
    pub object: Value,
    pub duplicates: Vec<String>,
}

/// Parses the object of a create or update.
pub(super) fn object(headers: &HeaderMap, body: &[u8], kind: &str) -> Result<Parsed, ApiError> {
    match media_type(headers).as_str() {
        "application/json" | "" => json(body).map_err(|error| {
            let shown = if body.is_empty() { "<empty>".into() } else { String::from_utf8_lossy(&body[..body.len().min(200)]) };
            ApiError::bad_request(format!(
                "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: {error} ({shown})"
            ))
        }),
        "application/yaml" => yaml(body),
        "application/vnd.kubernetes.protobuf" => match protobuf::object(body) {
            Ok(object) => Ok(Parsed { object, duplicates: vec![] }),
            Err(WireError::Kind(_)) => Err(unsupported()),
            Err(error) => Err(ApiError::bad_request(error.to_string())),
        },
        _ => Err(unsupported()),
    }
}

fn unsupported() -> ApiError {
    ApiError::unsupported_media_type(&["application/json", "application/yaml"])
}

/// The kind of a patch and the patch itself.
pub(super) fn patch(headers: &HeaderMap, body: &[u8]) -> Result<(PatchKind, Parsed), ApiError> {
    let decoded = |result: Result<Parsed, serde_json::Error>| {
        result.map_err(|error| ApiError::bad_request(format!("error decoding patch: {error}")))
    };
    Ok(match media_type(headers).as_str() {
        "application/json-patch+json" => (PatchKind::Json, decoded(json(body))?),
        "application/merge-patch+json" => (PatchKind::Merge, decoded(json(body))?),
        "application/strategic-merge-patch+json" => (PatchKind::Strategic, decoded(json(body))?),
        "application/apply-patch+yaml" => (PatchKind::Apply, yaml(body)?),
        _ => {
            return Err(ApiError::unsupported_media_type(&[
                "application/json-patch+json",
                "application/merge-patch+json",
                "application/strategic-merge-patch+json",
                "application/apply-patch+yaml",
            ]));
        }
    })
}

/// The options in the body of a delete; none when there is no body.
pub(super) fn delete_options(headers: &HeaderMap, body: &[u8]) -> Result<Option<Value>, ApiError> {
    if body.is_empty() {
        return Ok(None);
    }
    object(headers, body, "DeleteOptions").map(|parsed| Some(parsed.object))
}

fn media_type(headers: &HeaderMap) -> String {
    let value = headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

fn json(body: &[u8]) -> Result<Parsed, serde_json::Error> {
    let mut duplicates = Vec::new();
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let object = Noticing { path: String::new(), duplicates: &mut duplicates }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(Parsed { object, duplicates })
}

/// JSON is YAML too; clients that apply send it, and its parser says more about what is wrong.
fn yaml(body: &[u8]) -> Result<Parsed, ApiError> {
    if body.trim_ascii_start().first() == Some(&b'{')
        && let Ok(parsed) = json(body)
    {
        return Ok(parsed);
    }
    let text =
        std::str::from_utf8(body).map_err(|error| ApiError::bad_request(format!("error decoding YAML: {error}")))?;
    let object =
        serde_saphyr::from_str(text).map_err(|error| ApiError::bad_request(format!("error decoding YAML: {error}")))?;
    Ok(Parsed { object, duplicates: vec![] })
}

/// Builds a [`Value`] and notes each field that comes a second time.
struct Noticing<'a> {
    path: String,
    duplicates: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Noticing<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Noticing<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let seed = Noticing { path: format!("{}[{}]", self.path, list.len()), duplicates: self.duplicates };
            match items.next_element_seed(seed)? {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            let path = if self.path.is_empty() { key.clone() } else { format!("{}.{key}", self.path) };
            if map.contains_key(&key) {
                self.duplicates.push(path.clone());
            }
            let value = fields.next_value_seed(Noticing { path, duplicates: self.duplicates })?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn headers(media: &str) -> HeaderMap {
        HeaderMap::from_iter([(http::header::CONTENT_TYPE, media.parse().unwrap())])
    }

    #[test]
    fn a_field_that_comes_twice_is_noticed_and_the_last_counts() {
        let parsed =
            object(&headers("application/json"), br#"{"data":{"a":"b","a":"c"},"l":[{"x":1,"x":2}]}"#, "ConfigMap")
                .unwrap();
        assert_eq!(parsed.duplicates, ["data.a", "l[0].x"]);
        assert_eq!(parsed.object, json!({"data": {"a": "c"}, "l": [{"x": 2}]}));
    }

    #[test]
    fn yaml_and_json_read_the_same() {
        let parsed = object(&headers("application/yaml; charset=utf-8"), b"a: {b: 1}\nc: [x]\n", "ConfigMap").unwrap();
        assert_eq!(parsed.object, json!({"a": {"b": 1}, "c": ["x"]}));
    }

    #[test]
    fn bad_json_is_a_bad_request_that_says_where() {
        let refused = object(&headers("application/json"), b"{bad", "ConfigMap").unwrap_err();
        assert_eq!((refused.code, refused.reason), (400, "BadRequest"));
        assert!(
            refused.message.starts_with("the object provided is unrecognized (must be of type ConfigMap)"),
            "{}",
            refused.message
        );
    }

    #[test]
    fn another_media_type_is_refused() {
        assert_eq!(object(&headers("text/foo"), b"x", "ConfigMap").unwrap_err().code, 415);
        assert_eq!(patch(&headers("application/json"), b"{}").unwrap_err().code, 415);
        assert_eq!(patch(&headers("application/apply-patch+yaml"), b"a: b").unwrap().0, PatchKind::Apply);
    }

    #[tokio::test]
    async fn a_body_over_the_limit_is_refused() {
        let refused = read(http_body_util::Full::new(Bytes::from(vec![b'a'; LIMIT + 1]))).await.unwrap_err();
        assert_eq!((refused.code, refused.message.as_str()), (413, "Request entity too large: limit is 3145728"));
    }
}
