//! What PostgreSQL calls while it recovers, for each file of the log that it needs: puts the file there, or says that there is none.
//!
//! PostgreSQL ends recovery, and takes what it has for all there is, where it hears "there is none". So that is said of nothing but an object that a store which works does not have.
//! A store that is down is waited for; what then still can't be read, or is damaged, breaks recovery off: PostgreSQL stops, and goes on from there when it is started again.
//!
//! | exit code | PostgreSQL |
//! |---|---|
//! | 0 | replays it |
//! | 1 | takes it for the end of the log |
//! | more than 125 | stops: [`AWAY`], [`DAMAGED`] |
//!
//! Never: "there is none" said of what could not be looked at; a part of a file; a secret in an argument.

pub mod access;
mod helper;

pub(crate) use helper::DIRECTORY as AHEAD;

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use bellwether_backup::layout::OWNER;
use bellwether_backup::wal::{self, WalError};
use bellwether_backup::{Store, WalFile};

use super::command::word;
use access::Access;

/// The hidden role's name: `bellwether restore-wal <access> <file> <destination>`.
pub const ROLE: &str = "restore-wal";

/// There is none.
const ABSENT: u8 = 1;
/// It could not be looked at for as long as anybody waits. More than 125 ends recovery with an error; 126 and 127 are a shell's, and signals are lower.
pub const AWAY: u8 = 200;
/// It is damaged, or we were called as nobody should call us.
pub const DAMAGED: u8 = 201;

/// Between two attempts at a store that is down: the first soon, for most of what fails is over at once.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The value of `restore_command` that calls this.
pub fn line(program: &Path, access: &Path) -> String {
    format!("{} {ROLE} {} %f %p", word(program), word(access))
}

/// The value of `recovery_end_command` that removes what is of no use once recovery is over: the file with the credentials.
pub fn end_line(access: &Path) -> String {
    format!("rm -f -- {}", word(access))
}

/// Gets the file named in `args`, after the file that says how; its destination is the third.
pub fn main(args: &[String]) -> ExitCode {
    let got = match args {
        [helper, rest @ ..] if helper == helper::HELPER => return helper::main(rest),
        [access, file, destination] => get(Path::new(access), file, Path::new(destination)),
        _ => Err(
            "a file that says how to get into the archive, the name of a file of the log, and a destination are needed"
                .into(),
        ),
    };
    match got {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ABSENT.into(),
        Err(Broken { code, why }) => {
            say(&why);
            code.into()
        }
    }
}

/// Why a file is not there, and what is said of that.
#[derive(Debug)]
struct Broken {
    code: u8,
    why: String,
}

impl<T: std::fmt::Display> From<T> for Broken {
    fn from(why: T) -> Self {
        Self { code: DAMAGED, why: why.to_string() }
    }
}

/// PostgreSQL puts it into its log.
fn say(what: &str) {
    let _ = writeln!(std::io::stderr(), "bellwether {ROLE}: {what}");
}

fn get(access: &Path, file: &str, destination: &Path) -> Result<bool, Broken> {
    let file: WalFile = file.parse()?;
    let destination = std::path::absolute(destination)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (began, mut pause) = (Instant::now(), FIRST_PAUSE);
    loop {
        // Whatever it does not do is done without it, and with what the file says now.
        if helper::ask(access, file, &destination) {
            return Ok(true);
        }
        let how = Access::read(access)?;
        let archive = how.open()?;
        let error = match runtime.block_on(look(&archive, file, &destination)) {
            Err(error) if error.is_transient() => error.to_string(),
            looked => return Ok(looked?),
        };
        let wait = Duration::from_secs(how.wait_seconds);
        if began.elapsed() + pause > wait {
            let why = format!("{error}; waited for {} s", began.elapsed().as_secs());
            return Err(Broken { code: AWAY, why });
        }
        if pause == FIRST_PAUSE {
            say(&format!("{error}; it is tried again for {} s", wait.as_secs()));
        }
        sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Puts a file there; `false` when the archive does not have it. A place in which there is no archive says nothing of what an archive has.
async fn look(archive: &Store, file: WalFile, destination: &Path) -> Result<bool, WalError> {
    Ok(wal::fetch(archive, file, destination).await? || {
        archive.get(OWNER).await?;
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_shell_reads_the_lines_as_they_are_meant() {
        let access = Path::new("/srv/100%/it's/bellwether.restore.json");
        let line = line(Path::new("/opt/a b/bellwether"), access);
        assert_eq!(line, r"'/opt/a b/bellwether' restore-wal '/srv/100%%/it'\''s/bellwether.restore.json' %f %p");
        assert_eq!(end_line(access), r"rm -f -- '/srv/100%%/it'\''s/bellwether.restore.json'");
    }

    #[test]
    fn whatever_is_not_a_look_into_the_archive_is_not_the_end_of_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let (access, there) = (dir.path().join("access.json"), dir.path().join("RECOVERYXLOG"));
        let segment = "000000010000000000000002";
        assert!(get(&access, segment, &there).unwrap_err().why.contains("access.json"));
        let nowhere = Access::to("file:///dev/null/store", "7-one", 16 << 20, Some([].into()));
        nowhere.write(&access).unwrap();
        assert!(get(&access, segment, &there).unwrap_err().why.contains("/dev/null/store"));
        fs::remove_file(&access).unwrap();
        Access::to(&format!("file://{}", dir.path().display()), "7-one", 16 << 20, Some([].into()))
            .write(&access)
            .unwrap();
        let error = get(&access, segment, &there).unwrap_err().why;
        assert!(error.contains("owner.json is not there"), "a place where there is no archive: {error}");
        assert!(get(&access, "RECOVERYXLOG", &there).unwrap_err().why.contains("is not the name of"));
        assert!(!there.exists());
    }
}
