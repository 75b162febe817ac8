//! What it takes to get into an archive, as a file says it: no secret is ever an argument.
//!
//! The file may hold the settings themselves, and is then for its owner's eyes only; or name a directory with a file for each, as a Secret is mounted; or say nothing of them, and
//! they come from the environment. Never: a file with credentials used that others can read; a value in a message.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use bellwether_backup::store::LocationError;
use bellwether_backup::{Location, Store};
use serde::{Deserialize, Serialize};

use crate::archive::place;

/// How long a store that is down is waited for unless the file says otherwise: as long as somebody takes who is called and looks.
const WAIT_SECONDS: u64 = 300;

/// An archive, and how to get in.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Access {
    /// The store's address.
    pub url: String,
    /// The archive's directory in it.
    pub archive: String,
    /// Bytes in a segment of its log.
    pub segment_size: u64,
    /// Credentials and what else there is to say, by the names of the environment. Without these and a directory of them, the environment itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<BTreeMap<String, String>>,
    /// A directory with a file for each of them, and `ca.crt` perhaps, as a Secret is mounted. It is read each time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<PathBuf>,
    /// The authority of the store's certificate, in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    /// How long a store that is down is waited for before recovery is broken off.
    #[serde(default = "wait_seconds")]
    pub wait_seconds: u64,
}

fn wait_seconds() -> u64 {
    WAIT_SECONDS
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("url", &self.url).field("archive", &self.archive).finish_non_exhaustive()
    }
}

/// Why there is no way in.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// A file can't be read or written.
    #[error("{}: {cause}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What came back.
        cause: io::Error,
    },
    /// It can't be understood.
    #[error("{}: line {line}, column {column}: it is not what `restore-wal` needs", path.display())]
    Malformed {
        /// Which.
        path: PathBuf,
        /// Where.
        line: usize,
        /// Where in the line.
        column: usize,
    },
    /// Others can read the credentials in it.
    #[error("{}: others can read it, and there are credentials in it: chmod 600 {}", path.display(), path.display())]
    Open {
        /// Which.
        path: PathBuf,
    },
    /// Both say what the settings are.
    #[error("{}: settings, and a directory of credentials: leave one of them out", path.display())]
    Both {
        /// Which.
        path: PathBuf,
    },
    /// What it says is no store.
    #[error(transparent)]
    Location(#[from] LocationError),
}

fn io(path: &Path) -> impl FnOnce(io::Error) -> AccessError {
    let path = path.to_owned();
    move |cause| AccessError::Io { path, cause }
}

impl Access {
    /// To this archive, with settings; how long to wait is the usual.
    pub fn to(url: &str, archive: &str, segment_size: u64, settings: Option<BTreeMap<String, String>>) -> Self {
        let (url, archive) = (url.to_owned(), archive.to_owned());
        Self { url, archive, segment_size, settings, credentials: None, ca: None, wait_seconds: WAIT_SECONDS }
    }

    /// From a file.
    pub fn read(path: &Path) -> Result<Self, AccessError> {
        let text = fs::read(path).map_err(io(path))?;
        // What serde says may quote what stands there.
        let access: Self = serde_json::from_slice(&text).map_err(|error| AccessError::Malformed {
            path: path.to_owned(),
            line: error.line(),
            column: error.column(),
        })?;
        if access.settings.is_some() && access.credentials.is_some() {
            return Err(AccessError::Both { path: path.to_owned() });
        }
        let secret = access.settings.as_ref().is_some_and(|settings| !settings.is_empty());
        let mode = fs::metadata(path).map_err(io(path))?.permissions().mode();
        if secret && mode & 0o077 != 0 {
            return Err(AccessError::Open { path: path.to_owned() });
        }
        Ok(access)
    }

    /// Into a new file, which nobody else can read.
    pub fn write(&self, path: &Path) -> Result<(), AccessError> {
        let text = serde_json::to_vec_pretty(self).map_err(|error| io(path)(error.into()))?;
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let written = file.and_then(|mut file| file.write_all(&text).and_then(|()| file.sync_all()));
        written.map_err(io(path))
    }

    /// The archive.
    pub fn open(&self) -> Result<Store, AccessError> {
        // A directory that is to be written to would be made; this one has to be there.
        if let Some(directory) = self.url.strip_prefix("file://").map(Path::new) {
            fs::read_dir(directory).map_err(io(directory))?;
        }
        let location = match (&self.settings, &self.credentials) {
            (Some(settings), _) => Location::new(&self.url, settings.clone(), self.ca.as_deref())?,
            (None, Some(directory)) => {
                let mut settings = place::mounted(directory).map_err(io(directory))?;
                let ca = settings.remove(place::AUTHORITY).or_else(|| self.ca.clone());
                Location::new(&self.url, settings, ca.as_deref())?
            }
            (None, None) => Location::from_env(&self.url)?,
        };
        Ok(Store::open(&location)?.below(&self.archive))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access() -> Access {
        let settings =
            [("AWS_ENDPOINT", "http://127.0.0.1:1"), ("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "hunter2")];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        Access::to("s3://backups/prod", "7-one", 16 << 20, Some(settings))
    }

    #[test]
    fn it_reads_as_it_was_written_and_is_for_its_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("access.json");
        access().write(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Access::read(&path).unwrap(), access());
        assert_eq!(Access::read(&path).unwrap().open().unwrap().to_string(), "s3://backups/prod/7-one");
        assert!(access().write(&path).is_err(), "nothing is written over");
        assert!(!format!("{:?}", access()).contains("hunter2"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let refused = Access::read(&path).unwrap_err().to_string();
        assert!(refused.contains("others can read it") && refused.contains("chmod 600"), "{refused}");
    }

    #[test]
    fn a_mounted_secret_is_read_as_it_is_now() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("..2026")).unwrap();
        for (name, value) in &access().settings.unwrap() {
            fs::write(dir.path().join(name), value).unwrap();
        }
        let mounted = Access { settings: None, credentials: Some(dir.path().to_owned()), ..access() };
        mounted.open().unwrap();
        fs::remove_file(dir.path().join("AWS_ACCESS_KEY_ID")).unwrap();
        let refused = mounted.open().unwrap_err().to_string();
        assert!(refused.contains("AWS_ACCESS_KEY_ID is missing") && !refused.contains("hunter2"), "{refused}");
    }

    #[test]
    fn what_can_not_be_understood_is_not_quoted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("access.json");
        for text in [r#"{"url": "s3://b", "secret": "hunter2"}"#, r#"{"settings": "hunter2"}"#, ""] {
            fs::write(&path, text).unwrap();
            let refused = Access::read(&path).unwrap_err().to_string();
            assert!(refused.contains("access.json: line") && !refused.contains("hunter2"), "{refused}");
        }
    }
}
