//! Reads the options of a request: from its query, its headers and, for deletes, its body.
//!
//! Never: an option that is misspelt or does not exist taken as absent where that would do more than was asked (a bad `dryRun` must
//! not write).

use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;

use super::refusal::bad_option;
use super::route::Query;
use super::table::IncludeObject;
use crate::error::ApiError;
use crate::request::{DeleteOptions, FieldValidation, ListOptions, PatchKind, Propagation, Write};

/// A watch without `timeoutSeconds` ends after this long and the client comes again: a connection that a firewall has forgotten
/// must not be believed for ever. kube-apiserver's own default is of the same size.
const WATCH_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// Options of a create, update or patch.
pub(super) fn write(
    query: &Query,
    agent: &str,
    patch: Option<PatchKind>,
    kind: &str,
    now: Timestamp,
) -> Result<Write, ApiError> {
    let validation = match query.get("fieldValidation") {
        None => FieldValidation::default(),
        Some("Warn") => FieldValidation::Warn,
        Some("Ignore") => FieldValidation::Ignore,
        Some("Strict") => FieldValidation::Strict,
        Some(other) => {
            let message =
                format!("Unsupported value: {other:?}: supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"");
            return Err(bad_option(kind, "fieldValidation", "FieldValueNotSupported", &message));
        }
    };
    let apply = patch == Some(PatchKind::Apply);
    let manager = match query.get("fieldManager") {
        Some(manager) if manager.chars().count() > 128 => {
            return Err(bad_option(
                kind,
                "fieldManager",
                "FieldValueTooLong",
                "Too long: may not be more than 128 bytes",
            ));
        }
        Some(manager) => manager.to_owned(),
        None if apply => {
            return Err(bad_option(
                kind,
                "fieldManager",
                "FieldValueRequired",
                "Required value: is required for apply patch",
            ));
        }
        None => match agent.split('/').next().unwrap_or_default() {
            "" => "unknown".into(),
            first => first.chars().take(128).collect(),
        },
    };
    let force = query.get("force").is_some() && query.flag("force");
    if query.get("force").is_some() && !apply {
        return Err(bad_option(
            kind,
            "force",
            "FieldValueForbidden",
            "Forbidden: may not be specified for non-apply patch",
        ));
    }
    Ok(Write { now, manager, dry_run: dry_run(query.all("dryRun"), kind)?, force, validation })
}

/// Whether it is a dry run. Only `All` exists.
pub(super) fn dry_run<'a>(values: impl Iterator<Item = &'a str>, kind: &str) -> Result<bool, ApiError> {
    let values: Vec<&str> = values.collect();
    if values.iter().any(|value| *value != "All") {
        let shown = format!("Unsupported value: {values:?}: supported values: \"All\"");
        return Err(bad_option(kind, "dryRun", "FieldValueNotSupported", &shown));
    }
    Ok(!values.is_empty())
}

/// Options of a list and of a deletecollection.
pub(super) fn list(query: &Query) -> Result<ListOptions, ApiError> {
    let refused = |problem, message: &str| Err(bad_option("ListOptions", "resourceVersionMatch", problem, message));
    match (query.get("resourceVersion"), query.get("resourceVersionMatch")) {
        (_, None) => {}
        (None, Some(_)) => {
            return refused(
                "FieldValueForbidden",
                "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
            );
        }
        (Some("0"), Some("Exact")) => {
            return refused(
                "FieldValueForbidden",
                "Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            );
        }
        (Some(_), Some("Exact" | "NotOlderThan")) => {}
        (Some(_), Some(other)) => {
            let message = format!("Unsupported value: {other:?}: supported values: \"Exact\", \"NotOlderThan\", \"\"");
            return refused("FieldValueNotSupported", &message);
        }
    }
    if query.get("continue").is_some() && query.get("resourceVersionMatch").is_some() {
        return refused(
            "FieldValueForbidden",
            "Forbidden: resourceVersionMatch is forbidden when continue is provided",
        );
    }
    selection(query)
}

/// What a list, watch or deletecollection is about.
pub(super) fn selection(query: &Query) -> Result<ListOptions, ApiError> {
    let own = |key: &str| query.get(key).map(str::to_owned);
    Ok(ListOptions {
        label_selector: own("labelSelector"),
        field_selector: own("fieldSelector"),
        limit: usize::try_from(integer(query, "limit")?.unwrap_or_default()).unwrap_or_default(),
        continue_token: own("continue"),
        resource_version: own("resourceVersion"),
        resource_version_match: own("resourceVersionMatch"),
    })
}

/// Where a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// With what there is, then what changes; `mark_end` says with a bookmark where the one ends and the other begins.
    State { mark_end: bool },
    /// With the first change after this revision.
    After(u64),
    /// With the next change.
    Now,
}

/// Options of a watch.
pub(super) struct WatchOptions {
    pub start: Start,
    pub bookmarks: bool,
    pub timeout: Duration,
}

/// Reads them.
pub(super) fn watch(query: &Query) -> Result<WatchOptions, ApiError> {
    let version = match query.get("resourceVersion") {
        None => None,
        Some(text) => Some(text.parse::<u64>().map_err(|_| {
            ApiError::bad_request(format!(
                "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
            ))
        })?),
    };
    let bookmarks = query.flag("allowWatchBookmarks");
    let initial = query.get("sendInitialEvents").map(|_| query.flag("sendInitialEvents"));
    match (initial, query.get("resourceVersionMatch")) {
        (Some(_), Some("NotOlderThan")) | (None, None) => {}
        (Some(_), _) => {
            let message = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            return Err(bad_option("ListOptions", "resourceVersionMatch", "FieldValueForbidden", message));
        }
        (None, Some(_)) => {
            let message = "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            return Err(bad_option("ListOptions", "resourceVersionMatch", "FieldValueForbidden", message));
        }
    }
    let start = match (initial, version) {
        (Some(true), _) => Start::State { mark_end: bookmarks },
        (Some(false), None | Some(0)) => Start::Now,
        (None, None | Some(0)) => Start::State { mark_end: false },
        (_, Some(version)) => Start::After(version),
    };
    let timeout = match integer(query, "timeoutSeconds")? {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds.unsigned_abs()),
        _ => WATCH_TIMEOUT,
    };
    Ok(WatchOptions { start, bookmarks, timeout })
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeleteBody {
    grace_period_seconds: Option<i64>,
    propagation_policy: Option<String>,
    orphan_dependents: Option<bool>,
    preconditions: Preconditions,
    dry_run: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Preconditions {
    uid: Option<String>,
    resource_version: Option<String>,
}

/// Options of a delete, and whether it is a dry run. The body wins over the query, as it does in a kube-apiserver.
pub(super) fn delete(query: &Query, body: Option<serde_json::Value>) -> Result<(DeleteOptions, bool), ApiError> {
    let body = match body {
        Some(body) => serde_json::from_value(body)
            .map_err(|error| ApiError::bad_request(format!("decoding DeleteOptions: {error}")))?,
        None => DeleteBody {
            grace_period_seconds: integer(query, "gracePeriodSeconds")?,
            propagation_policy: query.get("propagationPolicy").map(str::to_owned),
            orphan_dependents: query.get("orphanDependents").map(|_| query.flag("orphanDependents")),
            dry_run: vec![],
            preconditions: Preconditions::default(),
        },
    };
    let dry_run = dry_run(query.all("dryRun").chain(body.dry_run.iter().map(String::as_str)), "DeleteOptions")?;
    let propagation = match (body.propagation_policy.as_deref(), body.orphan_dependents) {
        (None | Some(""), None) => None,
        (Some("Orphan"), None) | (None | Some(""), Some(true)) => Some(Propagation::Orphan),
        (Some("Background"), None) | (None | Some(""), Some(false)) => Some(Propagation::Background),
        (Some("Foreground"), None) => Some(Propagation::Foreground),
        (Some(_), Some(_)) => {
            let message = "Invalid value: \"\": orphanDependents and deletionPropagation cannot be both set";
            return Err(bad_option("DeleteOptions", "propagationPolicy", "FieldValueInvalid", message));
        }
        (Some(other), None) => {
            let message =
                format!("Unsupported value: {other:?}: supported values: \"Foreground\", \"Background\", \"Orphan\"");
            return Err(bad_option("DeleteOptions", "propagationPolicy", "FieldValueNotSupported", &message));
        }
    };
    let options = DeleteOptions {
        uid: body.preconditions.uid,
        resource_version: body.preconditions.resource_version,
        grace_period_seconds: body.grace_period_seconds,
        propagation,
    };
    Ok((options, dry_run))
}

/// `includeObject` of a table.
pub(super) fn include_object(query: &Query) -> IncludeObject {
    match query.get("includeObject") {
        Some("None") => IncludeObject::None,
        Some("Object") => IncludeObject::Object,
        _ => IncludeObject::Metadata,
    }
}

pub(super) fn integer(query: &Query, key: &str) -> Result<Option<i64>, ApiError> {
    let parse = |text: &str| {
        text.parse().map_err(|_| ApiError::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax")))
    };
    query.get(key).map(parse).transpose()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn query(text: &str) -> Query {
        Query::parse(Some(text))
    }

    #[test]
    fn a_bad_dry_run_is_refused_and_never_written() {
        let refused =
            write(&query("dryRun=Yes"), "kubectl/1", None, "CreateOptions", Timestamp::UNIX_EPOCH).unwrap_err();
        assert_eq!(refused.code, 422);
        assert!(
            refused.message.contains(r#"dryRun: Unsupported value: ["Yes"]: supported values: "All""#),
            "{}",
            refused.message
        );
        assert!(
            write(&query("dryRun=All"), "kubectl/1", None, "CreateOptions", Timestamp::UNIX_EPOCH).unwrap().dry_run
        );
    }

    #[test]
    fn the_manager_is_the_first_part_of_the_user_agent() {
        let options =
            write(&query(""), "kubectl/v1.32 (linux/amd64)", None, "CreateOptions", Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(options.manager, "kubectl");
    }

    #[test]
    fn an_apply_needs_a_manager_and_nothing_else_may_force() {
        let apply =
            write(&query("force=true"), "kubectl/1", Some(PatchKind::Apply), "PatchOptions", Timestamp::UNIX_EPOCH);
        assert!(apply.unwrap_err().message.contains("fieldManager: Required value"));
        let merge =
            write(&query("force=true"), "kubectl/1", Some(PatchKind::Merge), "PatchOptions", Timestamp::UNIX_EPOCH);
        assert!(merge.unwrap_err().message.contains("force: Forbidden"));
    }

    #[test]
    fn a_watch_begins_where_its_options_say() {
        let start = |text: &str| watch(&query(text)).unwrap().start;
        assert_eq!(start(""), Start::State { mark_end: false });
        assert_eq!(start("resourceVersion=0"), Start::State { mark_end: false });
        assert_eq!(start("resourceVersion=7"), Start::After(7));
        let streamed = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
        assert_eq!(start(streamed), Start::State { mark_end: true });
        assert_eq!(watch(&query("sendInitialEvents=true")).err().unwrap().code, 422);
        assert!(watch(&query("resourceVersion=x")).is_err());
    }

    #[test]
    fn a_delete_takes_its_options_from_the_body_or_the_query() {
        let (options, dry_run) = delete(
            &query("dryRun=All"),
            Some(json!({"preconditions": {"uid": "u"}, "propagationPolicy": "Foreground"})),
        )
        .unwrap();
        assert!(dry_run);
        assert_eq!((options.uid.as_deref(), options.propagation), (Some("u"), Some(Propagation::Foreground)));
        let (options, _) = delete(&query("gracePeriodSeconds=0"), None).unwrap();
        assert_eq!(options.grace_period_seconds, Some(0));
        assert!(delete(&query("propagationPolicy=Never"), None).is_err());
    }
}
