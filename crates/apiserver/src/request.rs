//! The vocabulary of a request to the store: which object, by which resource, with which options.

use std::sync::Arc;

use jiff::Timestamp;

use crate::registry::Resource;
use crate::store::Object;

/// One object, or one of its subresources.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its resource (with the API version that the caller speaks).
    pub resource: Arc<Resource>,
    /// Its namespace; none for cluster-scoped resources.
    pub namespace: Option<String>,
    /// Its name; empty in a create that uses `generateName`.
    pub name: String,
    /// The subresource, or the object itself.
    pub subresource: Subresource,
}

/// What of an object is addressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Subresource {
    /// The object itself.
    #[default]
    Main,
    /// `/status`.
    Status,
    /// `/scale`: an `autoscaling/v1` Scale.
    Scale,
}

/// The circumstances of a write. Time is an argument: the store has no clock.
#[derive(Clone, Debug)]
pub struct Write {
    /// The time of the request.
    pub now: Timestamp,
    /// `fieldManager`, or the default that the HTTP face derives from the user agent.
    pub manager: String,
    /// `dryRun=All`: everything but storing.
    pub dry_run: bool,
    /// `force=true` of an apply patch.
    pub force: bool,
    /// `fieldValidation`.
    pub validation: FieldValidation,
}

/// What happens to unknown and duplicate fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Dropped in silence.
    Ignore,
    /// Dropped, with a warning to the caller.
    #[default]
    Warn,
    /// Refused.
    Strict,
}

/// A stored (or, in a dry run, would-be stored) object and the warnings for the caller.
#[derive(Clone, Debug)]
pub struct Written {
    /// The object as it is now.
    pub object: Object,
    /// Whether the write created it (201) or not (200).
    pub created: bool,
    /// `Warning` headers.
    pub warnings: Vec<String>,
}

/// The kind of a patch, from its content type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// `application/json-patch+json`
    Json,
    /// `application/merge-patch+json`
    Merge,
    /// `application/strategic-merge-patch+json`
    Strategic,
    /// `application/apply-patch+yaml` (the HTTP face has parsed the YAML)
    Apply,
}

/// Options of a list.
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    /// `labelSelector` as text.
    pub label_selector: Option<String>,
    /// `fieldSelector` as text.
    pub field_selector: Option<String>,
    /// `limit`; 0 is none.
    pub limit: usize,
    /// `continue` token.
    pub continue_token: Option<String>,
    /// `resourceVersion`.
    pub resource_version: Option<String>,
    /// `resourceVersionMatch`.
    pub resource_version_match: Option<String>,
}

/// A page of a list.
#[derive(Clone, Debug)]
pub struct Page {
    /// The objects, in the API version of the request, by namespace and name.
    pub items: Vec<Object>,
    /// The list's resource version.
    pub resource_version: u64,
    /// Token for the next page.
    pub continue_token: Option<String>,
    /// How many remain, when known.
    pub remaining: Option<usize>,
}

/// Options of a delete.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// `preconditions.uid`
    pub uid: Option<String>,
    /// `preconditions.resourceVersion`
    pub resource_version: Option<String>,
    /// `gracePeriodSeconds`; the kind's default when left out.
    pub grace_period_seconds: Option<i64>,
    /// `propagationPolicy`; Background when left out.
    pub propagation: Option<Propagation>,
}

/// What happens to dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// They become orphans.
    Orphan,
    /// The owner goes first, they follow.
    Background,
    /// They go first.
    Foreground,
}

/// What a watch sees.
#[derive(Clone, Debug)]
pub struct WatchEvent {
    /// The kind of change.
    pub kind: WatchKind,
    /// The object after the change (before it, when deleted, with the deletion's resourceVersion).
    pub object: Object,
    /// The revision of the change.
    pub revision: u64,
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchKind {
    /// It is new, or began to match the selector.
    Added,
    /// It changed.
    Modified,
    /// It is gone, or ceased to match the selector.
    Deleted,
}
