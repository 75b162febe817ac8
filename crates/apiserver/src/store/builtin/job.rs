//! Jobs, and the disruption budgets of pods.

use serde_json::{Value, json};

use super::{pod, set_default};
use crate::error::FieldError;
use crate::store::object;

/// The defaults of a Job.
pub(super) fn defaults(job: &mut Value) {
    let spec = &mut job["spec"];
    if !spec.is_object() {
        return;
    }
    // Both missing means one pod; with a parallelism of its own, the Job is done when one of the pods is.
    if spec.get("completions").is_none() && spec.get("parallelism").is_none() {
        set_default(spec, "completions", 1);
    }
    set_default(spec, "parallelism", 1);
    set_default(spec, "backoffLimit", 6);
    set_default(spec, "completionMode", "NonIndexed");
    set_default(spec, "suspend", false);
    set_default(spec, "manualSelector", false);
    set_default(spec, "podReplacementPolicy", "TerminatingOrFailed");
    let template = &mut spec["template"]["spec"];
    let stated = template.get("restartPolicy").is_some();
    pod::default_spec(template);
    // A Job has to state its own: the default of pods, Always, would never let it end.
    if !stated && let Some(map) = template.as_object_mut() {
        map.remove("restartPolicy");
    }
}

/// A new Job selects its pods by its own uid.
pub(super) fn prepare_create(job: &mut Value) {
    job["status"] = json!({});
    if job["spec"]["manualSelector"] == true {
        return;
    }
    let (name, uid) = (object::name(job).to_owned(), object::uid(job).to_owned());
    let labels = [
        ("batch.kubernetes.io/controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
        ("controller-uid", &uid),
        ("job-name", &name),
    ];
    for (key, value) in labels {
        set_default(&mut job["spec"]["template"], "metadata", json!({}));
        set_default(&mut job["spec"]["template"]["metadata"], "labels", json!({}));
        job["spec"]["template"]["metadata"]["labels"][key] = value.as_str().into();
        set_default(&mut job["metadata"], "labels", json!({}));
        job["metadata"]["labels"][key] = value.as_str().into();
    }
    job["spec"]["selector"] = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
}

/// What is wrong with a Job.
pub(super) fn validate(job: &Value) -> Vec<FieldError> {
    let path = "spec.template.spec";
    let policy = &job["spec"]["template"]["spec"]["restartPolicy"];
    let mut errors: Vec<FieldError> = pod::validate_spec(&job["spec"]["template"]["spec"], path)
        .into_iter()
        .filter(|error| !error.field.ends_with(".restartPolicy"))
        .collect();
    if policy.is_null() || *policy == "Always" {
        errors.push(FieldError::required(format!("{path}.restartPolicy"), "valid values: \"OnFailure\", \"Never\""));
    }
    errors
}

/// The pods of a Job do not change.
pub(super) fn validate_update(job: &Value, current: &Value) -> Vec<FieldError> {
    ["template", "selector", "completionMode"]
        .into_iter()
        .filter(|field| job["spec"][*field] != current["spec"][*field])
        .map(|field| super::immutable(&format!("spec.{field}"), &job["spec"][field]))
        .collect()
}

/// What is wrong with a PodDisruptionBudget.
pub(super) fn validate_budget(budget: &Value) -> Vec<FieldError> {
    let spec = &budget["spec"];
    if spec.get("minAvailable").is_some() && spec.get("maxUnavailable").is_some() {
        return vec![FieldError::invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set")];
    }
    Vec::new()
}
