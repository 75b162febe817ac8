//! Get and list.
//!
//! A list in pages is consistent: every page shows the state of the first page's revision, rolled back from the present with the
//! history. When history no longer reaches that far, the answer is 410, never a mixture.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::selector::Selector;
use super::{Bucket, Key, Object, Store, view};
use crate::error::ApiError;
use crate::registry::Resource;
use crate::request::{ListOptions, Page, Subresource, Target};

#[derive(Serialize, Deserialize)]
struct Continue {
    revision: u64,
    namespace: String,
    name: String,
}

impl Store {
    /// An object, or its scale.
    pub fn get(&self, target: &Target) -> Result<Object, ApiError> {
        let stored = self
            .stored(&target.resource.bucket(), &key(target))
            .ok_or_else(|| ApiError::not_found(&target.resource, &target.name))?;
        let object = view::shown(&target.resource, stored);
        match target.subresource {
            Subresource::Main | Subresource::Status => Ok(object),
            Subresource::Scale => super::update::scale_of(&target.resource, object.plain()).map(Object::of_whole),
        }
    }

    /// Objects by namespace and name.
    pub fn list(
        &self,
        resource: &Arc<Resource>,
        namespace: Option<&str>,
        options: &ListOptions,
    ) -> Result<Page, ApiError> {
        let selector = Selector::parse(resource, options.label_selector.as_deref(), options.field_selector.as_deref())?;
        let from = options.continue_token.as_deref().filter(|token| !token.is_empty()).map(read_token).transpose()?;
        let revision = match &from {
            Some(from) => from.revision,
            None => self.list_revision(options)?,
        };
        let empty = Bucket::new();
        let bucket = resource.bucket();
        let now = self.buckets.get(&bucket).unwrap_or(&empty);
        let rolled;
        let objects = if revision < self.revision {
            rolled = self.roll_back(&bucket, now, revision)?;
            &rolled
        } else {
            now
        };
        let after: Option<Key> = from.map(|from| (from.namespace, from.name));
        let mut matching = objects
            .iter()
            .filter(|((of, _), _)| namespace.is_none_or(|namespace| namespace == of))
            .filter(|(key, _)| after.as_ref().is_none_or(|after| *key > after))
            .map(|(key, stored)| (key, view::shown(resource, stored)))
            .filter(|(_, object)| selector.matches(object.plain()));
        let limit = if options.limit == 0 { usize::MAX } else { options.limit };
        let page: Vec<(&Key, Object)> = matching.by_ref().take(limit).collect();
        let remaining = matching.count();
        let last = page.last().map(|(key, _)| (*key).clone());
        Ok(Page {
            items: page.into_iter().map(|(_, object)| object).collect(),
            resource_version: revision,
            continue_token: last
                .filter(|_| remaining > 0)
                .map(|(namespace, name)| token(&Continue { revision, namespace, name })),
            // With a selector a kube-apiserver doesn't count.
            remaining: (remaining > 0 && selector.is_everything()).then_some(remaining),
        })
    }

    /// Which revision a list shows: the present, unless exactly one of the past is asked for.
    fn list_revision(&self, options: &ListOptions) -> Result<u64, ApiError> {
        let Some(wanted) = options.resource_version.as_deref().filter(|text| !text.is_empty()) else {
            return Ok(self.revision);
        };
        let wanted: u64 = wanted.parse().map_err(|_| {
            ApiError::bad_request(format!(
                "invalid resource version: strconv.ParseUint: parsing {wanted:?}: invalid syntax"
            ))
        })?;
        if wanted > self.revision {
            return Err(too_large(wanted, self.revision));
        }
        let exact = options.resource_version_match.as_deref() == Some("Exact");
        Ok(if exact && wanted > 0 { wanted } else { self.revision })
    }

    fn roll_back(&self, bucket: &str, now: &Bucket, revision: u64) -> Result<Bucket, ApiError> {
        let changes = self.history.since(revision).ok_or_else(|| {
            ApiError::expired("The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.")
        })?;
        let mut objects = now.clone();
        for change in changes.rev().filter(|change| change.bucket == bucket) {
            match &change.before {
                Some(before) => objects.insert(change.key.clone(), before.clone()),
                None => objects.remove(&change.key),
            };
        }
        Ok(objects)
    }
}

/// 504: a revision that does not exist yet.
pub(super) fn too_large(wanted: u64, current: u64) -> ApiError {
    ApiError {
        code: 504,
        reason: "Timeout",
        message: format!("Timeout: Too large resource version: {wanted}, current: {current}"),
        details: Some(json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        })),
    }
}

/// The key of a target's object.
pub(super) fn key(target: &Target) -> Key {
    let namespace =
        if target.resource.namespaced { target.namespace.clone().unwrap_or_default() } else { String::new() };
    (namespace, target.name.clone())
}

fn token(from: &Continue) -> String {
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(from).expect("a struct of strings and a number"))
}

fn read_token(token: &str) -> Result<Continue, ApiError> {
    URL_SAFE_NO_PAD
        .decode(token)
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .ok_or_else(|| ApiError::bad_request("continue key is not valid: it was not issued by this server"))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, config_map};
    use super::*;
    use serde_json::Value;

    fn page(fixture: &Fixture, token: Option<String>) -> Result<Page, ApiError> {
        let options = ListOptions { limit: 2, continue_token: token, ..ListOptions::default() };
        fixture.store.list(&fixture.target("configmaps").resource, Some("default"), &options)
    }

    #[test]
    fn pages_show_one_revision_whatever_happens_between_them() {
        let mut fixture = Fixture::new();
        for name in ["a", "b", "c", "d"] {
            fixture.given("configmaps", config_map(name, json!({"k": "old"})));
        }
        let first = page(&fixture, None).unwrap();
        assert_eq!(first.remaining, Some(2));
        fixture.delete("configmaps/c", &Default::default()).unwrap();
        fixture.merge("configmaps/d", json!({"data": {"k": "new"}})).unwrap();
        fixture.given("configmaps", config_map("e", json!({})));
        let second = page(&fixture, first.continue_token).unwrap();
        let shown: Vec<(&str, &Value)> =
            second.items.iter().map(|one| (super::super::object::name(one), &one["data"]["k"])).collect();
        assert_eq!(shown, [("c", &json!("old")), ("d", &json!("old"))]);
        assert_eq!(second.resource_version, first.resource_version);
        assert!(second.continue_token.is_none());
    }

    #[test]
    fn a_page_of_a_forgotten_revision_is_410() {
        let mut fixture = Fixture::new();
        for name in ["a", "b", "c"] {
            fixture.given("configmaps", config_map(name, json!({})));
        }
        let first = page(&fixture, None).unwrap();
        fixture.given("configmaps", config_map("d", json!({})));
        fixture.store.compact(fixture.store.revision());
        assert_eq!(page(&fixture, first.continue_token).unwrap_err().code, 410);
        assert_eq!(page(&fixture, Some("nonsense".into())).unwrap_err().code, 400);
    }
}
