//! Roles and bindings.

use serde_json::{Value, json};

use super::{each, set_default};
use crate::error::FieldError;

const GROUP: &str = "rbac.authorization.k8s.io";

/// The defaults of a binding; roles have none.
pub(super) fn defaults(object: &mut Value) {
    if let Some(role) = object.get_mut("roleRef") {
        set_default(role, "apiGroup", GROUP);
    }
    for subject in each(object, "subjects") {
        if subject["kind"] == "User" || subject["kind"] == "Group" {
            set_default(subject, "apiGroup", GROUP);
        }
    }
}

/// What is wrong with a role or a binding.
pub(super) fn validate(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, rule) in object["rules"].as_array().into_iter().flatten().enumerate() {
        let empty = |field: &str| rule[field].as_array().is_none_or(Vec::is_empty);
        if empty("verbs") {
            errors.push(FieldError::required(format!("rules[{index}].verbs"), "verbs must contain at least one value"));
        }
        if empty("nonResourceURLs") {
            if empty("apiGroups") {
                let detail = "resource rules must supply at least one api group";
                errors.push(FieldError::required(format!("rules[{index}].apiGroups"), detail));
            }
            if empty("resources") {
                let detail = "resource rules must supply at least one resource";
                errors.push(FieldError::required(format!("rules[{index}].resources"), detail));
            }
        }
    }
    if object["kind"].as_str().is_some_and(|kind| kind.ends_with("Binding"))
        && object["roleRef"]["name"].as_str().is_none_or(str::is_empty)
    {
        errors.push(FieldError::required("roleRef.name", ""));
    }
    errors
}

/// A binding keeps its role.
pub(super) fn validate_update(object: &Value, current: &Value) -> Vec<FieldError> {
    let (new, old) = (&object["roleRef"], &current["roleRef"]);
    if new == old {
        return Vec::new();
    }
    let shown = json!({"APIGroup": new["apiGroup"], "Kind": new["kind"], "Name": new["name"]});
    vec![FieldError::invalid("roleRef", &shown, "cannot change roleRef")]
}
