//! A backup into an S3 server is taken by a standby, restored in a pod of its own under Pod Security `restricted`, and found good; the pod and its volume go.
//! One in which a byte was changed is not found good.

use std::path::{Path, PathBuf};
use std::time::Duration;

use harness::layout::HOST_ADDRESS;
use serde_json::{Value, json};

use crate::failure::{Failure, Outcome, ensure, eventually, same};
use crate::namespace::Namespace;
use crate::s3::{BUCKET, KEY, SECRET, Server};
use crate::world::World;

/// A backup of a new database, and its verification: seconds each, when nobody else needs the machine.
const VERIFIED: Duration = Duration::from_secs(240);
/// What served a verification is gone soon after it.
const GONE: Duration = Duration::from_secs(60);

pub fn taken_and_verified(world: &World) -> Outcome {
    let labels = json!({
        "pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/enforce-version": "latest",
    });
    let namespace = world.labelled_namespace("backup", &labels)?;
    let server = Server::start(HOST_ADDRESS)?;
    namespace.apply(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s3"},
        "stringData": {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET},
    }))?;
    let store = json!({
        "url": format!("s3://{BUCKET}/prod"), "endpoint": format!("http://{}", server.address), "credentials": {"name": "s3"},
    });
    namespace.ready_cluster("demo", &json!({"backup": {"store": store}}))?;
    let first = eventually("a first backup", VERIFIED, || {
        let names = namespace.names(["backups"])?;
        names.into_iter().next().ok_or_else(|| Failure::Wrong("there is none".to_owned()))
    })?;
    let status = reaches(&namespace, &first, "Verified")?;
    let verification = &status["verification"];
    ensure(verification["reachedLsn"].is_string(), || format!("where did recovery end? {status}"))?;
    same("not looked at", &verification["notLookedAt"], &Value::Null)?;
    same("instance", status["instance"] != "demo-1", true)?;
    namespace.says("demo", "BackupVerified", ("True", "AsSpecified"), "restored")?;
    namespace.says("demo", "Archiving", ("True", "AsSpecified"), "")?;
    eventually("its pod and its volume to be gone", GONE, || {
        same("pods", namespace.names(["pods", "-l", "bellwether.dev/verifies"])?, Vec::<String>::new())?;
        let claims = namespace.names(["pvc"])?;
        same("claims", claims, vec!["demo-1-data".to_owned(), "demo-2-data".to_owned(), "demo-3-data".to_owned()])
    })?;

    let mine = json!({
        "apiVersion": "bellwether.dev/v1", "kind": "Backup", "metadata": {"name": "mine"}, "spec": {"cluster": "demo", "verify": false},
    });
    namespace.apply(&mine)?;
    let status = reaches(&namespace, "mine", "Completed")?;
    let id = status["id"].as_str().unwrap_or_default();
    change_a_byte(&pack(server.files(), id)?)?;
    namespace.kubectl(["patch", "backup", "mine", "--type=merge", "-p", r#"{"spec":{"verify":true}}"#]).go()?;
    let status = reaches(&namespace, "mine", "Failed")?;
    let why = status["message"].as_str().unwrap_or_default();
    ensure(why.contains("pack-") && why.contains("damaged"), || format!("{why:?} does not name the object"))?;
    namespace.says("demo", "BackupVerified", ("False", "VerificationFailed"), "damaged").map(drop)
}

/// Waits until a backup is in this phase.
fn reaches(namespace: &Namespace<'_>, name: &str, phase: &str) -> Outcome<Value> {
    eventually(&format!("backup {name} to be {phase}"), VERIFIED, || {
        let status = namespace.get(["backup", name])?["status"].clone();
        ensure(status["phase"] == phase, || status.to_string())?;
        Ok(status)
    })
}

/// The file of a pack of this backup.
fn pack(files: &Path, id: &str) -> Outcome<PathBuf> {
    let failed = |error: std::io::Error| Failure::Wrong(format!("{}: {error}", files.display()));
    let mut open = vec![files.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let of_it = directory.file_name().is_some_and(|parent| parent.to_string_lossy() == id);
            if path.is_dir() {
                open.push(path);
            } else if of_it && name.starts_with("pack-") {
                return Ok(path);
            }
        }
    }
    Err(Failure::Wrong(format!("no pack of {id} is below {}", files.display())))
}

fn change_a_byte(path: &Path) -> Outcome {
    let failed = |error: std::io::Error| Failure::Wrong(format!("{}: {error}", path.display()));
    let mut body = std::fs::read(path).map_err(failed)?;
    let middle = body.len() / 2;
    if let Some(byte) = body.get_mut(middle) {
        *byte ^= 1;
    }
    std::fs::write(path, body).map_err(failed)
}
