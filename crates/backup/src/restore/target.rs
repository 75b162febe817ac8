//! The directories that a backup goes into: made before anything else, and closed after everything.
//!
//! What there is stays: every directory has to be absent or empty. Links of tablespaces, and of the log, are made here and nowhere else, so that no
//! path in a pack ever leads through one that came from it. Never: [`MARKER`] removed before everything else is on disk.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};

use bellwether_postgres::file::is_absent_or_empty;

use super::{Configuration, MARKER, Options, RestoreError, apart, io_error};
use crate::record::Tablespace;

/// What only PostgreSQL's own user may enter; it starts in no other.
const PRIVATE: u32 = 0o700;
/// The file that says what a database is. PostgreSQL starts without anything rather than without it.
pub(super) const CONTROL: &str = "global/pg_control";
/// What it is called until everything else is there.
const CONTROL_HELD: &str = "global/pg_control.restoring";

/// The directories of a restore.
#[derive(Debug)]
pub(super) struct Directories {
    pub data: PathBuf,
    /// By OID.
    pub tablespaces: Vec<u32>,
    configuration: Configuration,
    /// Everything that is on a file system of its own, perhaps.
    places: Vec<PathBuf>,
}

impl Directories {
    /// Makes them all, or says why nothing was touched.
    pub(super) fn prepare(
        id: &str,
        data: &Path,
        tablespaces: &[Tablespace],
        options: &Options,
    ) -> Result<Self, RestoreError> {
        let spaces = places_of(data, tablespaces, options)?;
        let places: Vec<_> = [data]
            .into_iter()
            .chain(options.wal_dir.as_deref())
            .chain(spaces.iter().map(|(_, dir)| dir.as_path()))
            .collect();
        for &place in &places {
            check_empty(place)?;
        }
        for &place in &places {
            make(place)?;
        }
        let marker = data.join(MARKER);
        write_synced(&marker, format!("backup {id} is being restored here; this is half a copy\n").as_bytes())
            .and_then(|()| File::open(data)?.sync_all())
            .map_err(|cause| io_error("write", &marker, cause))?;
        if let Some(wal_dir) = &options.wal_dir {
            link(wal_dir, &data.join("pg_wal"))?;
        }
        if !spaces.is_empty() {
            make(&data.join("pg_tblspc"))?;
        }
        for (oid, place) in &spaces {
            link(place, &data.join("pg_tblspc").join(oid.to_string()))?;
        }
        let places = places.into_iter().map(Path::to_owned).collect();
        let (tablespaces, configuration) = (spaces.iter().map(|(oid, _)| *oid).collect(), options.configuration);
        Ok(Self { data: data.to_owned(), tablespaces, configuration, places })
    }

    /// Where a file is written that will be `path`.
    pub(super) fn place_of(&self, path: &Path) -> PathBuf {
        let configures =
            self.configuration == Configuration::Aside && apart::FILES.iter().any(|file| path == Path::new(file));
        if configures {
            return self.data.join(format!("{}{}", path.display(), apart::ORIGINAL));
        }
        self.data.join(if path == Path::new(CONTROL) { Path::new(CONTROL_HELD) } else { path })
    }

    /// Whether a path in a pack is below a tablespace that nobody knows of; one that would be made as a mere directory.
    pub(super) fn is_unknown_tablespace(&self, path: &Path) -> bool {
        let mut parts = path.iter();
        let oid = (parts.next() == Some("pg_tblspc".as_ref())).then(|| parts.next()).flatten();
        oid.is_some_and(|oid| !self.tablespaces.iter().any(|known| oid == known.to_string().as_str()))
    }

    /// Makes everything survive a crash, and then, and only then, look whole.
    pub(super) fn close(&self) -> Result<(), RestoreError> {
        self.sync_all()?;
        let (held, control) = (self.data.join(CONTROL_HELD), self.data.join(CONTROL));
        let global = self.data.join("global");
        fs::rename(&held, &control)
            .and_then(|()| File::open(&global)?.sync_all())
            .map_err(|cause| io_error("write", &control, cause))?;
        let marker = self.data.join(MARKER);
        fs::remove_file(&marker)
            .and_then(|()| File::open(&self.data)?.sync_all())
            .map_err(|cause| io_error("remove", &marker, cause))
    }

    fn sync_all(&self) -> Result<(), RestoreError> {
        self.places.iter().try_for_each(|place| {
            let synced = File::open(place).and_then(|dir| nix::unistd::syncfs(dir).map_err(io::Error::from));
            synced.map_err(|cause| io_error("sync the file system of", place, cause))
        })
    }
}

/// Where each tablespace goes.
fn places_of(data: &Path, tablespaces: &[Tablespace], options: &Options) -> Result<Vec<(u32, PathBuf)>, RestoreError> {
    let known = |oid: u32| tablespaces.iter().any(|space| space.oid == oid);
    if let Some(&oid) = options.tablespaces.keys().find(|&&oid| !known(oid)) {
        return Err(RestoreError::NoSuchTablespace { oid });
    }
    let beside = data.parent().unwrap_or(data).join("tablespaces");
    let place = |oid: u32| options.tablespaces.get(&oid).cloned().unwrap_or_else(|| beside.join(oid.to_string()));
    let places: Vec<_> = tablespaces.iter().map(|space| (space.oid, place(space.oid))).collect();
    // A link to a relative path would lead elsewhere than whoever gave it means.
    let given = [data].into_iter().chain(options.wal_dir.as_deref());
    let relative = given.chain(places.iter().map(|(_, dir)| dir.as_path())).find(|dir| !dir.is_absolute());
    if let Some(dir) = relative {
        return Err(RestoreError::Relative { dir: dir.to_owned() });
    }
    Ok(places)
}

fn check_empty(dir: &Path) -> Result<(), RestoreError> {
    match is_absent_or_empty(dir) {
        Ok(true) => Ok(()),
        Ok(false) => Err(RestoreError::NotEmpty { dir: dir.to_owned(), half: dir.join(MARKER).exists() }),
        Err(cause) => Err(io_error("look into", dir, cause)),
    }
}

/// A directory of PostgreSQL's; one that is there already is closed to others.
fn make(dir: &Path) -> Result<(), RestoreError> {
    let made = DirBuilder::new().recursive(true).mode(PRIVATE).create(dir);
    made.and_then(|()| fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(PRIVATE)))
        .map_err(|cause| io_error("make", dir, cause))
}

fn link(to: &Path, at: &Path) -> Result<(), RestoreError> {
    symlink(to, at).map_err(|cause| io_error("link", at, cause))
}

fn write_synced(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn space(oid: u32) -> Tablespace {
        Tablespace { oid, location: "/there".to_owned() }
    }

    #[test]
    fn a_tablespace_without_a_place_of_its_own_goes_beside_the_data() {
        let options = Options { tablespaces: BTreeMap::from([(2, "/fast".into())]), ..Options::default() };
        let places = places_of(Path::new("/pg/data"), &[space(1), space(2)], &options).unwrap();
        assert_eq!(places, [(1, "/pg/tablespaces/1".into()), (2, "/fast".into())]);
    }

    #[test]
    fn a_place_that_depends_on_where_somebody_stands_is_refused() {
        for (data, space_dir) in [("data", "/x"), ("/data", "x")] {
            let options = Options { tablespaces: BTreeMap::from([(1, space_dir.into())]), ..Options::default() };
            let refused = places_of(Path::new(data), &[space(1)], &options);
            assert!(matches!(refused, Err(RestoreError::Relative { .. })));
        }
    }

    #[test]
    fn a_place_for_a_tablespace_that_is_not_there_is_a_mistake() {
        let options = Options { tablespaces: BTreeMap::from([(3, "/x".into())]), ..Options::default() };
        let refused = places_of(Path::new("/data"), &[space(1)], &options);
        assert!(matches!(refused, Err(RestoreError::NoSuchTablespace { oid: 3 })));
    }

    #[test]
    fn nothing_is_touched_when_one_directory_is_not_empty() {
        let base = tempfile::tempdir().unwrap();
        let (data, wal) = (base.path().join("data"), base.path().join("wal"));
        fs::create_dir(&wal).unwrap();
        fs::write(wal.join("000000010000000000000001"), "precious").unwrap();
        let options = Options { wal_dir: Some(wal.clone()), ..Options::default() };
        let refused = Directories::prepare("x", &data, &[], &options);
        assert!(matches!(refused, Err(RestoreError::NotEmpty { dir, half: false }) if dir == wal));
        assert!(!data.exists());
    }
}
