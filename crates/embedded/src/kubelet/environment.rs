//! Decides what a container's process sees: its command and environment, with mount paths replaced by local directories.
//!
//! There is no mount namespace, so a path below a `mountPath` becomes a path below the directory that plays the volume. Never: a
//! path in the container's world that silently points at the machine's own file of that name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, EnvVar, ObjectFieldSelector, Pod};
use kube::ResourceExt;

/// What a container has instead of `PATH` from its image.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A reference that can't be resolved yet; the container waits for it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unresolved {
    /// A Secret or ConfigMap that doesn't exist.
    #[error("{kind} {name:?} not found")]
    Object {
        /// `secret` or `configmap`, as a kubelet says it.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// One that exists, but lacks the key.
    #[error("couldn't find key {key} in {kind} {name:?}")]
    Key {
        /// `Secret` or `ConfigMap`.
        kind: &'static str,
        /// Its name.
        name: String,
        /// The key.
        key: String,
    },
    /// A claim that doesn't exist or isn't bound.
    #[error("persistentvolumeclaim {name:?} not found or not bound")]
    Claim {
        /// Its name.
        name: String,
    },
    /// Something that we don't play.
    #[error("{what} is not supported by `bellwether up`")]
    Unsupported {
        /// What it is.
        what: String,
    },
}

/// Where references lead: the objects of the pod's namespace.
pub trait Lookup {
    /// The data of a Secret, decoded.
    fn secret(&self, name: &str) -> Option<BTreeMap<String, Vec<u8>>>;
    /// The data of a ConfigMap.
    fn config_map(&self, name: &str) -> Option<BTreeMap<String, Vec<u8>>>;
}

/// Which mount path is which local directory. The longest matching path wins.
#[derive(Clone, Debug, Default)]
pub struct Mounts(Vec<(PathBuf, PathBuf)>);

impl Mounts {
    /// The mounts of a container, given the local directory of each volume by name.
    pub fn of(container: &Container, volumes: &BTreeMap<String, PathBuf>) -> Self {
        let mounts = container.volume_mounts.iter().flatten().filter_map(|mount| {
            let local = volumes.get(&mount.name)?;
            let local = mount.sub_path.as_ref().map_or_else(|| local.clone(), |below| local.join(below));
            Some((PathBuf::from(&mount.mount_path), local))
        });
        let mut mounts: Vec<_> = mounts.collect();
        mounts.sort_by_key(|(path, _)| std::cmp::Reverse(path.components().count()));
        Self(mounts)
    }

    /// `text`, if it is a path below a mount, as a local path; otherwise as it is.
    pub fn localise(&self, text: &str) -> String {
        let path = Path::new(text);
        let local = self.0.iter().find_map(|(mount, local)| {
            let rest = path.strip_prefix(mount).ok()?;
            Some(if rest.as_os_str().is_empty() { local.clone() } else { local.join(rest) })
        });
        local.map_or_else(|| text.to_owned(), |local| local.to_string_lossy().into_owned())
    }

    /// The local directory of a mount path.
    pub fn directory(&self, mount_path: &str) -> Option<&Path> {
        self.0.iter().find(|(mount, _)| mount == Path::new(mount_path)).map(|(_, local)| local.as_path())
    }
}

/// The command line of a container: program and arguments, local.
pub fn command(container: &Container, mounts: &Mounts) -> Vec<String> {
    let words = container.command.iter().flatten().chain(container.args.iter().flatten());
    words.map(|word| mounts.localise(word)).collect()
}

/// The environment of a container, local; `address` is the pod's, `node` its node's.
pub fn environment(
    pod: &Pod,
    container: &Container,
    mounts: &Mounts,
    addresses: &Addresses,
    lookup: &impl Lookup,
) -> Result<BTreeMap<String, String>, Unresolved> {
    let mut result = BTreeMap::from([("PATH".to_owned(), DEFAULT_PATH.to_owned())]);
    result.insert("HOSTNAME".to_owned(), pod.name_any());
    for variable in container.env.iter().flatten() {
        if let Some(value) = value_of(variable, pod, addresses, lookup)? {
            result.insert(variable.name.clone(), mounts.localise(&value));
        }
    }
    Ok(result)
}

/// What of a pod's status its own environment may refer to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The pod's address.
    pub pod: String,
    /// Its node's address.
    pub host: String,
}

fn value_of(
    variable: &EnvVar,
    pod: &Pod,
    addresses: &Addresses,
    lookup: &impl Lookup,
) -> Result<Option<String>, Unresolved> {
    let Some(source) = &variable.value_from else {
        return Ok(Some(variable.value.clone().unwrap_or_default()));
    };
    if let Some(reference) = &source.field_ref {
        return field(reference, pod, addresses).map(Some);
    }
    let (kind, name, key, optional, data) = if let Some(reference) = &source.secret_key_ref {
        ("Secret", &reference.name, &reference.key, reference.optional, lookup.secret(&reference.name))
    } else if let Some(reference) = &source.config_map_key_ref {
        ("ConfigMap", &reference.name, &reference.key, reference.optional, lookup.config_map(&reference.name))
    } else {
        return Err(Unresolved::Unsupported { what: format!("the source of the variable {}", variable.name) });
    };
    let found = match data {
        None => Err(Unresolved::Object { kind: lower(kind), name: name.clone() }),
        Some(data) => data
            .get(key)
            .map(|value| String::from_utf8_lossy(value).into_owned())
            .ok_or_else(|| Unresolved::Key { kind, name: name.clone(), key: key.clone() }),
    };
    match found {
        Err(_) if optional == Some(true) => Ok(None),
        other => other.map(Some),
    }
}

fn lower(kind: &'static str) -> &'static str {
    if kind == "Secret" { "secret" } else { "configmap" }
}

/// A field of the pod, as the downward API knows them.
pub fn field(reference: &ObjectFieldSelector, pod: &Pod, addresses: &Addresses) -> Result<String, Unresolved> {
    let path = reference.field_path.as_str();
    let spec = pod.spec.as_ref();
    let value = match path {
        "metadata.name" => Some(pod.name_any()),
        "metadata.namespace" => pod.namespace(),
        "metadata.uid" => pod.uid(),
        "status.podIP" | "status.podIPs" => Some(addresses.pod.clone()),
        "status.hostIP" | "status.hostIPs" => Some(addresses.host.clone()),
        "spec.nodeName" => spec.and_then(|spec| spec.node_name.clone()),
        "spec.serviceAccountName" => spec.and_then(|spec| spec.service_account_name.clone()),
        _ => {
            let key = |prefix: &str| path.strip_prefix(prefix)?.strip_suffix("']").map(str::to_owned);
            let label = key("metadata.labels['").map(|key| pod.labels().get(&key).cloned().unwrap_or_default());
            label.or_else(|| {
                key("metadata.annotations['").map(|k| pod.annotations().get(&k).cloned().unwrap_or_default())
            })
        }
    };
    value.ok_or_else(|| Unresolved::Unsupported { what: format!("the field {path}") })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    struct Objects;
    impl Lookup for Objects {
        fn secret(&self, name: &str) -> Option<BTreeMap<String, Vec<u8>>> {
            (name == "there").then(|| BTreeMap::from([("password".to_owned(), b"s3cret".to_vec())]))
        }
        fn config_map(&self, _: &str) -> Option<BTreeMap<String, Vec<u8>>> {
            None
        }
    }

    fn resolve(env: &serde_json::Value) -> Result<BTreeMap<String, String>, Unresolved> {
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"name": "db-1", "namespace": "default", "uid": "u"}})).unwrap();
        let mounts = json!([{"name": "data", "mountPath": "/data"}, {"name": "inner", "mountPath": "/data/inner"}]);
        let container: Container =
            serde_json::from_value(json!({"name": "c", "env": env, "volumeMounts": mounts})).unwrap();
        let volumes = [("data", "/x/1"), ("inner", "/x/2")].map(|(k, v)| (k.to_owned(), PathBuf::from(v)));
        let mounts = Mounts::of(&container, &volumes.into());
        let addresses = Addresses { pod: "127.9.16.1".into(), host: "127.9.0.11".into() };
        environment(&pod, &container, &mounts, &addresses, &Objects)
    }

    #[test]
    fn paths_below_a_mount_become_local_and_others_stay() {
        let env = resolve(&json!([
            {"name": "A", "value": "/data"}, {"name": "B", "value": "/data/inner/f"}, {"name": "C", "value": "/database"}
        ]));
        let env = env.unwrap();
        assert_eq!((env["A"].as_str(), env["B"].as_str(), env["C"].as_str()), ("/x/1", "/x/2/f", "/database"));
    }

    #[test]
    fn the_downward_api_knows_name_uid_and_address() {
        let from = |path: &str| json!({"fieldRef": {"fieldPath": path}});
        let env = resolve(&json!([
            {"name": "N", "valueFrom": from("metadata.name")}, {"name": "I", "valueFrom": from("status.podIP")}
        ]));
        let env = env.unwrap();
        assert_eq!((env["N"].as_str(), env["I"].as_str()), ("db-1", "127.9.16.1"));
    }

    #[test]
    fn a_missing_secret_is_named_and_an_optional_one_is_left_out() {
        let from = |name: &str, optional: bool| json!([{"name": "P", "valueFrom": {"secretKeyRef": {"name": name, "key": "password", "optional": optional}}}]);
        assert_eq!(resolve(&from("there", false)).unwrap()["P"], "s3cret");
        assert_eq!(resolve(&from("gone", false)).unwrap_err().to_string(), "secret \"gone\" not found");
        assert!(!resolve(&from("gone", true)).unwrap().contains_key("P"));
    }
}
