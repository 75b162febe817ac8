//! Which fields of an object a write can have changed: what lies outside of them is as it was stored, and is neither compared nor
//! completed nor judged again. A report on a pod says nothing of its long spec.

use serde_json::Value;

/// The fields at the top of an object that a write speaks of. Never: a field left out that differs.
#[derive(Clone, Debug)]
pub(super) enum Touched {
    /// Any of them.
    All,
    /// These.
    Only(Vec<String>),
}

impl Touched {
    /// The fields of a merge patch.
    pub(super) fn by_merge(body: &Value) -> Self {
        match body.as_object() {
            Some(map) => Self::Only(map.keys().cloned().collect()),
            None => Self::All,
        }
    }

    /// Whether a field may differ.
    pub(super) fn may(&self, field: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(fields) => fields.iter().any(|one| one == field),
        }
    }

    /// Whether any field does differ.
    pub(super) fn differ(&self, old: &Value, new: &Value) -> bool {
        match self {
            Self::All => old != new,
            Self::Only(fields) => fields.iter().any(|field| old.get(field) != new.get(field)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Fixture;
    use super::*;
    use serde_json::json;

    #[test]
    fn a_merge_patch_touches_what_it_mentions() {
        let touched = Touched::by_merge(&json!({"status": {"phase": "Running"}, "spec": null}));
        assert!(touched.may("status") && touched.may("spec") && !touched.may("metadata"));
        assert!(touched.differ(&json!({"spec": {}, "data": 1}), &json!({"data": 2})));
        assert!(!touched.differ(&json!({"data": 1}), &json!({"data": 2})));
    }

    #[test]
    fn a_report_on_a_pod_leaves_its_spec_and_generation_alone_and_a_bad_label_is_still_refused() {
        let mut fixture = Fixture::new();
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]}});
        let before = fixture.given("pods", pod);
        let report = json!({"metadata": {"annotations": {"test.dev/report": "1"}}});
        let after = fixture.merge("pods/p", report).unwrap();
        assert_eq!(after["spec"], before["spec"]);
        assert_eq!(after["metadata"]["generation"], before["metadata"]["generation"]);
        let bad = json!({"metadata": {"labels": {"a b": "c"}}});
        assert_eq!(fixture.merge("pods/p", bad).unwrap_err().code, 422);
    }
}
