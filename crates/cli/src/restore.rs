//! `bellwether restore`: a data directory from a store alone, which recovers to the moment that was asked for when PostgreSQL is started on it.
//!
//! Nothing is started. In order: look whether the target can be reached, and what is needed here is here; unpack; write down the recovery. Never: anything made, or touched, for a
//! target that is known to be out of reach; a directory with something in it written to; a setting of the original's in effect.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bellwether_agent::archive::restore_wal;
use bellwether_agent::archive::restore_wal::access::{Access, AccessError};
use bellwether_backup::catalog::Backup;
use bellwether_backup::record::Commit;
use bellwether_backup::restore::choose::{AtGap, Choice, Unreachable, Wanted, choose};
use bellwether_backup::restore::owner::RunAs;
use bellwether_backup::restore::ready::{Door, ReadyError, Standing, make_ready, socket_dir};
use bellwether_backup::restore::recovery::{Along, Including, Recovery, Target, Then};
use bellwether_backup::restore::{Configuration, Options, Progress, RestoreError, unpack};
use bellwether_core::contract::SUPERUSER;
use bellwether_core::words;
use bellwether_embedded::run_as::{self, RunAsError};
use bellwether_postgres::Installation;
use k8s_openapi::jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::archive::{Archive, ArchiveError, NotInstalled, installed};
use crate::args::{self, Which};
use crate::cluster::told;
use crate::output::{self, Tone, paint, transfer};

/// How `restore_command` gets into the archive. PostgreSQL removes it when it has recovered.
const ACCESS: &str = "bellwether.restore.json";

/// Why there is no restored directory.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error("{0}{hint}", hint = if .0.is_for_a_gap() { "\n--up-to-gap recovers to the gap, and does without what comes after it" } else { "" })]
    Unreachable(#[from] Unreachable),
    #[error(transparent)]
    NotInstalled(#[from] NotInstalled),
    #[error(transparent)]
    RunAs(#[from] RunAsError),
    #[error("--target-name {name:?}: a name has no line break in it, and 63 bytes at most")]
    Name { name: String },
    #[error("--to {}: the directory that it would be in is not there; make it first", .0.display())]
    NoParent(PathBuf),
    #[error(transparent)]
    Restore(#[from] RestoreError),
    #[error(transparent)]
    Ready(#[from] ReadyError),
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error(
        "PostgreSQL will run as {account}, and fetches the log with {}, which {account} may not execute: put it where \
         everybody may, such as /usr/local/bin, and run that", program.display()
    )]
    NotExecutable { account: String, program: PathBuf },
    #[error("{what}: {cause}")]
    Io { what: String, cause: std::io::Error },
    #[error("broken off; {} has half a copy in it, which PostgreSQL does not start on: remove it", .0.display())]
    BrokenOff(PathBuf),
}

/// Restores.
pub fn run(options: &args::Restore) -> ExitCode {
    told(restored(options))
}

async fn restored(options: &args::Restore) -> Result<String, Refused> {
    let target = target(&options.target)?;
    let to = absolute(&options.to)?;
    let wal_dir = options.wal_directory.as_deref().map(absolute).transpose()?;
    let user = run_as::RunAs::choose(options.postgres_user.as_deref())?;
    let archive = Archive::find(&options.source).await?;
    let catalog = archive.catalog().await?;
    let wanted = Wanted {
        target,
        way: options.timeline.0,
        at_gap: if options.up_to_gap { AtGap::Stop } else { AtGap::Refuse },
        backup: match &options.backup {
            Which::Latest => None,
            Which::Id(id) => Some(id.clone()),
        },
        now: Timestamp::now(),
    };
    let choice = choose(&catalog, &wanted)?;
    let commit = archive.commit(&choice.backup.commit.id).await?;
    let installation = installed(&commit)?;
    if let Some(parent) = to.parent().filter(|parent| !parent.is_dir()) {
        return Err(Refused::NoParent(parent.to_owned()));
    }
    let program = std::env::current_exe().map_err(|cause| Refused::Io { what: "our own program".to_owned(), cause })?;
    if user.switch && !may_execute(&program, user.uid, user.gid) {
        return Err(Refused::NotExecutable { account: user.name, program });
    }
    plan(&archive, &choice, &wanted.target).iter().for_each(|line| output::line(line));

    let began = Instant::now();
    let progress = watch::Sender::new(Progress::default());
    let places = Options { wal_dir: wal_dir.clone(), configuration: Configuration::Aside, ..Options::default() };
    let unpacking = unpack(&commit, &archive.store, &to, &places, &progress);
    tokio::select! {
        unpacked = transfer::shown(unpacking, &progress, "unpacked; it is written to disk") => unpacked?,
        () = output::signal() => return Err(Refused::BrokenOff(to)),
    }
    let took = began.elapsed().as_secs_f64();
    output::line(&format!("unpacked {} into {} in {took:.1} s", words::size(commit.bytes), to.display()));

    let access = access(&archive, &commit, &to)?;
    let recovery = Recovery {
        restore_command: restore_wal::line(&program, &access),
        target: wanted.target.clone(),
        along: Along::Timeline(choice.window.timeline),
        then: Then::Promote,
    };
    let standing = Standing {
        installation: &installation,
        port: options.port,
        door: Door::Machine,
        recovery,
        end_command: restore_wal::end_line(&access),
        run_as: user.switch.then_some(RunAs { uid: user.uid, gid: user.gid }),
        outside: outside(&commit, &to, wal_dir),
    };
    make_ready(&commit, &to, &standing).await?;
    let account = user.switch.then_some(user.name.as_str());
    Ok(next(&to, &access, &installation, options.port, account).join("\n"))
}

fn absolute(path: &Path) -> Result<PathBuf, Refused> {
    std::path::absolute(path).map_err(|cause| Refused::Io { what: path.display().to_string(), cause })
}

/// Whether an account may execute a file: it has to get through every directory on the way, too. Groups that it is in besides its own are not known here.
fn may_execute(program: &Path, uid: u32, gid: u32) -> bool {
    let may = |path: &Path| {
        std::fs::metadata(path).is_ok_and(|found| {
            let bits = if found.uid() == uid {
                found.mode() >> 6
            } else if found.gid() == gid {
                found.mode() >> 3
            } else {
                found.mode()
            };
            bits & 1 != 0
        })
    };
    program.ancestors().filter(|path| !path.as_os_str().is_empty()).all(may)
}

/// The longest name that PostgreSQL gives a restore point.
const LONGEST_NAME: usize = 63;

fn target(given: &args::Target) -> Result<Target, Refused> {
    let including = if given.exclusive { Including::JustBefore } else { Including::Target };
    Ok(match given {
        args::Target { target_time: Some(at), .. } => Target::Time(*at, including),
        args::Target { target_lsn: Some(at), .. } => Target::Lsn(*at, including),
        args::Target { target_xid: Some(xid), .. } => Target::Xid(*xid, including),
        args::Target { target_name: Some(name), .. }
            if name.len() > LONGEST_NAME || name.contains(['\n', '\r', '\0']) =>
        {
            return Err(Refused::Name { name: name.clone() });
        }
        args::Target { target_name: Some(name), .. } => Target::Name(name.clone()),
        _ => Target::Latest,
    })
}

/// What will be done, and what nobody can know before.
fn plan(archive: &Archive, Choice { backup, window }: &Choice<'_>, target: &Target) -> Vec<String> {
    let Backup { commit, verified, .. } = backup;
    let good = match verified {
        Some(verified) => format!("found good on {}", verified.verified.strftime("%F")),
        None => "not verified yet".to_owned(),
    };
    let mut lines = vec![format!(
        "backup {} of {}: PostgreSQL {}, {}, {good}",
        paint(commit.id.as_str(), Tone::Strong),
        archive.cluster(),
        commit.postgres_version,
        words::size(commit.bytes)
    )];
    let to = match target {
        Target::Latest | Target::Immediate => format!("the end of the log, {}", window.to),
        Target::Time(at, including) => format!("what was committed {} {at}", until(*including)),
        Target::Lsn(at, including) => format!("what was written {} {at}", until(*including)),
        Target::Name(name) => format!("the restore point {name:?}"),
        Target::Xid(xid, including) => format!("what was committed {} transaction {xid}", until(*including)),
    };
    lines.push(format!("recovery goes to {to}, on timeline {}", window.timeline));
    if let Some(gap) = window.gap {
        lines.push(format!("{gap} is missing: what comes after it is not recovered"));
    }
    if matches!(target, Target::Time(..) | Target::Name(_) | Target::Xid(..)) {
        lines.push(
            "whether the log has that can't be known before: if it has not, PostgreSQL ends with \
             \"recovery ended before configured recovery target was reached\""
                .to_owned(),
        );
    }
    if matches!(target, Target::Name(_) | Target::Xid(..)) {
        lines.push("if it came before this backup, an older one is needed: --backup ID".to_owned());
    }
    lines
}

fn until(including: Including) -> &'static str {
    match including {
        Including::Target => "up to and including",
        Including::JustBefore => "before",
    }
}

/// Writes how to get into the archive.
fn access(archive: &Archive, commit: &Commit, to: &Path) -> Result<PathBuf, Refused> {
    let path = to.join(ACCESS);
    let settings = archive.location.given().clone();
    let mut access = Access::to(archive.location.url(), &archive.directory, commit.segment_size, Some(settings));
    // Whom we trusted, for PostgreSQL is started in another environment.
    if let Some(file) = std::env::var_os("SSL_CERT_FILE") {
        let read = std::fs::read_to_string(&file);
        let what = || format!("SSL_CERT_FILE: {}", Path::new(&file).display());
        access.ca = Some(read.map_err(|cause| Refused::Io { what: what(), cause })?);
    }
    access.write(&path)?;
    Ok(path)
}

/// What belongs to the database and is not in its directory.
fn outside(commit: &Commit, to: &Path, wal_dir: Option<PathBuf>) -> Vec<PathBuf> {
    let links = commit.tablespaces.iter().map(|space| to.join("pg_tblspc").join(space.oid.to_string()));
    links.filter_map(|link| std::fs::read_link(link).ok()).chain(wal_dir).collect()
}

/// What a person does next.
fn next(to: &Path, access: &Path, installation: &Installation, port: u16, account: Option<&str>) -> Vec<String> {
    let as_account = account.map(|account| format!("runuser -u {account} -- ")).unwrap_or_default();
    let to_shown = word(to);
    // Beside it only we may write; in it, whoever PostgreSQL runs as.
    let log = word(&if account.is_some() { to.join("bellwether.recovery.log") } else { to.with_extension("log") });
    let host = socket_dir(to).map_or_else(|| "127.0.0.1".to_owned(), word);
    let psql = Some(installation.program("psql"))
        .filter(|psql| psql.is_file())
        .map_or_else(|| "psql".to_owned(), |psql| word(&psql));
    let psql = format!("{as_account}{psql} -h {host} -p {port} -U {SUPERUSER}");
    let pg_ctl = word(&installation.program("pg_ctl"));
    // It waits until the server lets somebody in, which is when it is consistent.
    let start = format!("{as_account}{pg_ctl} -D {to_shown} -l {log} -t 86400 start");
    vec![
        paint("It is ready to recover. Nothing was started.", Tone::Good),
        String::new(),
        "Start it, and it fetches the log and recovers:".to_owned(),
        format!("  {start}"),
        "See that it worked: `f` says that it is over, and the log says where it ended:".to_owned(),
        format!("  {psql} -c 'select pg_is_in_recovery()'"),
        format!("  grep -E 'recovery stopping|last completed transaction|archive recovery complete|FATAL' {log}"),
        String::new(),
        format!(
            "It listens on 127.0.0.1:{port} only, archives nothing, follows nobody, and loads no library: what is to be otherwise is changed in postgresql.conf."
        ),
        "The original's settings are beside it, in postgresql.conf.original, and count for nothing.".to_owned(),
        format!(
            "{} holds the way into the store until PostgreSQL has recovered, which then removes it.",
            access.display()
        ),
    ]
}

fn word(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@".contains(c);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}
