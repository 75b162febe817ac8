//! Which operating-system user the pods' processes run as.
//!
//! PostgreSQL refuses to run as root, so a root `up` needs somebody else. Accounts are read from `/etc/passwd` and not
//! through the C library: in a static binary its name service loads shared objects of whatever version the machine has, and
//! that can crash. Never: a database that runs as root, or a silent choice of an account that the user didn't expect.

use std::path::Path;

/// The accounts tried, in this order, when none is named.
const CANDIDATES: [&str; 2] = ["postgres", "nobody"];

/// The user of the pods' processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunAs {
    /// The account's name.
    pub name: String,
    /// Its user id.
    pub uid: u32,
    /// Its group id.
    pub gid: u32,
    /// Whether processes must change to it, because we are somebody else (root).
    pub switch: bool,
}

/// Why there is no such user.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RunAsError {
    /// The named account isn't there.
    #[error("--postgres-user {name:?}: there is no such account in /etc/passwd; name one that exists and isn't root")]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// PostgreSQL refuses root.
    #[error("--postgres-user {name:?} is root, and PostgreSQL refuses to run as root; name an unprivileged account")]
    IsRoot {
        /// What was asked for.
        name: String,
    },
    /// Only root can become somebody else.
    #[error(
        "--postgres-user {name:?}: only root can start processes as another user; leave the option out or use sudo"
    )]
    NotRoot {
        /// What was asked for.
        name: String,
    },
    /// None of the usual accounts is there.
    #[error(
        "running as root needs an unprivileged account for PostgreSQL, and neither `postgres` nor `nobody` exists; \
             name one with --postgres-user"
    )]
    NoCandidate,
}

impl RunAs {
    /// The user for this process: `wanted` if named, else ourselves, else (as root) the first of the usual accounts.
    pub fn choose(wanted: Option<&str>) -> Result<Self, RunAsError> {
        let passwd = std::fs::read_to_string(Path::new("/etc/passwd")).unwrap_or_default();
        Self::choose_from(&passwd, wanted, nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw())
    }

    fn choose_from(passwd: &str, wanted: Option<&str>, own_uid: u32, own_gid: u32) -> Result<Self, RunAsError> {
        let is_root = own_uid == 0;
        if let Some(name) = wanted {
            let account = lookup(passwd, name).ok_or_else(|| RunAsError::Unknown { name: name.to_owned() })?;
            return match (account.uid, is_root) {
                (0, _) => Err(RunAsError::IsRoot { name: name.to_owned() }),
                (uid, false) if uid != own_uid => Err(RunAsError::NotRoot { name: name.to_owned() }),
                _ => Ok(Self { switch: is_root, ..account }),
            };
        }
        if is_root {
            let found = CANDIDATES.iter().find_map(|name| lookup(passwd, name)).filter(|account| account.uid != 0);
            return found.map(|account| Self { switch: true, ..account }).ok_or(RunAsError::NoCandidate);
        }
        let name = passwd.lines().filter_map(account).find(|a| a.uid == own_uid).map(|a| a.name);
        Ok(Self { name: name.unwrap_or_else(|| own_uid.to_string()), uid: own_uid, gid: own_gid, switch: false })
    }
}

fn lookup(passwd: &str, name: &str) -> Option<RunAs> {
    passwd.lines().filter_map(account).find(|account| account.name == name)
}

fn account(line: &str) -> Option<RunAs> {
    let mut fields = line.split(':');
    let (name, _password) = (fields.next()?, fields.next()?);
    let (uid, gid) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(RunAs { name: name.to_owned(), uid, gid, switch: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n\
                          postgres:x:101:103::/var/lib/postgresql:/bin/bash\nana:x:1000:1000::/home/ana:/bin/bash\n";

    #[test]
    fn root_drops_to_postgres_when_there_is_such_an_account() {
        let user = RunAs::choose_from(PASSWD, None, 0, 0).unwrap();
        assert_eq!((user.name.as_str(), user.uid, user.switch), ("postgres", 101, true));
    }

    #[test]
    fn root_drops_to_nobody_otherwise() {
        let passwd = PASSWD.replace("postgres:", "pg:");
        assert_eq!(RunAs::choose_from(&passwd, None, 0, 0).unwrap().name, "nobody");
    }

    #[test]
    fn everybody_else_stays_who_they_are() {
        let user = RunAs::choose_from(PASSWD, None, 1000, 1000).unwrap();
        assert_eq!((user.name.as_str(), user.switch), ("ana", false));
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_reason() {
        let choose = |name, uid| RunAs::choose_from(PASSWD, Some(name), uid, uid).unwrap_err();
        assert_eq!(choose("ghost", 0), RunAsError::Unknown { name: "ghost".into() });
        assert_eq!(choose("root", 0), RunAsError::IsRoot { name: "root".into() });
        assert_eq!(choose("postgres", 1000), RunAsError::NotRoot { name: "postgres".into() });
        assert_eq!(RunAs::choose_from("root:x:0:0::/:/bin/sh", None, 0, 0), Err(RunAsError::NoCandidate));
    }
}
