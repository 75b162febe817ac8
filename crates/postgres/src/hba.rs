//! Writes `pg_hba.conf`: who may connect, from where, proving it how. The first line that matches decides.
//!
//! Ours come first, so that no line of a user's can weaken them: the superuser on the socket (see `socket`), the
//! replication role by certificate and nothing else, no clear text, the superuser over TLS by password. Then the user's
//! lines. Last, everybody over TLS by password: were it before the user's lines, it would match everything and no line of
//! theirs (a `reject`, an `ldap`) would ever be read.
//!
//! Must never happen: that a line of a user's swallows one of ours (a backslash at its end joins the next line to it), reads a
//! foreign file (`include`), or that a name is read as a keyword.

use std::fmt::Write as _;

use bellwether_core::contract::{REPLICATION_USER, SUPERUSER};

/// The file's name in the data directory.
pub const NAME: &str = "pg_hba.conf";

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// How the client comes.
    pub connection: Connection,
    /// To which databases.
    pub databases: Database,
    /// As whom.
    pub users: User,
    /// How it proves that, or that it can't.
    pub method: Method,
}

/// How a client comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    /// Through the Unix socket.
    Local,
    /// From any address, over TLS.
    HostSsl,
    /// From any address, in clear text.
    HostNoSsl,
    /// From any address.
    Host,
}

/// To which databases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Database {
    /// Any, but not physical replication.
    All,
    /// Physical replication.
    Replication,
    /// One.
    Named(String),
}

/// As whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum User {
    /// Anybody.
    All,
    /// One role.
    Named(String),
}

/// How identity is proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// It is not asked for.
    Trust,
    /// It is refused.
    Reject,
    /// By a password.
    Scram,
    /// By a certificate of the cluster's CA whose common name is the role.
    Cert,
}

/// Why a line can't be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("spec.pgHba[{index}]: {line:?} {problem}")]
pub struct BadLine {
    /// Which of the user's lines, from 0.
    pub index: usize,
    /// The line.
    pub line: String,
    /// What is wrong with it and what to do.
    pub problem: &'static str,
}

/// The text of `pg_hba.conf`.
pub fn render(user_lines: &[String]) -> Result<String, BadLine> {
    let mut text = String::from("# Written by Bellwether; changes here are lost. Use spec.pgHba.\n");
    for rule in ours() {
        push(&mut text, &rule);
    }
    text.push_str("\n# spec.pgHba\n");
    for (index, line) in user_lines.iter().enumerate() {
        check(line).map_err(|problem| BadLine { index, line: line.clone(), problem })?;
        text.push_str(line);
        text.push('\n');
    }
    text.push_str("\n# Everybody else: over TLS, by password\n");
    push(&mut text, &rule(Connection::HostSsl, Database::All, User::All, Method::Scram));
    Ok(text)
}

/// `pg_ident.conf` maps nobody: no method of ours uses a map. Written so that a map of an image's or of an older life of
/// the volume has no effect.
pub const IDENT: &str = "# Kept empty by Bellwether: no rule uses a map.\n";
/// The name of the file for [`IDENT`].
pub const IDENT_NAME: &str = "pg_ident.conf";

fn ours() -> Vec<Rule> {
    use Connection::{Host, HostNoSsl, HostSsl, Local};
    let superuser = || User::Named(SUPERUSER.to_owned());
    let replication = || User::Named(REPLICATION_USER.to_owned());
    vec![
        rule(Local, Database::All, superuser(), Method::Trust),
        // Base backups are taken that way.
        rule(Local, Database::Replication, superuser(), Method::Trust),
        rule(Local, Database::All, User::All, Method::Scram),
        rule(HostSsl, Database::Replication, replication(), Method::Cert),
        rule(HostSsl, Database::All, replication(), Method::Cert),
        // By certificate or not at all: a user's `host all all all md5` must not give this role a second way in.
        rule(Host, Database::Replication, replication(), Method::Reject),
        rule(Host, Database::All, replication(), Method::Reject),
        rule(HostNoSsl, Database::All, User::All, Method::Reject),
        rule(HostNoSsl, Database::Replication, User::All, Method::Reject),
        rule(HostSsl, Database::All, superuser(), Method::Scram),
    ]
}

fn rule(connection: Connection, databases: Database, users: User, method: Method) -> Rule {
    Rule { connection, databases, users, method }
}

fn push(text: &mut String, rule: &Rule) {
    let connection = match rule.connection {
        Connection::Local => "local",
        Connection::HostSsl => "hostssl",
        Connection::HostNoSsl => "hostnossl",
        Connection::Host => "host",
    };
    let databases = match &rule.databases {
        Database::All => "all".to_owned(),
        Database::Replication => "replication".to_owned(),
        Database::Named(name) => quoted(name),
    };
    let users = match &rule.users {
        User::All => "all".to_owned(),
        User::Named(name) => quoted(name),
    };
    let address = if rule.connection == Connection::Local { "" } else { " all" };
    let method = match rule.method {
        Method::Trust => "trust",
        Method::Reject => "reject",
        Method::Scram => "scram-sha-256",
        Method::Cert => "cert",
    };
    writeln!(text, "{connection} {databases} {users}{address} {method}").expect("a String takes any text");
}

/// In double quotes a name is only a name: not `all`, not a group (`+x`), not a file (`@x`).
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

const KINDS: [&str; 6] = ["local", "host", "hostssl", "hostnossl", "hostgssenc", "hostnogssenc"];

/// What is wrong with a user's line. PostgreSQL checks the rest; what is checked here could harm other lines.
fn check(line: &str) -> Result<(), &'static str> {
    if line.contains(['\n', '\r', '\0']) {
        return Err("has a line break in it; write each rule as an item of its own");
    }
    if line.trim_end().ends_with('\\') {
        return Err("ends with a backslash, which would join the next rule to it; remove it");
    }
    if line.matches('"').count() % 2 == 1 {
        return Err("has a quote that is not closed; close it");
    }
    let mut words = line.split_whitespace();
    let Some(kind) = words.next().filter(|word| !word.starts_with('#')) else { return Ok(()) };
    if !KINDS.contains(&kind) {
        return Err(
            "does not begin with local, host, hostssl, hostnossl, hostgssenc or hostnogssenc; begin with one of these",
        );
    }
    if words.clone().any(|word| word.split(',').any(|item| item.starts_with('@'))) {
        return Err("reads names from a file (`@`); write the names themselves");
    }
    // Type, database, user, (address,) method.
    let needed = if kind == "local" { 3 } else { 4 };
    if words.take_while(|word| !word.starts_with('#')).count() < needed {
        return Err("is too short; write type, database, user, address (not for local) and method");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(user_lines: &[&str]) -> Vec<String> {
        let user_lines: Vec<_> = user_lines.iter().map(|&line| line.to_owned()).collect();
        let text = render(&user_lines).unwrap();
        text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
    }

    #[test]
    fn a_users_line_stands_after_ours_and_before_the_last() {
        let lines = lines(&["hostssl all all 10.0.0.0/8 reject"]);
        let at =
            |text: &str| lines.iter().position(|line| line == text).unwrap_or_else(|| panic!("{text} in {lines:?}"));
        let theirs = at("hostssl all all 10.0.0.0/8 reject");
        assert!(at("host all \"bellwether_replication\" all reject") < theirs);
        assert!(at("hostnossl all all all reject") < theirs);
        assert_eq!(theirs + 2, lines.len());
        assert_eq!(lines.last().unwrap(), "hostssl all all all scram-sha-256");
    }

    #[test]
    fn only_the_socket_trusts() {
        for line in lines(&[]) {
            let ours = ["local all \"postgres\" trust", "local replication \"postgres\" trust"];
            assert!(!line.ends_with("trust") || ours.contains(&line.as_str()), "{line}");
        }
    }

    #[test]
    fn a_line_that_could_harm_others_is_refused_by_index() {
        for line in [
            "host all all all trust\nhost x x x trust",
            "host all all all scram-sha-256 \\",
            "host all all all scram-sha-256 \\  ",
            "include /etc/passwd",
            "include_dir /etc",
            "host all @/etc/passwd all md5",
            "host all a,@b all md5",
            "host all \"all all md5",
            "host all all md5",
            "local all trust",
            "hots all all all md5",
        ] {
            let error = render(&["# fine".into(), line.into()]).unwrap_err();
            assert_eq!(error.index, 1, "{error}");
            assert!(error.to_string().starts_with("spec.pgHba[1]: "), "{error}");
        }
    }

    #[test]
    fn a_name_is_never_a_keyword() {
        let mut text = String::new();
        let named = rule(Connection::Local, Database::Named("all".into()), User::Named("a\"b".into()), Method::Reject);
        push(&mut text, &named);
        assert_eq!(text, "local \"all\" \"a\"\"b\" reject\n");
    }
}
