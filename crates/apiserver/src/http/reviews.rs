//! Answers questions about permissions: `kubectl auth can-i`, `auth can-i --list`, `auth whoami`.
//!
//! These are created and answered at once; nothing is stored.

use serde_json::{Value, json};

use super::rbac::Ask;
use super::refusal;
use super::route::Path;
use super::serve::{App, Call, Outcome};
use super::user::User;
use super::{body, respond};
use crate::error::ApiError;

/// A kind of review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Review {
    SelfSubjectAccess,
    SubjectAccess,
    SelfSubjectRules,
    SelfSubject,
}

/// The review that a path is of.
pub(super) fn find(path: &Path) -> Option<Review> {
    match (path.group.as_str(), path.version.as_str(), path.plural.as_str()) {
        ("authorization.k8s.io", "v1", "selfsubjectaccessreviews") => Some(Review::SelfSubjectAccess),
        ("authorization.k8s.io", "v1", "subjectaccessreviews") => Some(Review::SubjectAccess),
        ("authorization.k8s.io", "v1", "selfsubjectrulesreviews") => Some(Review::SelfSubjectRules),
        ("authentication.k8s.io", "v1", "selfsubjectreviews") => Some(Review::SelfSubject),
        _ => None,
    }
}

/// Answers it.
pub(super) fn answer(app: &App, call: &Call, review: Review) -> Result<Outcome, ApiError> {
    if call.method != http::Method::POST || call.path.name.is_some() || call.path.namespace.is_some() {
        return Err(refusal::method_not_allowed());
    }
    let (group, kind) = match review {
        Review::SelfSubjectAccess => ("authorization.k8s.io", "SelfSubjectAccessReview"),
        Review::SubjectAccess => ("authorization.k8s.io", "SubjectAccessReview"),
        Review::SelfSubjectRules => ("authorization.k8s.io", "SelfSubjectRulesReview"),
        Review::SelfSubject => ("authentication.k8s.io", "SelfSubjectReview"),
    };
    let object = body::object(&call.headers, &call.body, kind)?.object;
    let spec = &object["spec"];
    let status = match review {
        Review::SelfSubjectAccess => json!({"allowed": app.authorize(&call.user, &asked(spec)).is_ok()}),
        Review::SubjectAccess => json!({"allowed": app.authorize(&subject(spec), &asked(spec)).is_ok()}),
        Review::SelfSubjectRules => rules(app, &call.user, spec["namespace"].as_str())?,
        Review::SelfSubject => json!({"userInfo": {"username": call.user.name, "groups": call.user.groups}}),
    };
    let mut answer = json!({"kind": kind, "apiVersion": format!("{group}/v1"), "metadata": {}, "status": status});
    if review != Review::SelfSubject {
        answer["spec"] = spec.clone();
    }
    Ok(respond::document(201, call.accepted.encoding, &answer).into())
}

/// The question in `resourceAttributes` or `nonResourceAttributes`.
fn asked(spec: &Value) -> Ask {
    let of = |attributes: &str, key: &str| spec[attributes][key].as_str().unwrap_or_default().to_owned();
    let optional = |key: &str| Some(of("resourceAttributes", key)).filter(|text| !text.is_empty());
    if spec["nonResourceAttributes"].is_object() {
        return Ask::Url { verb: of("nonResourceAttributes", "verb"), path: of("nonResourceAttributes", "path") };
    }
    Ask::Resource {
        verb: of("resourceAttributes", "verb"),
        group: of("resourceAttributes", "group"),
        resource: of("resourceAttributes", "resource"),
        subresource: optional("subresource"),
        namespace: optional("namespace"),
        name: optional("name"),
    }
}

fn subject(spec: &Value) -> User {
    let groups = spec["groups"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
    User { name: spec["user"].as_str().unwrap_or_default().to_owned(), groups: groups.collect() }
}

fn rules(app: &App, user: &User, namespace: Option<&str>) -> Result<Value, ApiError> {
    let policy = app.shared.read(|store| app.access.policy(store))?;
    let (mut resource_rules, mut url_rules) = (vec![], vec![]);
    for rule in policy.rules_for(user, namespace) {
        if !rule.resources.is_empty() {
            let mut shown = json!({"verbs": rule.verbs, "apiGroups": rule.api_groups, "resources": rule.resources});
            if !rule.resource_names.is_empty() {
                shown["resourceNames"] = json!(rule.resource_names);
            }
            resource_rules.push(shown);
        }
        if !rule.non_resource_urls.is_empty() {
            url_rules.push(json!({"verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls}));
        }
    }
    Ok(json!({"resourceRules": resource_rules, "nonResourceRules": url_rules, "incomplete": false}))
}
