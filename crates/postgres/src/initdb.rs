//! Creates a new, empty database cluster with `initdb`.
//!
//! Must never happen: that it runs on a directory with anything in it (PostgreSQL would refuse too; we say so first, without
//! touching it), or that the superuser's password shows in a process list.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use bellwether_api::v1::{Initdb, LocaleProvider};
use tokio::process::Command;

use crate::file;
use crate::installation::Installation;
use crate::secret::Secret;

/// A new database cluster.
#[derive(Clone, Debug)]
pub struct NewCluster<'a> {
    /// What the user asks for.
    pub spec: &'a Initdb,
    /// Where the data goes: absent or empty.
    pub data_dir: &'a Path,
    /// Where the write-ahead log goes when it has a volume of its own: absent or empty.
    pub wal_dir: Option<&'a Path>,
    /// The superuser's name.
    pub superuser: &'a str,
}

/// The superuser's password in a file, for as long as `initdb` runs. Put it into the run directory, which is in memory.
#[derive(Debug)]
pub struct PasswordFile(PathBuf);

/// Why there is no new database cluster.
#[derive(Debug, thiserror::Error)]
pub enum InitdbError {
    /// There is something already.
    #[error("{dir:?} is not empty: no database is created over what is there")]
    NotEmpty {
        /// The directory.
        dir: PathBuf,
    },
    /// A directory or file can't be used.
    #[error("{path:?}: {source}")]
    Io {
        /// The directory or file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The image has no such locale.
    #[error(
        "spec.bootstrap.initdb.locale: this image has no locale {locale:?}; choose one that `locale -a` lists there \
         (`C` is everywhere), an image that has it, or localeProvider: icu"
    )]
    NoSuchLocale {
        /// The locale.
        locale: String,
    },
    /// The image's user database does not know who we run as; `initdb` insists on a name.
    #[error(
        "the image knows no user by this container's UID, and initdb needs one; set the UID to that of the image's \
         postgres user, or use an image that knows it: {message}"
    )]
    NamelessUser {
        /// What it said.
        message: String,
    },
    /// Something else.
    #[error("initdb failed ({status}): {message}")]
    Failed {
        /// How it ended.
        status: ExitStatus,
        /// What it said last.
        message: String,
    },
}

impl PasswordFile {
    /// Writes it, readable for its owner only.
    pub fn create(dir: &Path, password: &Secret) -> Result<Self, InitdbError> {
        let path = dir.join("initdb-password");
        let content = format!("{}\n", password.expose());
        match file::write_new(&path, content.as_bytes()) {
            Ok(()) => Ok(Self(path)),
            Err(source) => Err(InitdbError::Io { path, source }),
        }
    }
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for PasswordFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "the superuser's password file could not be removed");
        }
    }
}

/// The locale that numbers, dates and the like go by where ICU does only the collation: the one that needs no locale files.
const LIBC_BESIDE_ICU: &str = "C";

impl NewCluster<'_> {
    /// The command, for [`run`].
    pub fn command(&self, installation: &Installation, password: &PasswordFile) -> Command {
        let mut command = Command::new(installation.program("initdb"));
        command.arg("--pgdata").arg(self.data_dir);
        command.arg(format!("--username={}", self.superuser)).arg("--pwfile").arg(password.path());
        // Of no effect for long: our own pg_hba.conf replaces the one made with these. Never `trust`, not for a moment.
        command.args(["--auth-local=scram-sha-256", "--auth-host=scram-sha-256"]);
        command.args(["--encoding=UTF8", "--lc-messages=C", "--no-instructions"]);
        let locale = &self.spec.locale;
        match self.spec.locale_provider {
            LocaleProvider::Libc => {
                command.args(["--locale-provider=libc".to_owned(), format!("--locale={locale}")]);
            }
            LocaleProvider::Icu => {
                command.args(["--locale-provider=icu".to_owned(), format!("--icu-locale={locale}")]);
                command.arg(format!("--locale={LIBC_BESIDE_ICU}"));
            }
        }
        match (self.spec.data_checksums, installation.at_least(18)) {
            (true, _) => drop(command.arg("--data-checksums")),
            // From 18 on they are the default.
            (false, true) => drop(command.arg("--no-data-checksums")),
            (false, false) => {}
        }
        if let Some(wal_dir) = self.wal_dir {
            command.arg("--waldir").arg(wal_dir);
        }
        command
    }

    /// Refuses directories with anything in them.
    pub fn check_empty(&self) -> Result<(), InitdbError> {
        for dir in [Some(self.data_dir), self.wal_dir].into_iter().flatten() {
            match file::is_absent_or_empty(dir) {
                Ok(true) => {}
                Ok(false) => return Err(InitdbError::NotEmpty { dir: dir.to_owned() }),
                Err(source) => return Err(InitdbError::Io { path: dir.to_owned(), source }),
            }
        }
        Ok(())
    }

    /// Creates the cluster.
    pub async fn run(&self, installation: &Installation, password: &PasswordFile) -> Result<(), InitdbError> {
        self.run_command(self.command(installation, password)).await
    }

    /// Creates the cluster with a command that was made by [`NewCluster::command`] and changed by the caller.
    pub async fn run_command(&self, mut command: Command) -> Result<(), InitdbError> {
        self.check_empty()?;
        command.env("LC_ALL", "C").env_remove("PGDATA").stdin(Stdio::null()).kill_on_drop(true);
        let program = PathBuf::from(command.as_std().get_program());
        let output = command.output().await.map_err(|source| InitdbError::Io { path: program, source })?;
        if output.status.success() {
            return Ok(());
        }
        Err(self.explain(output.status, String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }

    fn explain(&self, status: ExitStatus, message: String) -> InitdbError {
        if message.contains("invalid locale name") || message.contains("could not open collator for locale") {
            return InitdbError::NoSuchLocale { locale: self.spec.locale.clone() };
        }
        if message.contains("could not look up effective user ID") {
            return InitdbError::NamelessUser { message };
        }
        InitdbError::Failed { status, message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn installed(major: &str) -> Installation {
        Installation { major: major.into(), full_version: format!("{major}.1"), bin_dir: "/pg/bin".into() }
    }

    fn arguments(major: &str, spec: &Initdb, wal_dir: Option<&str>) -> String {
        let new =
            NewCluster { spec, data_dir: Path::new("/d"), wal_dir: wal_dir.map(Path::new), superuser: "postgres" };
        let dir = tempfile::tempdir().unwrap();
        let password = PasswordFile::create(dir.path(), &Secret::new("hunter2")).unwrap();
        let command = new.command(&installed(major), &password);
        let arguments: Vec<_> = command.as_std().get_args().map(|arg| arg.to_string_lossy().into_owned()).collect();
        arguments.join(" ")
    }

    #[test]
    fn a_cluster_has_checksums_unless_the_user_says_otherwise() {
        let on = Initdb::default();
        let off = Initdb { data_checksums: false, ..Initdb::default() };
        assert!(arguments("15", &on, None).contains("--data-checksums"));
        assert!(!arguments("17", &off, None).contains("checksums"));
        assert!(arguments("18", &off, None).contains("--no-data-checksums"));
    }

    #[test]
    fn icu_takes_the_locale_and_libc_stays_plain() {
        let spec = Initdb { locale_provider: LocaleProvider::Icu, locale: "de-DE".into(), ..Initdb::default() };
        let arguments = arguments("15", &spec, Some("/w"));
        assert!(arguments.contains("--locale-provider=icu --icu-locale=de-DE --locale=C "), "{arguments}");
        assert!(arguments.ends_with("--waldir /w"), "{arguments}");
    }

    #[test]
    fn the_password_is_in_a_private_file_and_gone_after() {
        let dir = tempfile::tempdir().unwrap();
        let password = PasswordFile::create(dir.path(), &Secret::new("hunter2")).unwrap();
        let path = password.path().to_owned();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!arguments("15", &Initdb::default(), None).contains("hunter2"));
        drop(password);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn nothing_is_created_over_what_is_there() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("precious"), "").unwrap();
        let spec = Initdb::default();
        let new = NewCluster { spec: &spec, data_dir: dir.path(), wal_dir: None, superuser: "postgres" };
        let error = new.run_command(Command::new("/bin/false")).await.unwrap_err();
        assert!(matches!(error, InitdbError::NotEmpty { .. }), "{error}");
    }
}
