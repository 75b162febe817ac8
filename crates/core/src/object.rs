//! Kubernetes objects as the plan sees them: which kind, what it should be, and whether it already is.
//!
//! Decides whether a write is needed. Two things make one: the object as we last applied it differs from what we want now (a
//! hash of it is kept in an annotation, so that a field which we no longer set is noticed too), or somebody changed a field
//! that we set (drift). Never: a write because the API server filled in a default, or because another party wrote a field of
//! its own.

use std::sync::Arc;

use bellwether_api::labels;
use serde_json::Value;

/// The kinds of a cluster's children, and of what asks something of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `v1`
    ServiceAccount,
    /// `rbac.authorization.k8s.io/v1`
    Role,
    /// `rbac.authorization.k8s.io/v1`
    RoleBinding,
    /// `v1`
    Secret,
    /// `v1`
    ConfigMap,
    /// `coordination.k8s.io/v1`
    Lease,
    /// `v1`
    Service,
    /// `discovery.k8s.io/v1`
    EndpointSlice,
    /// `v1`
    PersistentVolumeClaim,
    /// `v1`
    Pod,
    /// `policy/v1`
    PodDisruptionBudget,
    /// `bellwether.dev/v1`: no child. People make some and so does the schedule, and they outlive the cluster.
    Backup,
}

impl Kind {
    /// Every kind, in the order in which a cluster needs them.
    pub const ALL: [Self; 12] = [
        Self::ServiceAccount,
        Self::Role,
        Self::RoleBinding,
        Self::Secret,
        Self::ConfigMap,
        Self::Lease,
        Self::Service,
        Self::EndpointSlice,
        Self::PersistentVolumeClaim,
        Self::Pod,
        Self::PodDisruptionBudget,
        Self::Backup,
    ];

    /// API group (empty for the core group), version, kind, plural.
    pub fn coordinates(self) -> (&'static str, &'static str, &'static str, &'static str) {
        match self {
            Self::ServiceAccount => ("", "v1", "ServiceAccount", "serviceaccounts"),
            Self::Role => ("rbac.authorization.k8s.io", "v1", "Role", "roles"),
            Self::RoleBinding => ("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings"),
            Self::Secret => ("", "v1", "Secret", "secrets"),
            Self::ConfigMap => ("", "v1", "ConfigMap", "configmaps"),
            Self::Lease => ("coordination.k8s.io", "v1", "Lease", "leases"),
            Self::Service => ("", "v1", "Service", "services"),
            Self::EndpointSlice => ("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices"),
            Self::PersistentVolumeClaim => ("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
            Self::Pod => ("", "v1", "Pod", "pods"),
            Self::PodDisruptionBudget => ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"),
            Self::Backup => (bellwether_api::GROUP, "v1", "Backup", "backups"),
        }
    }

    /// `apps/v1`, or `v1` in the core group.
    pub fn api_version(self) -> String {
        let (group, version, _, _) = self.coordinates();
        if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.coordinates().2)
    }
}

/// An object as it should be: only the fields that we care about.
#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// What is sent: `apiVersion`, `kind`, `metadata`, the rest, and the hash of all that.
    pub value: Arc<Value>,
}

impl Desired {
    /// From a built object. Fields that are null or empty say nothing and are left out: in a server-side apply an empty list
    /// would claim the field.
    pub fn of(kind: Kind, name: impl Into<String>, object: &impl serde::Serialize) -> Self {
        // Built by our own types, all of whose maps have text keys: it always serialises.
        let mut value = serde_json::to_value(object).unwrap_or_default();
        prune(&mut value);
        let (_, _, name_of_kind, _) = kind.coordinates();
        value["apiVersion"] = kind.api_version().into();
        value["kind"] = name_of_kind.into();
        let hash = hash(&value);
        value["metadata"]["annotations"][labels::APPLIED_HASH] = hash.into();
        Self { kind, name: name.into(), value: Arc::new(value) }
    }

    /// The same with further owners, which are no part of the hash: they come and go, and whoever is gone is no difference.
    pub fn also_owned_by(mut self, owners: impl Iterator<Item = Value>) -> Self {
        match &mut Arc::make_mut(&mut self.value)["metadata"]["ownerReferences"] {
            Value::Array(all) => all.extend(owners),
            none => *none = owners.collect(),
        }
        self
    }

    /// Whether `observed` is what we want but for an owner.
    pub fn lacks_only_owners(&self, observed: &Value) -> bool {
        self.holds_but_for(Some("ownerReferences"), observed) && !self.holds_in(observed)
    }

    /// The hash of what is wanted, as it is kept in the annotation.
    pub fn hash(&self) -> String {
        self.value["metadata"]["annotations"][labels::APPLIED_HASH].as_str().unwrap_or_default().to_owned()
    }

    /// Whether exactly this was applied to `observed` last: if it does not hold there, somebody else changed it.
    pub fn was_applied_to(&self, observed: &Value) -> bool {
        let hash = |object: &Value| object["metadata"]["annotations"][labels::APPLIED_HASH].as_str().map(str::to_owned);
        hash(observed).is_some() && hash(observed) == hash(&self.value)
    }

    /// Whether `observed` already is what we want.
    pub fn holds_in(&self, observed: &Value) -> bool {
        self.holds_but_for(None, observed)
    }

    /// The same, whatever we say of one field of the metadata.
    fn holds_but_for(&self, ignored: Option<&str>, observed: &Value) -> bool {
        let Some(observed) = observed.as_object() else { return false };
        // Items of a list come without `apiVersion` and `kind`.
        let mut said =
            self.value.as_object().into_iter().flatten().filter(|(key, _)| *key != "apiVersion" && *key != "kind");
        said.all(|(key, value)| match (value, observed.get(key)) {
            (Value::Object(want), Some(Value::Object(have))) if key == "metadata" => {
                let mut want = want.iter().filter(|(key, _)| Some(key.as_str()) != ignored);
                want.all(|(key, value)| field_holds(key, value, have.get(key)))
            }
            (value, observed) => field_holds(key, value, observed),
        })
    }
}

/// Whether every field of `desired` is in `observed`. Lists must match one to one, owner references and finalizers apart, to
/// which others may add.
fn holds(desired: &Value, observed: &Value) -> bool {
    match (desired, observed) {
        (Value::Object(want), Value::Object(have)) => {
            want.iter().all(|(key, value)| field_holds(key, value, have.get(key)))
        }
        (Value::Array(want), Value::Array(have)) => {
            want.len() == have.len() && want.iter().zip(have).all(|(item, other)| holds(item, other))
        }
        (want, have) => want == have,
    }
}

fn field_holds(key: &str, desired: &Value, observed: Option<&Value>) -> bool {
    match (desired, observed) {
        (Value::Array(want), Some(Value::Array(have))) if key == "ownerReferences" || key == "finalizers" => {
            want.iter().all(|item| have.iter().any(|other| holds(item, other)))
        }
        (desired, Some(observed)) => holds(desired, observed),
        (desired, None) => says_nothing(desired),
    }
}

fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(says_nothing),
        _ => false,
    }
}

/// Drops nulls and empty lists and maps of an object's fields; an empty `emptyDir: {}` or `spec.selector: {}` means
/// something, so maps that were empty to begin with stay.
fn prune(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| {
                !matches!(value, Value::Null) && !matches!(value, Value::Array(items) if items.is_empty())
            });
            fields.values_mut().for_each(prune);
        }
        Value::Array(items) => items.iter_mut().for_each(prune),
        _ => {}
    }
}

/// FNV-1a over the value with its keys sorted. Written out because it is stored in the API and must not change with a
/// release of a library; not a secret and not a defence against anybody.
pub fn hash(value: &Value) -> String {
    let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
    digest(value, &mut hash);
    format!("{:016x}", hash.0)
}

/// FNV-1a over words, each ended by a separator, which keeps `["ab"]` and `["a", "b"]` apart.
struct Fnv(u64);

impl Fnv {
    fn part(&mut self, text: &str) {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn word(&mut self, text: &str) {
        self.part(text);
        self.part("\u{1f}");
    }
}

fn digest(value: &Value, hash: &mut Fnv) {
    match value {
        Value::Object(fields) => {
            hash.word("{");
            let mut sorted: Vec<_> = fields.iter().collect();
            sorted.sort_unstable_by_key(|(key, _)| *key);
            for (key, value) in sorted {
                hash.word(key);
                digest(value, hash);
            }
            hash.word("}");
        }
        Value::Array(items) => {
            hash.word("[");
            items.iter().for_each(|item| digest(item, hash));
            hash.word("]");
        }
        // As JSON writes it, without writing it first where nothing is to be escaped.
        Value::String(text) if !text.contains(|c: char| c.is_control() || c == '"' || c == '\\') => {
            hash.part("\"");
            hash.part(text);
            hash.word("\"");
        }
        scalar => hash.word(&scalar.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn service(value: &Value) -> Desired {
        Desired::of(Kind::Service, "a", value)
    }

    #[test]
    fn defaults_and_other_writers_fields_are_not_a_difference() {
        let desired = service(&json!({"metadata": {"name": "a"}, "spec": {"ports": [{"port": 1}]}}));
        let mut stored = Value::clone(&desired.value);
        stored["metadata"]["uid"] = "u".into();
        stored.as_object_mut().unwrap().retain(|key, _| key != "apiVersion" && key != "kind");
        stored["spec"]["clusterIP"] = "10.0.0.1".into();
        stored["spec"]["ports"][0]["protocol"] = "TCP".into();
        assert!(desired.holds_in(&stored));
    }

    #[test]
    fn drift_in_a_field_that_we_set_is_a_difference() {
        let desired = service(&json!({"spec": {"ports": [{"port": 1}]}}));
        let mut stored = Value::clone(&desired.value);
        stored["spec"]["ports"][0]["port"] = 2.into();
        assert!(!desired.holds_in(&stored));
    }

    #[test]
    fn a_field_that_we_no_longer_set_is_a_difference() {
        let before = service(&json!({"spec": {"type": "LoadBalancer"}}));
        assert!(!service(&json!({"spec": {}})).holds_in(&before.value));
    }

    #[test]
    fn an_owner_that_somebody_added_is_left_alone() {
        let desired = service(&json!({"metadata": {"ownerReferences": [{"uid": "ours"}]}}));
        let mut stored = Value::clone(&desired.value);
        stored["metadata"]["ownerReferences"] = json!([{"uid": "theirs"}, {"uid": "ours", "kind": "X"}]);
        assert!(desired.holds_in(&stored));
    }

    #[test]
    fn an_owner_that_is_missing_is_told_from_other_drift() {
        let plain = service(&json!({"metadata": {"ownerReferences": [{"uid": "a"}]}, "spec": {"type": "ClusterIP"}}));
        let desired = plain.clone().also_owned_by([json!({"uid": "b"})].into_iter());
        assert!(desired.lacks_only_owners(&plain.value) && !desired.lacks_only_owners(&desired.value));
        assert!(plain.holds_in(&desired.value), "one too many is no difference");
        let mut drifted = Value::clone(&plain.value);
        drifted["spec"]["type"] = "NodePort".into();
        assert!(!desired.lacks_only_owners(&drifted));
    }

    #[test]
    fn the_hash_never_changes() {
        // Stored in the API: a change here would make every operator upgrade rewrite every object.
        assert_eq!(hash(&json!({"b": [1, "x"], "a": null})), "e053df0fa5d7e4a3");
    }
}
