//! Plays a pod's volumes as directories: what is in each, and how it gets there.
//!
//! Files from Secrets and ConfigMaps are swapped all at once, by one rename of the link `..data`, as a kubelet does it: a reader
//! never sees a certificate with another's key. They belong to the databases' user and nobody else may read them.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, lchown, symlink};
use std::path::Path;

use k8s_openapi::api::core::v1::{KeyToPath, Pod, Volume, VolumeProjection};

use super::environment::{Addresses, Lookup, Unresolved, field};
use crate::run_as::RunAs;

/// Files of a volume, by path below it.
pub type Files = BTreeMap<String, Vec<u8>>;

/// Where a volume's content comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The directory of a claim.
    Claim(String),
    /// An empty directory that lives as long as the pod.
    Empty,
    /// Files that follow their objects.
    Files(Files),
}

/// What plays a volume.
pub fn source(volume: &Volume, pod: &Pod, addresses: &Addresses, lookup: &impl Lookup) -> Result<Source, Unresolved> {
    if let Some(claim) = &volume.persistent_volume_claim {
        return Ok(Source::Claim(claim.claim_name.clone()));
    }
    // A claim of the pod's own, which goes with it, is no more than that here.
    if volume.empty_dir.is_some() || volume.ephemeral.is_some() {
        return Ok(Source::Empty);
    }
    if let Some(secret) = &volume.secret {
        let name = secret.secret_name.as_deref().unwrap_or_default();
        let files = from_object("secret", name, lookup.secret(name), secret.items.as_deref(), secret.optional)?;
        return Ok(Source::Files(files));
    }
    if let Some(map) = &volume.config_map {
        let data = lookup.config_map(&map.name);
        return from_object("configmap", &map.name, data, map.items.as_deref(), map.optional).map(Source::Files);
    }
    if let Some(downward) = &volume.downward_api {
        return downward_files(downward.items.as_deref(), pod, addresses).map(Source::Files);
    }
    if let Some(projected) = &volume.projected {
        let mut files = Files::new();
        for part in projected.sources.iter().flatten() {
            files.extend(projection(part, pod, addresses, lookup)?);
        }
        return Ok(Source::Files(files));
    }
    Err(Unresolved::Unsupported { what: format!("the kind of volume {:?}", volume.name) })
}

fn projection(
    part: &VolumeProjection,
    pod: &Pod,
    addresses: &Addresses,
    lookup: &impl Lookup,
) -> Result<Files, Unresolved> {
    if let Some(secret) = &part.secret {
        return from_object(
            "secret",
            &secret.name,
            lookup.secret(&secret.name),
            secret.items.as_deref(),
            secret.optional,
        );
    }
    if let Some(map) = &part.config_map {
        return from_object("configmap", &map.name, lookup.config_map(&map.name), map.items.as_deref(), map.optional);
    }
    if let Some(downward) = &part.downward_api {
        return downward_files(downward.items.as_deref(), pod, addresses);
    }
    Err(Unresolved::Unsupported { what: "this source of a projected volume".to_owned() })
}

fn from_object(
    kind: &'static str,
    name: &str,
    data: Option<Files>,
    items: Option<&[KeyToPath]>,
    optional: Option<bool>,
) -> Result<Files, Unresolved> {
    let Some(data) = data else {
        let missing = Unresolved::Object { kind, name: name.to_owned() };
        return if optional == Some(true) { Ok(Files::new()) } else { Err(missing) };
    };
    let Some(items) = items else { return Ok(data) };
    let chosen = items.iter().map(|item| match data.get(&item.key) {
        Some(content) => Ok(Some((item.path.clone(), content.clone()))),
        None if optional == Some(true) => Ok(None),
        None => Err(Unresolved::Key { kind, name: name.to_owned(), key: item.key.clone() }),
    });
    chosen.filter_map(Result::transpose).collect()
}

fn downward_files(
    items: Option<&[k8s_openapi::api::core::v1::DownwardAPIVolumeFile]>,
    pod: &Pod,
    addresses: &Addresses,
) -> Result<Files, Unresolved> {
    let all = items.into_iter().flatten().map(|item| {
        let unsupported = || Unresolved::Unsupported { what: format!("the source of the file {}", item.path) };
        let reference = item.field_ref.as_ref().ok_or_else(unsupported)?;
        Ok((item.path.clone(), field(reference, pod, addresses)?.into_bytes()))
    });
    all.collect()
}

/// Creates a directory that is the user's alone.
pub fn create_directory(path: &Path, user: &RunAs) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    give(path, user)
}

/// Makes the directory hold exactly these files, swapped at once. Returns whether anything changed.
pub fn write_files(directory: &Path, files: &Files, user: &RunAs) -> io::Result<bool> {
    create_directory(directory, user)?;
    let mut hasher = DefaultHasher::new();
    files.hash(&mut hasher);
    let version = format!("..{:016x}", hasher.finish());
    let current = directory.join("..data");
    let previous = fs::read_link(&current).ok();
    if previous.as_deref() == Some(Path::new(&version)) {
        return Ok(false);
    }
    let fresh = directory.join(&version);
    write_version(&fresh, files, user)?;
    let draft = directory.join("..draft");
    let _left_by_a_crash = fs::remove_file(&draft);
    symlink(&version, &draft)?;
    fs::rename(&draft, &current)?;
    link_visible(directory, files)?;
    if let Some(previous) = previous {
        fs::remove_dir_all(directory.join(previous))?;
    }
    Ok(true)
}

fn write_version(fresh: &Path, files: &Files, user: &RunAs) -> io::Result<()> {
    if fresh.exists() {
        fs::remove_dir_all(fresh)?;
    }
    create_directory(fresh, user)?;
    for (path, content) in files {
        let file = fresh.join(path);
        if let Some(parent) = file.parent().filter(|parent| *parent != fresh) {
            create_directory(parent, user)?;
        }
        let mut open = fs::OpenOptions::new();
        open.write(true).create_new(true).mode(0o600).open(&file)?.write_all(content)?;
        give(&file, user)?;
    }
    Ok(())
}

/// The names that readers use are links through `..data`; those that no longer lead anywhere go.
fn link_visible(directory: &Path, files: &Files) -> io::Result<()> {
    let top = |path: &str| path.split('/').next().unwrap_or(path).to_owned();
    let wanted: std::collections::BTreeSet<String> = files.keys().map(|path| top(path)).collect();
    for entry in fs::read_dir(directory)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with("..") && !wanted.contains(&name) {
            fs::remove_file(entry.path())?;
        }
    }
    for name in wanted {
        let link = directory.join(&name);
        if fs::symlink_metadata(&link).is_err() {
            symlink(Path::new("..data").join(&name), &link)?;
        }
    }
    Ok(())
}

/// Hands a file or directory to the user.
pub fn give(path: &Path, user: &RunAs) -> io::Result<()> {
    if user.switch { lchown(path, Some(user.uid), Some(user.gid)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ourselves() -> RunAs {
        RunAs { name: "me".into(), uid: 0, gid: 0, switch: false }
    }
    fn files(pairs: &[(&str, &str)]) -> Files {
        pairs.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec())).collect()
    }

    #[test]
    fn files_are_replaced_together_and_old_ones_vanish() {
        let temp = tempfile::tempdir().unwrap();
        let read = |name: &str| fs::read_to_string(temp.path().join(name)).ok();
        assert!(write_files(temp.path(), &files(&[("tls.crt", "1"), ("tls.key", "1")]), &ourselves()).unwrap());
        assert!(!write_files(temp.path(), &files(&[("tls.crt", "1"), ("tls.key", "1")]), &ourselves()).unwrap());
        assert!(write_files(temp.path(), &files(&[("tls.crt", "2"), ("a/b", "x")]), &ourselves()).unwrap());
        assert_eq!((read("tls.crt"), read("tls.key"), read("a/b")), (Some("2".into()), None, Some("x".into())));
    }

    #[test]
    fn nobody_else_may_read_them() {
        use std::os::unix::fs::PermissionsExt;
        let temp = tempfile::tempdir().unwrap();
        write_files(temp.path(), &files(&[("tls.key", "k")]), &ourselves()).unwrap();
        let mode = fs::metadata(temp.path().join("tls.key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
