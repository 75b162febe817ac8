//! The refusals that the HTTP face itself decides, in the words of a kube-apiserver.

use serde_json::json;

use super::rbac::Ask;
use super::user::User;
use crate::error::ApiError;

fn refusal(code: u16, reason: &'static str, message: impl Into<String>) -> ApiError {
    ApiError { code, reason, message: message.into(), details: None }
}

/// 401: nobody we know.
pub(super) fn unauthorized() -> ApiError {
    refusal(401, "Unauthorized", "Unauthorized")
}

/// 404: a path that leads nowhere.
pub(super) fn no_such_path() -> ApiError {
    ApiError {
        details: Some(json!({})),
        ..refusal(404, "NotFound", "the server could not find the requested resource")
    }
}

/// 405: a path that does not take this method.
pub(super) fn method_not_allowed() -> ApiError {
    let message = "the server does not allow this method on the requested resource";
    ApiError { details: Some(json!({})), ..refusal(405, "MethodNotAllowed", message) }
}

/// 406: an answer in a form that we do not have.
pub(super) fn not_acceptable() -> ApiError {
    let message = "only the following media types are accepted: application/json, application/yaml, application/json;stream=watch";
    refusal(406, "NotAcceptable", message)
}

/// 413: a body that is larger than the limit.
pub(super) fn too_large(limit: usize) -> ApiError {
    refusal(413, "RequestEntityTooLarge", format!("Request entity too large: limit is {limit}"))
}

/// 422: an option of the request that is not right.
pub(super) fn bad_option(options: &str, field: &str, problem: &'static str, message: &str) -> ApiError {
    let details = json!({
        "group": "meta.k8s.io", "kind": options, "causes": [{"reason": problem, "message": message, "field": field}],
    });
    let message = format!("{options}.meta.k8s.io \"\" is invalid: {field}: {message}");
    ApiError { details: Some(details), ..refusal(422, "Invalid", message) }
}

/// 403: RBAC does not allow it.
pub(super) fn forbidden(user: &User, ask: &Ask) -> ApiError {
    match ask {
        Ask::Url { verb, path } => {
            let message = format!("forbidden: User {:?} cannot {verb} path {path:?}", user.name);
            ApiError { details: Some(json!({})), ..refusal(403, "Forbidden", message) }
        }
        Ask::Resource { verb, group, resource, subresource, namespace, name } => {
            let full = match subresource {
                Some(subresource) => format!("{resource}/{subresource}"),
                None => resource.clone(),
            };
            let object = if group.is_empty() { resource.clone() } else { format!("{resource}.{group}") };
            let object = match name {
                Some(name) => format!("{object} {name:?}"),
                None => object,
            };
            let place = match namespace {
                Some(namespace) => format!("in the namespace {namespace:?}"),
                None => "at the cluster scope".into(),
            };
            let message = format!(
                "{object} is forbidden: User {:?} cannot {verb} resource {full:?} in API group {group:?} {place}",
                user.name
            );
            let mut details = json!({"kind": resource});
            if let Some(name) = name {
                details["name"] = name.as_str().into();
            }
            if !group.is_empty() {
                details["group"] = group.as_str().into();
            }
            ApiError { details: Some(details), ..refusal(403, "Forbidden", message) }
        }
    }
}

/// 429: the disruption budget has nothing left.
pub(super) fn budget_exhausted(cause: &str) -> ApiError {
    let details = json!({"causes": [{"reason": "DisruptionBudget", "message": cause}]});
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    ApiError { details: Some(details), ..refusal(429, "TooManyRequests", message) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_user_verb_resource_group_and_place() {
        let ask = Ask::Resource {
            verb: "list".into(),
            group: String::new(),
            resource: "pods".into(),
            subresource: None,
            namespace: Some("default".into()),
            name: None,
        };
        assert_eq!(
            forbidden(&User::new("bob", []), &ask).message,
            r#"pods is forbidden: User "bob" cannot list resource "pods" in API group "" in the namespace "default""#
        );
    }

    #[test]
    fn a_refusal_of_a_subresource_at_cluster_scope() {
        let ask = Ask::Resource {
            verb: "patch".into(),
            group: "bellwether.dev".into(),
            resource: "postgresclusters".into(),
            subresource: Some("status".into()),
            namespace: None,
            name: Some("orders".into()),
        };
        assert_eq!(
            forbidden(&User::new("bob", []), &ask).message,
            r#"postgresclusters.bellwether.dev "orders" is forbidden: User "bob" cannot patch resource "postgresclusters/status" in API group "bellwether.dev" at the cluster scope"#
        );
    }
}
