//! Starts PostgreSQL on what was unpacked, apart from everything, and says where its recovery ended.
//!
//! Nothing of the original's configuration counts here ([`apart`]), there are none of anybody's libraries, and there is no network.
//!
//! Never: anything outside of the scratch directory changed by a database that is only being looked at.

use std::collections::BTreeMap;
use std::time::Duration;

use bellwether_core::wal::{Lsn, Timeline};
use bellwether_postgres::control;
use bellwether_postgres::sql::POSTGRES_DATABASE;
use bellwether_postgres::wal::forks;

use super::scratch::Scratch;
use super::{Check, VerifyError, program};
use crate::base::protocol::{Connection, ProtocolError, Purpose};
use crate::record::Commit;
use crate::restore::apart;
use crate::restore::recovery::{Along, Including, Recovery, Target, Then};

/// In a directory of its own, any number is free.
pub(super) const PORT: u16 = 5432;
/// How often a server is asked that is not ready.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// How long a server that answers at all may take for a word. Whatever takes longer is ended by the phase's own deadline.
const SILENCE: Duration = Duration::from_secs(24 * 3600);

/// A session as superuser.
pub(super) async fn connect(scratch: &Scratch, database: &str) -> Result<Connection, ProtocolError> {
    Connection::open(scratch.socket_dir(), PORT, Purpose::Database(database), SILENCE).await
}

/// Recovers what was unpacked and lets it accept writes. Where recovery ended, and on which timeline.
pub(super) async fn recover(
    commit: &Commit,
    check: &Check<'_>,
    scratch: &mut Scratch,
) -> Result<(Timeline, Lsn), VerifyError> {
    configure(commit, check, scratch).await?;
    let mut command = program(check, "postgres");
    command.arg("-D").arg(scratch.data());
    scratch.start(command)?;

    let (on, expected) = check.reach.unwrap_or((commit.timeline, commit.stop));
    // First it stays where it is, so that it can be asked; then it goes on, and writes down where it was.
    let paused = "select pg_last_wal_replay_lsn() where pg_get_wal_replay_pause_state() = 'paused'";
    let reached = until_it_answers(scratch, paused).await?;
    let reached = reached.parse().unwrap_or(Lsn(0));
    let finding = |scratch: &Scratch| scratch.finding();
    if reached < expected {
        let (timeline, finding) = (commit.timeline, finding(scratch));
        return Err(VerifyError::NotReached { reached, timeline, expected, on, finding });
    }
    connect(scratch, POSTGRES_DATABASE).await?.query("promote", "select pg_wal_replay_resume()").await?;
    let promoted = "select substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) where not pg_is_in_recovery()";
    let new = until_it_answers(scratch, promoted).await?;
    let new = Timeline(u32::from_str_radix(&new, 16).unwrap_or(0));
    let (timeline, reached) = forks(&scratch.data(), new)?.last().copied().unwrap_or((Timeline(0), Lsn(0)));
    if timeline != on || reached < expected {
        return Err(VerifyError::NotReached { reached, timeline, expected, on, finding: finding(scratch) });
    }
    Ok((timeline, reached))
}

/// Asks until there is a row, and says what is in it; or until the server has ended.
async fn until_it_answers(scratch: &mut Scratch, sql: &str) -> Result<String, VerifyError> {
    loop {
        if scratch.has_ended() {
            return Err(VerifyError::NotRecovered { finding: scratch.finding() });
        }
        let asked = async { connect(scratch, POSTGRES_DATABASE).await?.query("look at recovery", sql).await };
        // While it starts it refuses everybody, and functions that are for the other state are errors: both pass.
        if let Ok([row]) = asked.await.as_deref()
            && let Some(Some(value)) = row.first()
        {
            return Ok(value.clone());
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

async fn configure(commit: &Commit, check: &Check<'_>, scratch: &Scratch) -> Result<(), VerifyError> {
    let data = scratch.data();
    let control = control::read(check.installation, &data).await?;
    let mut settings: BTreeMap<String, String> =
        [("shared_buffers", "64MB"), ("autovacuum", "off"), ("jit", "off"), ("log_checkpoints", "on")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
    settings.extend(check.parameters.clone());
    settings.extend(apart::least(&control));
    settings.extend(apart::owned().chain(owned(scratch)).map(|(name, value)| (name.to_owned(), value)));

    let command = check.restore_command.clone();
    let wal = scratch.wal().display().to_string().replace('%', "%%").replace('\'', r"'\''");
    let own = || format!("cp '{wal}'/%f %p");
    let (target, along) = match check.reach {
        None => (Target::Immediate, commit.timeline),
        Some((timeline, position)) => (Target::Lsn(position, Including::Target), timeline),
    };
    let recovery = Recovery {
        restore_command: command.unwrap_or_else(own),
        target,
        along: Along::Timeline(along),
        then: Then::Pause,
    };
    let lines: String = settings.iter().map(|(name, value)| apart::line(name, value)).collect();
    apart::write(&data, &lines, &recovery, "local all all trust\n")?;
    scratch.give_to(check.run_as).await
}

/// What concerns only a server that is looked at and thrown away.
fn owned(scratch: &Scratch) -> impl Iterator<Item = (&'static str, String)> {
    let fixed = [("listen_addresses", ""), ("restart_after_crash", "off"), ("fsync", "off")];
    let placed = [("port", PORT.to_string()), ("unix_socket_directories", scratch.socket_dir().display().to_string())];
    fixed.into_iter().map(|(name, value)| (name, value.to_owned())).chain(placed)
}
