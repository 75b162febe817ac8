//! `bellwether backups --from`: what an object store holds, from the store alone.
//!
//! For the day on which nothing else is left: no Kubernetes, no operator, no status. Never: a backup listed without saying that something it needs is missing.

use std::process::ExitCode;

use bellwether_backup::catalog::{self, Catalog};
use bellwether_backup::record::Owner;
use bellwether_backup::store::{LocationError, StoreError};
use bellwether_backup::{Location, Store, gaps};
use bellwether_core::words;
use comfy_table::Table;
use comfy_table::presets::NOTHING;

use crate::cluster::told;
use crate::output::{Tone, paint};

/// Why nothing can be said.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error(transparent)]
    Location(#[from] LocationError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0}: there is no archive of ours here; the address must be the one in spec.backup.store.url")]
    Empty(String),
}

/// Lists every backup in the store at this address, or those of clusters of one name.
pub fn list(from: &str, cluster: Option<&str>) -> ExitCode {
    told(listed(from, cluster))
}

async fn listed(from: &str, cluster: Option<&str>) -> Result<String, Refused> {
    let store = Store::open(&Location::from_env(from)?)?;
    let found = catalog::archives(&store).await?;
    let mut lines = vec![];
    for (directory, owner) in &found.archives {
        if cluster.is_none_or(|cluster| owner.cluster == cluster) {
            let catalog = Catalog::read(&store.below(directory)).await?;
            lines.extend(archive(directory, owner, &catalog));
        }
    }
    let strange = found
        .unreadable
        .iter()
        .map(|strange| format!("{} {}: {}", paint("●", Tone::Bad), strange.key, strange.problem));
    lines.extend(strange);
    if lines.is_empty() {
        return Err(Refused::Empty(from.to_owned()));
    }
    Ok(lines.join("\n"))
}

/// One archive: whose it is, its backups, and what is wrong with it.
fn archive(directory: &str, owner: &Owner, catalog: &Catalog) -> Vec<String> {
    let whose = paint(&format!("{}/{}", owner.namespace, owner.cluster), Tone::Strong);
    let segments = catalog.segments();
    let mut lines = vec![format!("{whose}  {directory}  {} segments of the log", segments.len())];
    let mut table = Table::new();
    table.load_style(NOTHING).set_header([
        "BACKUP",
        "INSTANCE",
        "SIZE",
        "STORED",
        "TIMELINE",
        "RESTORABLE TO",
        "VERIFIED",
    ]);
    let mut whole = vec![];
    for backup in &catalog.backups {
        let commit = &backup.commit;
        let missing = gaps::missing_for(commit, &segments, &catalog.histories);
        let furthest = gaps::windows(commit, &segments, &catalog.histories)
            .into_iter()
            .max_by_key(|window| (window.to, window.timeline));
        let restorable = match (missing.first(), furthest) {
            (Some(gap), _) => format!("nothing: {gap} is missing"),
            (None, Some(window)) => format!("{} on timeline {}", window.to, window.timeline),
            (None, None) => commit.stop.to_string(),
        };
        whole.push(missing.is_empty());
        table.add_row([
            commit.id.to_string(),
            commit.instance.clone(),
            words::size(commit.bytes),
            words::size(commit.stored()),
            commit.timeline.to_string(),
            restorable,
            backup
                .verified
                .as_ref()
                .map_or_else(|| "no".to_owned(), |verified| verified.verified.strftime("%F %T").to_string()),
        ]);
    }
    if catalog.backups.is_empty() {
        lines.push("  no backup".to_owned());
    } else {
        lines.extend(table.lines().enumerate().map(|(index, line)| {
            match index.checked_sub(1).and_then(|row| whole.get(row)) {
                Some(true) => format!("{} {}", paint("●", Tone::Good), line.trim_end()),
                Some(false) => format!("{} {}", paint("●", Tone::Bad), line.trim_end()),
                None => format!("  {}", paint(line.trim_end(), Tone::Faint)),
            }
        }));
    }
    let half = catalog.incomplete.iter();
    lines.extend(
        half.map(|half| {
            format!("○ {}  {} without a commit: under way, or broken off", half.id, words::size(half.bytes))
        }),
    );
    lines.extend(catalog.unreadable.iter().map(|strange| format!("● {}: {}", strange.key, strange.problem)));
    lines.push(String::new());
    lines
}
