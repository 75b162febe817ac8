//! The images that are on every node from the start: PostgreSQL of three major versions, and the pause container.
//!
//! Nothing is pulled: PostgreSQL images are a minimal Debian with the package of that suite. They are kept as archives
//! that any runtime can load, keyed by what they were made from, and once more as a containerd directory with all of them
//! unpacked, which each node gets a copy of made of hard links: layers are never written to, and unpacking nine images would
//! take longer than all the rest of a start.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use sha2::{Digest, Sha256};

use crate::command::Run;
use crate::layout::{Node, Place, state};
use crate::node::{containerd, containerd_answers, ctr, socket};
use crate::{Error, Layout};

/// The image of the process that holds a pod's namespaces.
pub const PAUSE: &str = "bellwether.test/pause:1";

/// A PostgreSQL image.
struct Postgres {
    major: u8,
    suite: &'static str,
}

const POSTGRES: [Postgres; 3] = [
    Postgres { major: 15, suite: "bookworm" },
    Postgres { major: 17, suite: "trixie" },
    Postgres { major: 18, suite: "sid" },
];

/// The name of the PostgreSQL image of a major version.
pub fn postgres(major: u8) -> String {
    format!("bellwether.test/postgres:{major}")
}

/// A Debian is a few hundred downloads.
const BUILD: Duration = Duration::from_secs(3600);

/// A containerd directory that holds all images.
pub struct Prepared(PathBuf);

/// Builds what is missing.
pub fn prepare(layout: &Layout, say: &dyn Fn(&str)) -> Result<Prepared, Error> {
    let directory = layout.images();
    fs::create_dir_all(&directory).map_err(Error::file(&directory))?;
    let mut archives = vec![pause_archive(layout)?];
    for image in &POSTGRES {
        archives.push(postgres_archive(layout, image, say)?);
    }
    let key = digest(
        archives.iter().map(|path| path.to_string_lossy().into_owned()).collect::<Vec<_>>().join("\n").as_bytes(),
    );
    let unpacked = directory.join(format!("containerd-{key}"));
    if !unpacked.exists() {
        say("unpacking the images");
        unpack(&archives, &unpacked)?;
    }
    Ok(Prepared(unpacked))
}

/// The first bytes of a hash: a name for what something was made from.
fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

fn postgres_archive(layout: &Layout, image: &Postgres, say: &dyn Fn(&str)) -> Result<PathBuf, Error> {
    let Postgres { major, suite } = image;
    let recipe = layout.sources.join("postgres-rootfs");
    let key = digest(&fs::read(&recipe).map_err(Error::file(&recipe))?);
    let name = format!("postgres-{major}-{suite}-{key}");
    let archive = layout.images().join(format!("{name}.tar"));
    if archive.exists() {
        return Ok(archive);
    }
    say(&format!("building the PostgreSQL {major} image from Debian {suite}: minutes, once"));
    let layer = layout.images().join(format!("{name}.layer"));
    let scratch = layout.images().join(format!("{name}.root"));
    // It appears when it is complete: a start that was interrupted after it goes on from there.
    if !layer.exists() {
        Run::new(&recipe, [suite.to_string(), major.to_string(), path(&scratch), path(&layer)]).within(BUILD).go()?;
    }
    let config = json!({
        "User": "999:999",
        "WorkingDir": "/",
        "Cmd": ["postgres"],
        "Env": [
            format!("PATH=/usr/lib/postgresql/{major}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
            "LANG=C.UTF-8",
        ],
    });
    pack(&layer, &postgres(*major), &config, &archive)?;
    Ok(archive)
}

fn pause_archive(layout: &Layout) -> Result<PathBuf, Error> {
    let program = layout.program("pause");
    let key = digest(&fs::read(&program).map_err(Error::file(&program))?);
    let archive = layout.images().join(format!("pause-{key}.tar"));
    if !archive.exists() {
        let layer = layout.images().join(format!("pause-{key}.layer"));
        let reproducible = ["--numeric-owner", "--owner=0", "--group=0", "--mtime=@0"].map(String::from);
        let what = ["-C".into(), path(&layout.programs()), "-cf".into(), path(&layer), "pause".into()];
        Run::new("tar", reproducible.into_iter().chain(what)).go()?;
        pack(&layer, PAUSE, &json!({"Entrypoint": ["/pause"], "User": "65535:65535"}), &archive)?;
    }
    Ok(archive)
}

/// Makes an archive of one layer, as `docker save` writes it; the layer's file is used up.
fn pack(layer: &Path, name: &str, config: &serde_json::Value, archive: &Path) -> Result<(), Error> {
    let sum = Run::new("sha256sum", [layer]).within(BUILD).output()?;
    let sum = sum.split_whitespace().next().unwrap_or_default();
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let description = json!({
        "architecture": architecture,
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{sum}")]},
    });
    let manifest = json!([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]);

    let scratch = archive.with_extension("pack");
    if scratch.exists() {
        fs::remove_dir_all(&scratch).map_err(Error::file(&scratch))?;
    }
    fs::create_dir_all(&scratch).map_err(Error::file(&scratch))?;
    for (file, text) in [("config.json", description.to_string()), ("manifest.json", manifest.to_string())] {
        let file = scratch.join(file);
        fs::write(&file, text).map_err(Error::file(&file))?;
    }
    fs::rename(layer, scratch.join("layer.tar")).map_err(Error::file(layer))?;
    let part = archive.with_extension("part");
    let files =
        ["-C", &path(&scratch), "-cf", &path(&part), "manifest.json", "config.json", "layer.tar"].map(String::from);
    Run::new("tar", files).within(BUILD).go()?;
    fs::rename(&part, archive).map_err(Error::file(archive))?;
    fs::remove_dir_all(&scratch).map_err(Error::file(&scratch))
}

/// Loads the archives with a containerd that runs for this only, in the control plane's place.
fn unpack(archives: &[PathBuf], unpacked: &Path) -> Result<(), Error> {
    let scratch = state("unpack");
    fs::create_dir_all(&scratch).map_err(Error::file(&scratch))?;
    let running = containerd("containerd-unpack", Place::Control, &scratch)?.start()?;
    let socket = scratch.join("containerd.sock");
    running.ready_when(Duration::from_secs(60), || containerd_answers(&socket))?;
    for archive in archives {
        import(&socket, archive)?;
    }
    running.kill()?;
    let part = unpacked.with_extension("part");
    if part.exists() {
        fs::remove_dir_all(&part).map_err(Error::file(&part))?;
    }
    Run::new("cp", ["-a", &path(&scratch.join("containerd")), &path(&part)]).within(BUILD).go()?;
    fs::rename(&part, unpacked).map_err(Error::file(unpacked))
}

fn import(socket: &Path, archive: &Path) -> Result<(), Error> {
    ctr(socket, ["images", "import", &path(archive)]).within(Duration::from_secs(300)).go()
}

/// Loads an image archive on every node of the running cluster.
pub fn load(archive: &Path) -> Result<(), Error> {
    Node::ALL.into_iter().try_for_each(|node| import(&socket(node), archive))
}

impl Prepared {
    /// Gives a containerd that has not started yet a directory with the images.
    pub fn copy_to(&self, directory: &Path) -> Result<(), Error> {
        let from = path(&self.0);
        let copying =
            |flags: &str| Run::new("cp", [flags, &from, &path(directory)]).within(Duration::from_secs(300)).go();
        if copying("-al").is_err() {
            // The cache is on another file system.
            if directory.exists() {
                fs::remove_dir_all(directory).map_err(Error::file(directory))?;
            }
            return copying("-a");
        }
        // Databases are written in place: with the link kept, one node would write into the cache of all.
        let found = Run::new("find", [&path(directory), "-name", "*.db"]).output()?;
        for database in found.lines().map(PathBuf::from) {
            let copy = database.with_extension("copy");
            fs::copy(&database, &copy).map_err(Error::file(&database))?;
            fs::rename(&copy, &database).map_err(Error::file(&database))?;
        }
        Ok(())
    }
}

fn path(path: &Path) -> String {
    path.display().to_string()
}
