//! Decides which packages are in the program: what cargo links for it, with the checksums of the lock file.
//!
//! From `cargo tree` for exactly the package, features and target that are shipped, normal dependencies only: build scripts and
//! procedural macros run at build time and are not in the program. Never: a package whose origin the lock file doesn't vouch for.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// A package that is linked into the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its licence, as an SPDX expression; empty when it states none.
    pub licence: String,
    /// The SHA-256 of its archive; none for packages of this repository.
    pub checksum: Option<String>,
    /// What it uses, as `(name, version)`.
    pub uses: BTreeSet<Id>,
}

/// Name and version: within one program no two packages share both.
pub type Id = (String, String);

/// What went wrong on the way.
#[derive(Debug, thiserror::Error)]
pub enum DependencyError {
    /// cargo couldn't be run, or failed.
    #[error("cargo tree: {0}")]
    Cargo(String),
    /// A line of cargo's answer.
    #[error("cargo tree says {0:?}, which isn't `depth name vVERSION|licence`")]
    Line(String),
    /// The lock file couldn't be read.
    #[error("{path}: {why}")]
    Lock {
        /// Where it should be.
        path: String,
        /// Why not.
        why: std::io::Error,
    },
    /// A package from elsewhere without a checksum.
    #[error(
        "{0} {1} is neither in this repository nor in Cargo.lock with a checksum: nobody could tell what was linked"
    )]
    Unvouched(String, String),
}

/// The packages in `package` as it is built for `target`; the first is `package` itself, the rest in order of their names.
pub fn linked(root: &Path, package: &str, target: &str) -> Result<Vec<Package>, DependencyError> {
    let path = root.join("Cargo.lock");
    let lock = std::fs::read_to_string(&path)
        .map_err(|why| DependencyError::Lock { path: path.display().to_string(), why })?;
    read(&tree(root, package, target)?, &checksums(&lock))
}

fn tree(root: &Path, package: &str, target: &str) -> Result<String, DependencyError> {
    let edges = ["--edges", "normal,no-proc-macro", "--prefix", "depth", "--format", " {p}|{l}"];
    let what = ["tree", "--quiet", "--locked", "--package", package, "--target", target];
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo).args(what).args(edges).current_dir(root).output();
    let output = output.map_err(|why| DependencyError::Cargo(why.to_string()))?;
    if !output.status.success() {
        return Err(DependencyError::Cargo(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The checksum of every package that the lock file has one for.
fn checksums(lock: &str) -> BTreeMap<Id, String> {
    let value = |block: &str, key: &str| {
        let line = block.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"'));
        line.map(str::to_owned)
    };
    lock.split("[[package]]")
        .skip(1)
        .filter_map(|block| Some(((value(block, "name")?, value(block, "version")?), value(block, "checksum")?)))
        .collect()
}

fn read(tree: &str, checksums: &BTreeMap<Id, String>) -> Result<Vec<Package>, DependencyError> {
    let mut packages: BTreeMap<Id, Package> = BTreeMap::new();
    // The packages from the root down to the line at hand.
    let mut above: Vec<Id> = vec![];
    for line in tree.lines().filter(|line| !line.is_empty()) {
        let (depth, found) = parse(line, checksums)?;
        let id = (found.name.clone(), found.version.clone());
        above.truncate(depth);
        if let Some(user) = above.last().and_then(|user| packages.get_mut(user)) {
            user.uses.insert(id.clone());
        }
        above.push(id.clone());
        packages.entry(id).or_insert(found);
    }
    let root = above.first().cloned().ok_or_else(|| DependencyError::Line(String::new()))?;
    let mut packages: Vec<_> = packages.into_values().collect();
    packages.sort_by_key(|package| {
        ((&package.name, &package.version) != (&root.0, &root.1), package.name.clone(), package.version.clone())
    });
    Ok(packages)
}

/// A line such as `2 serde v1.0.0|MIT OR Apache-2.0 (*)`.
fn parse(line: &str, checksums: &BTreeMap<Id, String>) -> Result<(usize, Package), DependencyError> {
    let bad = || DependencyError::Line(line.to_owned());
    let (what, licence) = line.split_once('|').ok_or_else(bad)?;
    let mut words = what.split(' ');
    let depth = words.next().and_then(|word| word.parse().ok()).ok_or_else(bad)?;
    let name = words.next().ok_or_else(bad)?.to_owned();
    let version = words.next().and_then(|word| word.strip_prefix('v')).ok_or_else(bad)?.to_owned();
    let checksum = checksums.get(&(name.clone(), version.clone())).cloned();
    // Only packages of this repository are shown with a path.
    if checksum.is_none() && !what.ends_with(')') {
        return Err(DependencyError::Unvouched(name, version));
    }
    // Before SPDX expressions, alternatives were written with a slash.
    let licence = licence.trim_end_matches("(*)").trim().replace('/', " OR ");
    Ok((depth, Package { name, version, licence, checksum, uses: BTreeSet::new() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nsource = \"x\"\nchecksum = \"aa\"\n\n\
        [[package]]\nname = \"b\"\nversion = \"2.0.0\"\nchecksum = \"bb\"\ndependencies = [\n \"a\",\n]\n\n\
        [[package]]\nname = \"ours\"\nversion = \"0.1.0\"\n";

    fn id(name: &str, version: &str) -> Id {
        (name.to_owned(), version.to_owned())
    }

    #[test]
    fn the_tree_is_read_with_who_uses_whom() {
        let tree =
            "0 ours v0.1.0 (/x/ours)|Apache-2.0\n1 b v2.0.0|MIT/Apache-2.0\n2 a v1.0.0|ISC\n1 a v1.0.0|ISC (*)\n";
        let packages = read(tree, &checksums(LOCK)).expect("a tree");
        let names: Vec<_> = packages.iter().map(|package| package.name.as_str()).collect();
        assert_eq!(names, ["ours", "a", "b"]);
        assert_eq!(packages[0].uses, BTreeSet::from([id("a", "1.0.0"), id("b", "2.0.0")]));
        assert_eq!(packages[2].uses, BTreeSet::from([id("a", "1.0.0")]));
        assert_eq!(packages[2].licence, "MIT OR Apache-2.0");
        assert_eq!(packages[1].checksum.as_deref(), Some("aa"));
        assert_eq!(packages[0].checksum, None);
    }

    #[test]
    fn a_package_from_elsewhere_without_a_checksum_is_refused() {
        let why = read("0 ours v0.1.0 (/x)|X\n1 c v3.0.0|MIT\n", &checksums(LOCK)).expect_err("nobody vouches for c");
        assert!(matches!(why, DependencyError::Unvouched(name, _) if name == "c"));
    }

    #[test]
    fn a_line_that_cannot_be_read_is_an_error_and_not_a_package_less() {
        assert!(matches!(read("0 ours|X\n", &checksums(LOCK)), Err(DependencyError::Line(_))));
        assert!(matches!(read("", &checksums(LOCK)), Err(DependencyError::Line(_))));
    }

    #[test]
    fn the_shipped_program_has_what_it_is_known_to_have_and_no_macros() {
        let root = Path::new(env!("BELLWETHER_ROOT"));
        let packages = linked(root, "bellwether", "x86_64-unknown-linux-gnu").expect("cargo tree");
        let has = |name: &str| packages.iter().any(|package| package.name == name);
        assert_eq!(packages[0].name, "bellwether");
        assert!(has("rustls") && has("kube-client") && has("tokio") && has("bellwether-agent"));
        assert!(!has("serde_derive") && !has("insta"), "neither in the program");
        assert!(packages.iter().all(|package| !package.licence.is_empty()));
    }
}
