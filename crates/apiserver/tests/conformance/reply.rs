//! An answer of the API, and what a case may demand of it. Every demand that is not met shows the whole answer.

use http::HeaderMap;
use serde_json::Value;

/// An answer.
#[derive(Clone, Debug)]
pub struct Reply {
    /// What was asked, for complaints.
    pub asked: String,
    pub code: u16,
    pub headers: HeaderMap,
    /// The body as JSON, or null.
    pub body: Value,
    pub text: String,
}

impl Reply {
    pub fn describe(&self) -> String {
        format!("{} answered {}: {}", self.asked, self.code, self.text)
    }

    /// Demands a status code.
    #[track_caller]
    pub fn code(self, code: u16) -> Self {
        assert_eq!(self.code, code, "{}", self.describe());
        self
    }

    /// Demands success and yields the body.
    #[track_caller]
    pub fn object(self) -> Value {
        assert!((200..300).contains(&self.code), "{}", self.describe());
        self.body
    }

    /// Demands a `Status` that refuses, with this code and reason.
    #[track_caller]
    pub fn refused(self, code: u16, reason: &str) -> Self {
        assert_eq!(self.code, code, "{}", self.describe());
        assert_eq!(self.body["kind"], "Status", "{}", self.describe());
        assert_eq!(self.body["status"], "Failure", "{}", self.describe());
        assert_eq!(self.body["reason"], reason, "{}", self.describe());
        assert_eq!(self.body["code"], code, "{}", self.describe());
        self
    }

    /// Demands this very message.
    #[track_caller]
    pub fn saying(self, message: &str) -> Self {
        assert_eq!(self.body["message"], message, "{}", self.describe());
        self
    }

    /// Demands that the message contains each of these.
    #[track_caller]
    pub fn mentioning(self, parts: &[&str]) -> Self {
        let message = self.body["message"].as_str().unwrap_or_default();
        for part in parts {
            assert!(message.contains(part), "{part:?} is not in the message; {}", self.describe());
        }
        self
    }

    /// Demands a cause about this field, and yields its message.
    #[track_caller]
    pub fn cause(&self, field: &str, reason: &str) -> String {
        let none = vec![];
        let causes = self.body["details"]["causes"].as_array().unwrap_or(&none);
        let found = causes.iter().find(|cause| cause["field"] == field && cause["reason"] == reason);
        let found = found.unwrap_or_else(|| panic!("no cause {reason} at {field}; {}", self.describe()));
        found["message"].as_str().unwrap_or_default().to_owned()
    }

    /// The texts of the `Warning` headers.
    pub fn warnings(&self) -> Vec<String> {
        self.headers
            .get_all("warning")
            .iter()
            .filter_map(|value| value.to_str().ok())
            .map(|value| value.strip_prefix("299 - \"").and_then(|rest| rest.strip_suffix('"')).unwrap_or(value))
            .map(|value| value.replace("\\\"", "\""))
            .collect()
    }
}

/// The names of a list's items, in order.
pub fn names(list: &Value) -> Vec<String> {
    let none = vec![];
    list["items"].as_array().unwrap_or(&none).iter().map(name).collect()
}

/// The name of an object.
pub fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// The resourceVersion of an object or list.
#[track_caller]
pub fn version(object: &Value) -> String {
    object["metadata"]["resourceVersion"]
        .as_str()
        .unwrap_or_else(|| panic!("no resourceVersion in {object}"))
        .to_owned()
}

/// The UID of an object.
#[track_caller]
pub fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap_or_else(|| panic!("no uid in {object}")).to_owned()
}

/// The managers that an object records, as `(manager, operation, subresource)`, sorted.
pub fn managers(object: &Value) -> Vec<(String, String, String)> {
    let none = vec![];
    let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    let mut managers: Vec<_> = object["metadata"]["managedFields"]
        .as_array()
        .unwrap_or(&none)
        .iter()
        .map(|entry| (text(entry, "manager"), text(entry, "operation"), text(entry, "subresource")))
        .collect();
    managers.sort();
    managers
}

/// The fields that one manager owns through one operation.
#[track_caller]
pub fn owned(object: &Value, manager: &str, operation: &str) -> Value {
    let entries =
        object["metadata"]["managedFields"].as_array().unwrap_or_else(|| panic!("no managedFields in {object}"));
    let entry = entries.iter().find(|entry| entry["manager"] == manager && entry["operation"] == operation);
    entry.unwrap_or_else(|| panic!("{manager} owns nothing by {operation} in {object}"))["fieldsV1"].clone()
}
