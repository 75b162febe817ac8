//! Reads the protobuf bodies that kubectl's typed commands send (`create namespace`, `create role`, `auth can-i`, `drain` …).
//!
//! kubectl sends them without asking, and takes a refusal as final; answers it takes as JSON. So the kinds that those commands write are
//! read here, by the numbers of their fields; any other kind is refused with 415. Go writes fields that are empty too: they are
//! dropped, as they would be in JSON, except where being there says something (`minAvailable: 0`). Never: a field that changes what
//! is stored left out in silence; only status and managed fields, which a create or update does not take, are.

mod messages;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value};

use messages::{Kind, Message};

/// What each body begins with.
const MAGIC: &[u8] = b"k8s\0";

/// Why a body could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum WireError {
    /// A kind that we do not read in this form.
    #[error("{0} is not read as protobuf")]
    Kind(String),
    /// The bytes are not what they should be.
    #[error("proto: illegal wireType or unexpected EOF")]
    Bytes,
}

/// The object in a body, as it would be in JSON.
pub(super) fn object(body: &[u8]) -> Result<Value, WireError> {
    let envelope = body.strip_prefix(MAGIC).ok_or(WireError::Bytes)?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for field in fields(envelope) {
        match field? {
            (1, Wire::Bytes(types)) => {
                for field in fields(types) {
                    match field? {
                        (1, Wire::Bytes(text)) => api_version = string(text)?,
                        (2, Wire::Bytes(text)) => kind = string(text)?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let message = messages::of(&api_version, &kind).ok_or_else(|| WireError::Kind(format!("{api_version} {kind}")))?;
    let mut object = decode(raw, message)?;
    object.insert("apiVersion".into(), api_version.into());
    object.insert("kind".into(), kind.into());
    Ok(Value::Object(object))
}

fn decode(bytes: &[u8], message: Message) -> Result<Map<String, Value>, WireError> {
    let mut object = Map::new();
    for field in fields(bytes) {
        let (number, wire) = field?;
        if let Some((_, name, kind)) = message.iter().find(|(known, _, _)| *known == number) {
            put(&mut object, name, kind, wire)?;
        }
    }
    Ok(object)
}

fn put(object: &mut Map<String, Value>, name: &str, kind: &Kind, wire: Wire<'_>) -> Result<(), WireError> {
    let value = match (kind, wire) {
        (Kind::Text, Wire::Bytes(bytes)) => Some(string(bytes)?).filter(|text| !text.is_empty()).map(Value::from),
        (Kind::Int, Wire::Number(number)) => Some(signed(number)).filter(|number| *number != 0).map(Value::from),
        (Kind::GivenInt, Wire::Number(number)) => Some(signed(number).into()),
        (Kind::Flag, Wire::Number(number)) => (number != 0).then_some(Value::Bool(true)),
        (Kind::GivenFlag, Wire::Number(number)) => Some(Value::Bool(number != 0)),
        (Kind::Time, Wire::Bytes(bytes)) => time(bytes, "%Y-%m-%dT%H:%M:%SZ")?,
        (Kind::MicroTime, Wire::Bytes(bytes)) => time(bytes, "%Y-%m-%dT%H:%M:%S.%6fZ")?,
        (Kind::IntOrText, Wire::Bytes(bytes)) => Some(int_or_text(bytes)?).filter(|value| *value != 0 && *value != ""),
        (Kind::GivenIntOrText, Wire::Bytes(bytes)) => Some(int_or_text(bytes)?),
        (Kind::One(message), Wire::Bytes(bytes)) => {
            Some(decode(bytes, message)?).filter(|object| !object.is_empty()).map(Value::Object)
        }
        (Kind::Given(message), Wire::Bytes(bytes)) => Some(Value::Object(decode(bytes, message)?)),
        (Kind::Texts, Wire::Bytes(bytes)) => return push(object, name, string(bytes)?.into()),
        (Kind::Many(message), Wire::Bytes(bytes)) => return push(object, name, Value::Object(decode(bytes, message)?)),
        (Kind::TextMap, Wire::Bytes(bytes)) => {
            return entry(object, name, bytes, |value| string(value).map(Value::from));
        }
        (Kind::BytesMap, Wire::Bytes(bytes)) => {
            return entry(object, name, bytes, |value| Ok(STANDARD.encode(value).into()));
        }
        _ => return Err(WireError::Bytes),
    };
    if let Some(value) = value {
        object.insert(name.to_owned(), value);
    }
    Ok(())
}

fn push(object: &mut Map<String, Value>, name: &str, value: Value) -> Result<(), WireError> {
    match object.entry(name).or_insert_with(|| Value::Array(vec![])) {
        Value::Array(list) => list.push(value),
        _ => return Err(WireError::Bytes),
    }
    Ok(())
}

fn entry(
    object: &mut Map<String, Value>,
    name: &str,
    bytes: &[u8],
    value_of: impl Fn(&[u8]) -> Result<Value, WireError>,
) -> Result<(), WireError> {
    let (mut key, mut value) = (String::new(), &[][..]);
    for field in fields(bytes) {
        match field? {
            (1, Wire::Bytes(bytes)) => key = string(bytes)?,
            (2, Wire::Bytes(bytes)) => value = bytes,
            _ => return Err(WireError::Bytes),
        }
    }
    let value = value_of(value)?;
    match object.entry(name).or_insert_with(|| Value::Object(Map::new())) {
        Value::Object(map) => drop(map.insert(key, value)),
        _ => return Err(WireError::Bytes),
    }
    Ok(())
}

/// Seconds and nanoseconds; nothing at all is Go's zero time, which JSON leaves out.
fn time(bytes: &[u8], format: &str) -> Result<Option<Value>, WireError> {
    let (mut seconds, mut nanos) = (None, 0);
    for field in fields(bytes) {
        match field? {
            (1, Wire::Number(number)) => seconds = Some(signed(number)),
            (2, Wire::Number(number)) => nanos = i32::try_from(signed(number)).map_err(|_| WireError::Bytes)?,
            _ => return Err(WireError::Bytes),
        }
    }
    let Some(seconds) = seconds else { return Ok(None) };
    let time = Timestamp::new(seconds, nanos).map_err(|_| WireError::Bytes)?;
    Ok(Some(time.strftime(format).to_string().into()))
}

fn int_or_text(bytes: &[u8]) -> Result<Value, WireError> {
    let (mut is_text, mut number, mut text) = (false, 0, String::new());
    for field in fields(bytes) {
        match field? {
            (1, Wire::Number(kind)) => is_text = kind == 1,
            (2, Wire::Number(value)) => number = signed(value),
            (3, Wire::Bytes(value)) => text = string(value)?,
            _ => return Err(WireError::Bytes),
        }
    }
    Ok(if is_text { text.into() } else { number.into() })
}

/// The value of a field, as far as the wire tells.
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message, one by one.
fn fields(bytes: &[u8]) -> impl Iterator<Item = Result<(u64, Wire<'_>), WireError>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let next = field(&mut rest).ok_or(WireError::Bytes);
        if next.is_err() {
            rest = &[];
        }
        Some(next)
    })
}

fn field<'a>(rest: &mut &'a [u8]) -> Option<(u64, Wire<'a>)> {
    let tag = varint(rest)?;
    let wire = match tag & 7 {
        0 => Wire::Number(varint(rest)?),
        1 => Wire::Bytes(take(rest, 8)?),
        2 => {
            let length = usize::try_from(varint(rest)?).ok()?;
            Wire::Bytes(take(rest, length)?)
        }
        5 => Wire::Bytes(take(rest, 4)?),
        _ => return None,
    };
    Some((tag >> 3, wire))
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(taken)
}

fn signed(number: u64) -> i64 {
    i64::from_ne_bytes(number.to_ne_bytes())
}

fn string(bytes: &[u8]) -> Result<String, WireError> {
    String::from_utf8(bytes.to_vec()).map_err(|_| WireError::Bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn text(number: u8, text: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(text.len()).unwrap()], text].concat()
    }
    fn enveloped(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let types = [text(1, api_version.as_bytes()), text(2, kind.as_bytes())].concat();
        [MAGIC, &text(1, &types), &text(2, raw), &text(3, b""), &text(4, b"")].concat()
    }

    #[test]
    fn empty_fields_are_left_out_but_not_empty_elements() {
        let meta = [text(1, b"reads"), text(2, b""), text(8, b"")].concat();
        let rule = [text(1, b"get"), text(2, b""), text(3, b"pods")].concat();
        let raw = [text(1, &meta), text(2, &rule)].concat();
        assert_eq!(
            object(&enveloped("rbac.authorization.k8s.io/v1", "Role", &raw)).unwrap(),
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "reads"},
                   "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]})
        );
    }

    #[test]
    fn bytes_become_base64_and_a_given_zero_stays() {
        let entry = [text(1, b"password"), text(2, b"x")].concat();
        let secret = object(&enveloped("v1", "Secret", &text(2, &entry))).unwrap();
        assert_eq!(secret["data"], json!({"password": "eA=="}));
        let zero = [8, 0, 16, 0];
        let budget =
            object(&enveloped("policy/v1", "PodDisruptionBudget", &text(2, &[text(1, &zero), text(2, b"")].concat())))
                .unwrap();
        assert_eq!(budget["spec"], json!({"minAvailable": 0, "selector": {}}));
    }

    #[test]
    fn a_kind_that_we_do_not_know_is_named() {
        assert_eq!(object(&enveloped("apps/v1", "Deployment", b"")), Err(WireError::Kind("apps/v1 Deployment".into())));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = object(&[MAGIC, &bytes].concat());
            let _ = object(&enveloped("v1", "Service", &bytes[..bytes.len().min(100)]));
        }
    }
}
