//! Decides what the image is: its configuration, its manifest, and the archive that carries both.
//!
//! The archive is an OCI layout (`oci-layout`, `index.json`, `blobs/`) and has, for tools that read only what `docker save` used to
//! write, a `manifest.json` that points to the same blobs. Never: a root user, or a byte that differs between two builds of the
//! same program: users compare digests.

use std::io;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::layer::{self, File};
use crate::name::ImageName;

/// Nobody in particular, and not root. A number, because `runAsNonRoot` can only be checked against one.
pub const USER: &str = "65532:65532";

/// Where the program is in the image.
pub const PROGRAM: &str = "bellwether";

/// Where the SBOM is in the image.
pub const SBOM: &str = "usr/share/sbom/bellwether.cdx.json";

/// What an image is made from.
pub struct Image<'a> {
    /// Its name.
    pub name: &'a ImageName,
    /// The architecture of the program.
    pub architecture: &'a str,
    /// The version of the program.
    pub version: &'a str,
    /// The commit that it was built from, where there is one.
    pub revision: Option<&'a str>,
    /// The time that everything in it has, in seconds since 1970.
    pub epoch: u64,
    /// The same as RFC 3339.
    pub created: &'a str,
    /// The program.
    pub program: &'a [u8],
    /// What the program is made of.
    pub sbom: &'a [u8],
}

/// An image, packed.
pub struct Packed {
    /// The digest of its manifest: what comes after the `@` when it is pulled.
    pub digest: String,
    /// The archive.
    pub archive: Vec<u8>,
}

/// A piece of the image, found by its digest.
struct Blob {
    digest: String,
    media_type: &'static str,
    content: Vec<u8>,
}

impl Blob {
    fn new(media_type: &'static str, content: Vec<u8>) -> Self {
        Self { digest: sha256(&content), media_type, content }
    }

    fn json(media_type: &'static str, content: &Value) -> Self {
        Self::new(media_type, content.to_string().into_bytes())
    }

    fn descriptor(&self) -> Value {
        json!({ "mediaType": self.media_type, "digest": self.digest, "size": self.content.len() })
    }

    fn path(&self) -> String {
        format!("blobs/{}", self.digest.replace(':', "/"))
    }
}

fn sha256(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

impl Image<'_> {
    /// Packs the image.
    pub fn pack(&self) -> io::Result<Packed> {
        let files = [
            File { path: PROGRAM, mode: 0o755, content: self.program },
            File { path: SBOM, mode: 0o644, content: self.sbom },
        ];
        let tar = layer::pack(&files, self.epoch)?;
        let config = Blob::json("application/vnd.oci.image.config.v1+json", &self.config(&sha256(&tar)));
        let layer = Blob::new("application/vnd.oci.image.layer.v1.tar+gzip", layer::compress(&tar)?);
        let manifest = Blob::json(
            MANIFEST,
            &json!({
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": config.descriptor(),
                "layers": [layer.descriptor()],
                "annotations": self.labels(),
            }),
        );
        let docker = json!([{
            "Config": config.path(),
            "RepoTags": [self.name.to_string()],
            "Layers": [layer.path()],
        }]);
        let digest = manifest.digest.clone();
        let index = self.index(&manifest);
        let mut blobs = [config, layer, manifest];
        blobs.sort_by(|a, b| a.digest.cmp(&b.digest));
        Ok(Packed { digest, archive: self.archive(&index, &docker, &blobs)? })
    }

    fn config(&self, diff_id: &str) -> Value {
        json!({
            "created": self.created,
            "architecture": self.architecture,
            "os": "linux",
            "config": {
                "User": USER,
                "WorkingDir": "/",
                "Entrypoint": [format!("/{PROGRAM}")],
                "Labels": self.labels(),
            },
            "rootfs": { "type": "layers", "diff_ids": [diff_id] },
            "history": [{ "created": self.created, "created_by": "bellwether-image", "comment": "the program and its SBOM" }],
        })
    }

    fn labels(&self) -> Value {
        let mut labels = json!({
            "org.opencontainers.image.title": "Bellwether",
            "org.opencontainers.image.description": "Kubernetes operator for PostgreSQL, and the agent of its pods",
            "org.opencontainers.image.licenses": "Apache-2.0",
            "org.opencontainers.image.version": self.version,
            "org.opencontainers.image.created": self.created,
        });
        if let Some(revision) = self.revision {
            labels["org.opencontainers.image.revision"] = json!(revision);
        }
        labels
    }

    fn index(&self, manifest: &Blob) -> Value {
        let mut entry = manifest.descriptor();
        entry["platform"] = json!({ "architecture": self.architecture, "os": "linux" });
        entry["annotations"] = json!({
            // containerd's name for the full name; the standard annotation holds the tag.
            "io.containerd.image.name": self.name.to_string(),
            "org.opencontainers.image.ref.name": self.name.tag(),
        });
        json!({ "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [entry] })
    }

    fn archive(&self, index: &Value, docker: &Value, blobs: &[Blob]) -> io::Result<Vec<u8>> {
        let mut tar = tar::Builder::new(vec![]);
        let mut add = |path: &str, content: &[u8]| {
            layer::append(&mut tar, path, tar::EntryType::Regular, 0o644, content, self.epoch)
        };
        // What says what it is comes first, so that a reader of a stream knows.
        add("oci-layout", json!({ "imageLayoutVersion": "1.0.0" }).to_string().as_bytes())?;
        add("index.json", index.to_string().as_bytes())?;
        add("manifest.json", docker.to_string().as_bytes())?;
        for blob in blobs {
            add(&blob.path(), &blob.content)?;
        }
        tar.into_inner()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read;

    use super::*;

    const BELLWETHER: &[u8] = b"not really a program, but long enough to be worth compressing compressing compressing";

    fn packed(revision: Option<&str>) -> Packed {
        let name = "bellwether.dev/operator:1.2.3".parse().expect("a name");
        let image = Image {
            name: &name,
            architecture: "arm64",
            version: "1.2.3",
            revision,
            epoch: 1_000_000_000,
            created: "2001-09-09T01:46:40Z",
            program: BELLWETHER,
            sbom: b"{}",
        };
        image.pack().expect("packed")
    }

    fn files(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut tar = tar::Archive::new(archive);
        tar.entries()
            .expect("a tar")
            .map(|entry| {
                let mut entry = entry.expect("an entry");
                let mut content = vec![];
                entry.read_to_end(&mut content).expect("readable");
                (entry.path().expect("a path").display().to_string(), content)
            })
            .collect()
    }

    fn json(files: &BTreeMap<String, Vec<u8>>, path: &str) -> Value {
        serde_json::from_slice(files.get(path).unwrap_or_else(|| panic!("no {path}"))).expect("JSON")
    }

    fn blob_path(descriptor: &Value) -> String {
        format!("blobs/{}", descriptor["digest"].as_str().expect("a digest").replace(':', "/"))
    }

    #[test]
    fn two_packings_of_one_program_are_the_same_to_the_byte() {
        let (one, other) = (packed(Some("abc")), packed(Some("abc")));
        assert_eq!(one.digest, other.digest);
        assert_eq!(one.archive, other.archive);
        assert_ne!(one.digest, packed(Some("abd")).digest, "another commit is another image");
    }

    #[test]
    fn every_blob_has_the_size_and_digest_by_which_it_is_found() {
        let files = files(&packed(None).archive);
        let manifest = json(&files, &blob_path(&json(&files, "index.json")["manifests"][0]));
        let descriptors = [&json(&files, "index.json")["manifests"][0], &manifest["config"], &manifest["layers"][0]]
            .map(Clone::clone);
        for descriptor in descriptors {
            let content = &files[&blob_path(&descriptor)];
            assert_eq!(descriptor["size"], content.len(), "{descriptor}");
            assert_eq!(descriptor["digest"], sha256(content), "{descriptor}");
        }
        assert_eq!(files.keys().filter(|path| path.starts_with("blobs/")).count(), 3, "and nothing else");
    }

    #[test]
    fn the_digest_that_is_printed_is_the_manifests() {
        let packed = packed(None);
        assert_eq!(json(&files(&packed.archive), "index.json")["manifests"][0]["digest"], packed.digest);
    }

    #[test]
    fn it_runs_the_program_as_nobody_in_particular() {
        let files = files(&packed(Some("abc")).archive);
        let manifest = json(&files, &blob_path(&json(&files, "index.json")["manifests"][0]));
        let config = json(&files, &blob_path(&manifest["config"]));
        assert_eq!(config["config"]["Entrypoint"], json!(["/bellwether"]));
        assert_eq!(config["config"]["User"], "65532:65532");
        assert_eq!((&config["architecture"], &config["os"]), (&json!("arm64"), &json!("linux")));
        assert_eq!(config["config"]["Labels"]["org.opencontainers.image.revision"], "abc");
        assert_eq!(manifest["annotations"]["org.opencontainers.image.version"], "1.2.3");
    }

    #[test]
    fn the_layer_holds_the_program_and_its_sbom_and_is_what_the_configuration_says() {
        let files = files(&packed(None).archive);
        let manifest = json(&files, &blob_path(&json(&files, "index.json")["manifests"][0]));
        let mut layer = vec![];
        let compressed = &files[&blob_path(&manifest["layers"][0])];
        flate2::read::GzDecoder::new(&compressed[..]).read_to_end(&mut layer).expect("gzip");
        let config = json(&files, &blob_path(&manifest["config"]));
        assert_eq!(config["rootfs"]["diff_ids"], json!([sha256(&layer)]));
        let inside = self::files(&layer);
        assert_eq!(inside[PROGRAM], BELLWETHER);
        assert_eq!(inside[SBOM], b"{}");
        let directories: Vec<_> = inside.keys().map(String::as_str).filter(|path| path.ends_with('/')).collect();
        assert_eq!((inside.len(), directories), (5, vec!["usr/", "usr/share/", "usr/share/sbom/"]));
    }

    #[test]
    fn both_kinds_of_reader_find_the_same_image_under_its_name() {
        let files = files(&packed(None).archive);
        let entry = &json(&files, "index.json")["manifests"][0];
        let (docker, manifest) = (json(&files, "manifest.json"), json(&files, &blob_path(entry)));
        assert_eq!(json(&files, "oci-layout"), json!({ "imageLayoutVersion": "1.0.0" }));
        assert_eq!(entry["annotations"]["io.containerd.image.name"], "bellwether.dev/operator:1.2.3");
        assert_eq!(docker[0]["RepoTags"], json!(["bellwether.dev/operator:1.2.3"]));
        assert_eq!(docker[0]["Config"], blob_path(&manifest["config"]));
        assert_eq!(docker[0]["Layers"], json!([blob_path(&manifest["layers"][0])]));
    }
}
