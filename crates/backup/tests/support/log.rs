//! A `pg_wal` with segments that look like PostgreSQL's, and real ones.

use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;

use bellwether_backup::record::{FORMAT, Owner};
use bellwether_backup::store::Put;
use bellwether_backup::wal::{Archive, WalError, push};
use bellwether_backup::{Store, WalFile};
use bellwether_core::wal::SystemIdentifier;
use bellwether_postgres::installation;
use nix::unistd::{User, geteuid};
use tempfile::TempDir;

/// The smallest that PostgreSQL has.
pub const SIZE: u64 = 1 << 20;
pub const SYSTEM: u64 = 7_459_982_111_223_344_556;
pub const LEVEL: i32 = 3;

pub fn owner(system: u64) -> Owner {
    Owner {
        format: FORMAT,
        system_identifier: SystemIdentifier(system),
        incarnation: "3f1c7a9e-one".to_owned(),
        namespace: "shop".to_owned(),
        cluster: "main".to_owned(),
    }
}

pub async fn archive(store: &Store) -> Archive {
    Archive::open_or_create(store, owner(SYSTEM)).await.unwrap()
}

/// A segment of timeline 1.
pub fn segment(number: u64) -> WalFile {
    format!("00000001{:08X}{:08X}", number / 4096, number % 4096).parse().unwrap()
}

/// What PostgreSQL could have written into it. Half of it does not compress.
pub fn contents(number: u64, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; SIZE as usize];
    let mut state = seed.wrapping_add(number).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    for byte in &mut bytes[40..SIZE as usize / 2] {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *byte = state as u8;
    }
    let mut put = |from: usize, field: &[u8]| bytes[from..from + field.len()].copy_from_slice(field);
    put(0, &0xD116_u16.to_ne_bytes());
    put(2, &0x0002_u16.to_ne_bytes());
    put(4, &1_u32.to_ne_bytes());
    put(8, &(number * SIZE).to_ne_bytes());
    put(24, &SYSTEM.to_ne_bytes());
    put(32, &(SIZE as u32).to_ne_bytes());
    put(36, &8192_u32.to_ne_bytes());
    bytes
}

/// A `pg_wal` with these segments, ready to be archived.
pub fn pg_wal(numbers: std::ops::Range<u64>) -> TempDir {
    let dir = tempfile::Builder::new().prefix("bw-wal-").tempdir().unwrap();
    std::fs::create_dir(dir.path().join("archive_status")).unwrap();
    for number in numbers {
        let name = segment(number).to_string();
        std::fs::write(dir.path().join(&name), contents(number, 0)).unwrap();
        std::fs::write(dir.path().join(format!("archive_status/{name}.ready")), "").unwrap();
    }
    dir
}

/// Where segments are restored to.
pub fn place() -> TempDir {
    tempfile::Builder::new().prefix("bw-restored-").tempdir().unwrap()
}

/// What is in a directory.
pub fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

pub async fn pushed(archive: &Archive, wal: &Path, file: WalFile) -> Result<Put, WalError> {
    Ok(push(archive, file, &wal.join(file.to_string()), SIZE, LEVEL).await?.put)
}

/// A database that was just made, with segments of [`SIZE`]: one of them, and which database that is.
pub fn initdb() -> (TempDir, PathBuf, WalFile, SystemIdentifier) {
    let dir = tempfile::Builder::new().prefix("bw-pg-").tempdir_in("/tmp").unwrap();
    let installation = installation::find_all().pop().expect("PostgreSQL is installed");
    let data = dir.path().join("data");
    let mut command = Command::new(installation.program("initdb"));
    command.args(["--no-sync", "--wal-segsize=1", "--auth=trust", "-D"]).arg(&data);
    as_postgres(&mut command, dir.path());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let control = Command::new(installation.program("pg_controldata")).env("LC_ALL", "C").arg(&data).output().unwrap();
    let control = String::from_utf8(control.stdout).unwrap();
    let value = |what: &str| {
        let line = control.lines().find(|line| line.starts_with(what)).unwrap();
        line.split_once(':').unwrap().1.trim().to_owned()
    };
    let system = value("Database system identifier").parse().unwrap();
    let name = value("Latest checkpoint's REDO WAL file");
    let path = data.join("pg_wal").join(&name);
    (dir, path, name.parse().unwrap(), system)
}

/// PostgreSQL's programs refuse to run as root.
fn as_postgres(command: &mut Command, dir: &Path) {
    use std::os::unix::process::CommandExt as _;
    if geteuid().is_root() {
        let user = User::from_name("postgres").unwrap().expect("there is a user postgres");
        chown(dir, Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw()).current_dir("/");
    }
}
