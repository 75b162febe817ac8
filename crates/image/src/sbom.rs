//! Decides what the SBOM says: every package that is linked into the program, as CycloneDX 1.6 in JSON.
//!
//! Never: a random serial number or the time of writing. It is in the image, and two builds give one digest.

use serde_json::{Value, json};

use crate::dependencies::{Id, Package};

/// A library that is in the program and no cargo package: the C library, Rust's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// Its name.
    pub name: String,
    /// Its version, as the distribution of the build machine says it.
    pub version: String,
    /// Its licence.
    pub licence: String,
}

impl std::str::FromStr for Library {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split('=').collect::<Vec<_>>()[..] {
            [name, version, licence] if ![name, version, licence].contains(&"") => {
                Ok(Self { name: name.to_owned(), version: version.to_owned(), licence: licence.to_owned() })
            }
            _ => Err(format!("{text:?} isn't NAME=VERSION=LICENCE")),
        }
    }
}

/// The SBOM of a program. The first package is the program itself.
pub fn document(packages: &[Package], libraries: &[Library], program_sha256: &str, created: &str) -> Option<String> {
    let (program, rest) = packages.split_first()?;
    let mut itself = component(program, "application");
    itself["hashes"] = hashes(program_sha256);
    let components: Vec<_> =
        rest.iter().map(|package| component(package, "library")).chain(libraries.iter().map(library)).collect();
    let linked = libraries.iter().map(|library| json!(reference(library)));
    let uses = packages.iter().map(|package| {
        let cargo = package.uses.iter().map(|id| json!(purl(id)));
        let all: Vec<_> = if package == program { cargo.chain(linked.clone()).collect() } else { cargo.collect() };
        json!({ "ref": purl(&id(package)), "dependsOn": all })
    });
    let alone = libraries.iter().map(|library| json!({ "ref": reference(library), "dependsOn": [] }));
    let document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": { "timestamp": created, "component": itself },
        "components": components,
        "dependencies": uses.chain(alone).collect::<Vec<_>>(),
    });
    Some(format!("{document:#}\n"))
}

fn id(package: &Package) -> Id {
    (package.name.clone(), package.version.clone())
}

/// The name that scanners look packages up by. A `+` of a version must be escaped in it.
fn purl((name, version): &Id) -> String {
    format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"))
}

fn reference(library: &Library) -> String {
    format!("pkg:generic/{}@{}", library.name, library.version.replace('+', "%2B"))
}

fn component(package: &Package, kind: &str) -> Value {
    let reference = purl(&id(package));
    let mut component = json!({
        "type": kind,
        "bom-ref": reference,
        "name": package.name,
        "version": package.version,
        "purl": reference,
    });
    if !package.licence.is_empty() {
        component["licenses"] = json!([{ "expression": package.licence }]);
    }
    if let Some(checksum) = &package.checksum {
        component["hashes"] = hashes(checksum);
    }
    component
}

fn library(library: &Library) -> Value {
    let reference = reference(library);
    json!({
        "type": "library",
        "bom-ref": reference,
        "name": library.name,
        "version": library.version,
        "purl": reference,
        "licenses": [{ "expression": library.licence }],
    })
}

fn hashes(sha256: &str) -> Value {
    json!([{ "alg": "SHA-256", "content": sha256 }])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn package(name: &str, checksum: Option<&str>, uses: &[&str]) -> Package {
        Package {
            name: name.to_owned(),
            version: "1.0.0+x".to_owned(),
            licence: "MIT".to_owned(),
            checksum: checksum.map(str::to_owned),
            uses: uses.iter().map(|used| ((*used).to_owned(), "1.0.0+x".to_owned())).collect::<BTreeSet<_>>(),
        }
    }

    fn parsed() -> Value {
        let packages =
            [package("program", None, &["a"]), package("a", Some("aa"), &["b"]), package("b", Some("bb"), &[])];
        let glibc = "glibc=2.36-9+deb12u1=LGPL-2.1-or-later".parse().expect("a library");
        let text = document(&packages, &[glibc], "cc", "2001-09-09T01:46:40Z").expect("a document");
        serde_json::from_str(&text).expect("JSON")
    }

    #[test]
    fn the_program_and_its_hash_are_the_subject_and_not_a_component() {
        let document = parsed();
        assert_eq!(document["metadata"]["component"]["name"], "program");
        assert_eq!(document["metadata"]["component"]["hashes"][0]["content"], "cc");
        let names: Vec<_> = document["components"].as_array().expect("a list").iter().map(|one| &one["name"]).collect();
        assert_eq!(names, ["a", "b", "glibc"]);
    }

    #[test]
    fn every_component_has_version_licence_and_the_checksum_that_vouches_for_it() {
        let document = parsed();
        let a = &document["components"][0];
        assert_eq!((&a["version"], &a["licenses"][0]["expression"]), (&json!("1.0.0+x"), &json!("MIT")));
        assert_eq!(a["hashes"], json!([{ "alg": "SHA-256", "content": "aa" }]));
        assert_eq!(a["purl"], "pkg:cargo/a@1.0.0%2Bx");
    }

    #[test]
    fn every_reference_leads_to_a_component() {
        let document = parsed();
        let components = document["components"].as_array().expect("a list").iter();
        let known: BTreeSet<_> =
            components.chain([&document["metadata"]["component"]]).map(|one| one["bom-ref"].to_string()).collect();
        for dependency in document["dependencies"].as_array().expect("a list") {
            let used = dependency["dependsOn"].as_array().expect("a list").iter();
            assert!(used.chain([&dependency["ref"]]).all(|one| known.contains(&one.to_string())), "{dependency}");
        }
        assert_eq!(document["dependencies"][0]["dependsOn"][1], "pkg:generic/glibc@2.36-9%2Bdeb12u1");
    }

    #[test]
    fn a_library_is_named_with_version_and_licence_or_not_at_all() {
        for text in ["glibc", "glibc=2", "glibc=2=", "=2=MIT"] {
            assert!(text.parse::<Library>().is_err(), "{text}");
        }
    }
}
