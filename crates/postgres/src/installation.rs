//! Finds the PostgreSQLs that are installed, by asking each `postgres` it meets for its version.
//!
//! A directory's name is never believed: distributions rename, people link. Of two installations of one major version the
//! first place wins, in the order of [`places`].

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Directories of programs to look into before all others, separated by `:`.
pub const OVERRIDE: &str = "BELLWETHER_PG_BIN_DIRS";

/// The programs that we run; a directory without all of them is no installation (client packages have only some).
const NEEDED: [&str; 4] = ["postgres", "initdb", "pg_controldata", "pg_basebackup"];

/// A PostgreSQL on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    /// The major version, as users write it: `17`.
    pub major: String,
    /// The full version: `17.6`.
    pub full_version: String,
    /// Where its programs are.
    pub bin_dir: PathBuf,
}

/// The version that was asked for is not installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotInstalled {
    /// The major version that was asked for.
    pub asked: String,
    /// What there is.
    pub found: Vec<Installation>,
}

impl std::error::Error for NotInstalled {}

impl fmt::Display for NotInstalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgreSQL {} is not installed here; ", self.asked)?;
        if self.found.is_empty() {
            return write!(f, "no PostgreSQL is. Install one, or name its directory in {OVERRIDE}");
        }
        f.write_str("there is ")?;
        for (n, found) in self.found.iter().enumerate() {
            let comma = if n == 0 { "" } else { ", " };
            write!(f, "{comma}{} ({} in {})", found.major, found.full_version, found.bin_dir.display())?;
        }
        write!(f, ". Set spec.version to one of these, or install {}", self.asked)
    }
}

impl Installation {
    /// Asks the `postgres` in a directory what it is; `None` when there is no complete installation.
    pub fn at(bin_dir: &Path) -> Option<Self> {
        if !NEEDED.iter().all(|program| bin_dir.join(program).is_file()) {
            return None;
        }
        let output =
            Command::new(bin_dir.join("postgres")).arg("--version").stdin(Stdio::null()).env("LC_ALL", "C").output();
        let output = output.ok().filter(|output| output.status.success())?;
        let (major, full_version) = parse_version(std::str::from_utf8(&output.stdout).ok()?)?;
        Some(Self { major, full_version, bin_dir: bin_dir.to_owned() })
    }
    /// The path of one of its programs.
    pub fn program(&self, name: &str) -> PathBuf {
        self.bin_dir.join(name)
    }
    /// Whether it is at least this major version.
    pub fn at_least(&self, major: u32) -> bool {
        self.major.parse::<u32>().is_ok_and(|own| own >= major)
    }
}

/// All installations, one for each major version, oldest first.
pub fn find_all() -> Vec<Installation> {
    find_in(&places())
}

/// The installation of a major version.
pub fn find(major: &str) -> Result<Installation, NotInstalled> {
    choose(major, find_all())
}

/// All installations in these directories, one for each major version (the first), oldest first.
pub fn find_in(places: &[PathBuf]) -> Vec<Installation> {
    let mut found: Vec<Installation> = vec![];
    for installation in places.iter().filter_map(|dir| Installation::at(dir)) {
        if !found.iter().any(|known| known.major == installation.major) {
            found.push(installation);
        }
    }
    found.sort_by_key(|installation| installation.major.parse::<u32>().unwrap_or(u32::MAX));
    found
}

fn choose(major: &str, found: Vec<Installation>) -> Result<Installation, NotInstalled> {
    match found.iter().find(|installation| installation.major == major) {
        Some(installation) => Ok(installation.clone()),
        None => Err(NotInstalled { asked: major.to_owned(), found }),
    }
}

/// Where to look: what the user says, then where packages put it, then `$PATH`.
fn places() -> Vec<PathBuf> {
    let listed = |variable| std::env::var_os(variable).map(|list| std::env::split_paths(&list).collect::<Vec<_>>());
    let mut places = listed(OVERRIDE).unwrap_or_default();
    for supported in bellwether_api::versions::SUPPORTED {
        let major = supported.major;
        places.push(format!("/usr/lib/postgresql/{major}/bin").into());
        places.push(format!("/usr/pgsql-{major}/bin").into());
        places.push(format!("/opt/homebrew/opt/postgresql@{major}/bin").into());
        places.push(format!("/usr/local/opt/postgresql@{major}/bin").into());
    }
    places.push("/usr/local/pgsql/bin".into());
    places.push("/usr/local/bin".into());
    places.extend(listed("PATH").unwrap_or_default());
    places
}

/// From `postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)`: major and full version. `18beta1` is an 18.
fn parse_version(output: &str) -> Option<(String, String)> {
    let full = output.trim().strip_prefix("postgres (PostgreSQL) ")?.split_whitespace().next()?;
    let major: String = full.chars().take_while(char::is_ascii_digit).collect();
    (!major.is_empty()).then(|| (major, full.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn installed(major: &str, full: &str) -> Installation {
        Installation { major: major.into(), full_version: full.into(), bin_dir: format!("/pg/{major}").into() }
    }

    #[test]
    fn versions_read_as_distributions_write_them() {
        let read = |text| parse_version(text).map(|(major, full)| format!("{major} {full}"));
        assert_eq!(read("postgres (PostgreSQL) 17.6\n").unwrap(), "17 17.6");
        assert_eq!(read("postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)\n").unwrap(), "15 15.14");
        assert_eq!(read("postgres (PostgreSQL) 18beta2\n").unwrap(), "18 18beta2");
        assert_eq!(read("psql (PostgreSQL) 17.6\n"), None);
        assert_eq!(read("postgres (PostgreSQL) devel\n"), None);
    }

    #[test]
    fn a_missing_version_says_what_is_there_and_what_to_do() {
        let error = choose("17", vec![installed("15", "15.14"), installed("18", "18.1")]).unwrap_err().to_string();
        assert_eq!(
            error,
            "PostgreSQL 17 is not installed here; there is 15 (15.14 in /pg/15), 18 (18.1 in /pg/18). \
             Set spec.version to one of these, or install 17"
        );
        assert!(choose("17", vec![]).unwrap_err().to_string().contains(OVERRIDE));
    }

    #[test]
    fn a_directory_without_a_server_is_no_installation() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Installation::at(dir.path()), None);
    }
}
