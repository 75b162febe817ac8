//! `bellwether backup prune`: removes from an object store what a policy does not keep, from the store alone.
//!
//! Clusters do it by themselves. This is for the archive of one that is gone, and to see beforehand what a policy would remove. Never: anything
//! removed that was not shown as it is; more than one archive at a time; what [`retention::plan`] keeps.

use std::collections::BTreeMap;
use std::process::ExitCode;

use bellwether_backup::catalog::{self, Catalog};
use bellwether_backup::record::Owner;
use bellwether_backup::retention::{self, Plan, Policy};
use bellwether_backup::store::{LocationError, StoreError};
use bellwether_backup::{Location, Store};
use bellwether_core::words;
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use k8s_openapi::jiff::Timestamp;

use crate::args::Prune;
use crate::cluster::told;
use crate::consent::{self, NoConsent, Word};
use crate::output::{Tone, paint};

/// Why nothing was removed, or not all.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error(transparent)]
    Location(#[from] LocationError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    NoConsent(#[from] NoConsent),
    #[error("--keep: --retention says already how many backups are kept; say it once")]
    Twice,
    #[error(
        "{from}: there is no archive {}here; `bellwether backups --from {from}` lists those that there are",
        of(cluster.as_deref())
    )]
    NoArchive { from: String, cluster: Option<String> },
    #[error("there are several archives, and only one at a time is pruned: name one of {}", .0.join(", "))]
    Several(Vec<String>),
    #[error("the archive is no longer as it was shown, and nothing was removed: look again")]
    Changed,
    #[error("{0}; what is gone is gone, and the same command removes the rest")]
    Half(StoreError),
}

fn of(cluster: Option<&str>) -> String {
    cluster.map(|cluster| format!("of {cluster:?} ")).unwrap_or_default()
}

/// Shows what goes, asks, and removes it.
pub fn run(options: &Prune) -> ExitCode {
    told(prune(options))
}

async fn prune(options: &Prune) -> Result<String, Refused> {
    let (policy, now) = (policy(options)?, Timestamp::now());
    let store = Store::open(&Location::from_env(&options.from)?)?;
    let (directory, owner) = the_one(options, catalog::archives(&store).await?.archives)?;
    let archive = store.below(&directory);
    let catalog = Catalog::read(&archive).await?;
    let plan = retention::plan(&catalog, policy, now);
    let shown = shown(&directory, &owner, &catalog, &plan);
    if options.dry_run || plan.is_empty() {
        return Ok(shown);
    }
    consent::ask(&shown, Word::Name(&owner.cluster), options.yes)?;
    // Whoever thinks it over for long may decide about something else by now: a backup that was verified meanwhile, say.
    if retention::plan(&Catalog::read(&archive).await?, policy, now) != plan {
        return Err(Refused::Changed);
    }
    retention::apply(&archive, &plan).await.map_err(Refused::Half)?;
    Ok("all of it is gone".to_owned())
}

/// What is kept.
fn policy(options: &Prune) -> Result<Policy, Refused> {
    match (options.retention, options.keep) {
        (Some(policy), None) => Ok(policy),
        (Some(Policy::Window(window)), Some(keep)) => Ok(Policy::Both(window, keep)),
        (None, Some(keep)) => Ok(Policy::Count(keep)),
        // Without either the command line is refused.
        (Some(Policy::Count(_) | Policy::Both(..)), Some(_)) | (None, None) => Err(Refused::Twice),
    }
}

/// The archive that is meant.
fn the_one(options: &Prune, mut archives: BTreeMap<String, Owner>) -> Result<(String, Owner), Refused> {
    if let Some(name) = &options.cluster {
        archives.retain(|directory, owner| directory == name || owner.cluster == *name);
    }
    let mut found = archives.into_iter();
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one),
        (None, _) => Err(Refused::NoArchive { from: options.from.clone(), cluster: options.cluster.clone() }),
        (Some(one), Some(other)) => {
            let all = [one, other].into_iter().chain(found);
            let named = all.map(|(directory, owner)| format!("{directory} ({}/{})", owner.namespace, owner.cluster));
            Err(Refused::Several(named.collect()))
        }
    }
}

/// What stays and what goes, and why.
fn shown(directory: &str, owner: &Owner, catalog: &Catalog, plan: &Plan) -> String {
    let whose = paint(&format!("{}/{}", owner.namespace, owner.cluster), Tone::Strong);
    let mut lines = vec![format!("{whose}  {directory}")];
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(["BACKUP", "STORED", "VERIFIED", "", "BECAUSE"]);
    let mut stays = vec![];
    let gone = |id| plan.backups.iter().chain(&plan.incomplete).find(|removal| removal.id == id);
    for backup in &catalog.backups {
        let id = &backup.commit.id;
        let verified = if backup.verified.is_some() { "yes" } else { "no" };
        let stored = words::size(backup.commit.stored());
        let (what, why) = match (plan.kept.get(id), gone(id.clone())) {
            (Some(why), _) => ("stays", why.to_string()),
            (None, removal) => ("goes", removal.map(|removal| removal.why.to_owned()).unwrap_or_default()),
        };
        stays.push(what == "stays");
        table.add_row([id.to_string(), stored, verified.to_owned(), what.to_owned(), why]);
    }
    for run in &catalog.incomplete {
        let (what, why) = match gone(run.id.clone()) {
            Some(removal) => ("goes", removal.why),
            None => ("stays", "without a commit: it may be under way"),
        };
        stays.push(what == "stays");
        let stored = words::size(run.bytes);
        table.add_row([run.id.to_string(), stored, "-".to_owned(), what.to_owned(), why.to_owned()]);
    }
    lines.extend(table.lines().enumerate().map(
        |(index, line)| match index.checked_sub(1).and_then(|row| stays.get(row)) {
            Some(true) => format!("{} {}", paint("●", Tone::Good), line.trim_end()),
            Some(false) => format!("{} {}", paint("○", Tone::Bad), line.trim_end()),
            None => format!("  {}", paint(line.trim_end(), Tone::Faint)),
        },
    ));
    let strange = catalog.unreadable.iter().map(|strange| format!("{}: {}", strange.key, strange.problem));
    let alarms = strange.chain(plan.alarms.iter().map(ToString::to_string));
    lines.extend(alarms.map(|alarm| format!("{} {alarm}", paint("●", Tone::Bad))));
    lines.push(summary(catalog, plan));
    lines.join("\n")
}

fn summary(catalog: &Catalog, plan: &Plan) -> String {
    if plan.is_empty() {
        return "nothing is to be removed".to_owned();
    }
    let counted = |number: usize, thing: &str| words::counted(u64::try_from(number).unwrap_or(u64::MAX), thing);
    let broken = match plan.incomplete.len() {
        0 => String::new(),
        number => format!(", what is left of {}", counted(number, "broken-off backup")),
    };
    format!(
        "{}{broken} and {} of the log go, {} in all; {} of the log stay",
        counted(plan.backups.len(), "backup"),
        counted(plan.log.len(), "file"),
        words::size(plan.bytes(catalog)),
        counted(catalog.wal.len() - plan.log.len(), "file"),
    )
}

#[cfg(test)]
mod tests {
    use bellwether_backup::record::FORMAT;
    use bellwether_core::wal::SystemIdentifier;
    use clap::Parser as _;

    use super::*;
    use crate::args::{Backup, Cli, Role};

    fn asked(line: &[&str]) -> Option<Prune> {
        let line = [&["bellwether", "backup", "prune", "--from", "s3://acme"], line].concat();
        match Cli::try_parse_from(line).ok()?.role {
            Role::Backup(Backup::Prune(options)) => Some(options),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_kept_is_said_once_and_as_in_a_cluster() {
        let read = |line: &[&str]| policy(&asked(line).unwrap());
        let both: Policy = "7d and 3 backups".parse().unwrap();
        assert_eq!(read(&["--retention", "7d", "--keep", "3"]).unwrap(), both);
        assert_eq!(read(&["--retention", "7d and 3 backups"]).unwrap(), both);
        assert_eq!(read(&["--keep", "3"]).unwrap(), "3 backups".parse().unwrap());
        assert!(matches!(read(&["--retention", "3 backups", "--keep", "3"]), Err(Refused::Twice)));
        for refused in [&[][..], &["--retention", "7"], &["--keep", "0"], &["--retention", "7d,3"]] {
            assert!(asked(refused).is_none(), "{refused:?}");
        }
    }

    #[test]
    fn of_several_archives_one_has_to_be_named() {
        let archives: BTreeMap<_, _> = [("7-a", "orders"), ("7-b", "orders"), ("8-c", "shop")]
            .map(|(directory, cluster)| {
                let owner = Owner {
                    format: FORMAT,
                    system_identifier: SystemIdentifier(7),
                    incarnation: directory[2..].to_owned(),
                    namespace: "eu".to_owned(),
                    cluster: cluster.to_owned(),
                };
                (directory.to_owned(), owner)
            })
            .into();
        let one = |line: &[&str]| {
            let options = asked(&[line, &["--keep", "1"]].concat()).unwrap();
            the_one(&options, archives.clone()).map(|(directory, _)| directory).map_err(|error| error.to_string())
        };
        assert_eq!(one(&["shop"]).unwrap(), "8-c");
        assert_eq!(one(&["7-b"]).unwrap(), "7-b");
        assert!(one(&["orders"]).unwrap_err().contains("7-a (eu/orders), 7-b (eu/orders)"));
        assert!(one(&[]).is_err());
        assert!(one(&["others"]).unwrap_err().contains("no archive of \"others\""));
    }
}
