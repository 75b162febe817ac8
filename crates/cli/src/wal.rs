//! `bellwether wal gaps`: what is missing of the log in a store, from the store alone.
//!
//! Never: success where something is missing, or where it can't be said.

use std::process::ExitCode;

use bellwether_backup::catalog::Catalog;
use bellwether_backup::gaps::{self, Gap, Leg};
use comfy_table::Table;
use comfy_table::presets::NOTHING;

use crate::archive::{Archive, ArchiveError};
use crate::exit::Exit;
use crate::output::{self, Tone, paint};
use crate::{args, bring_up};

/// Says what is missing.
pub fn gaps(options: &args::Gaps) -> ExitCode {
    bring_up::block_on(async {
        Ok(match told(&options.source).await {
            Ok(exit) => exit,
            Err(error) => {
                output::error(&error.to_string());
                Exit::Failed
            }
        })
    })
}

async fn told(source: &args::Source) -> Result<Exit, ArchiveError> {
    let mut whole = true;
    for archive in Archive::find_all(source).await? {
        let catalog = archive.catalog().await?;
        let whose = paint(&archive.cluster(), Tone::Strong);
        output::line(&format!("{whose}  {}  {} segments of the log", archive.directory, catalog.segments().len()));
        let (lines, is_whole) = lines(&catalog);
        lines.iter().for_each(|line| output::line(line));
        whole &= is_whole;
    }
    Ok(if whole { Exit::Ok } else { Exit::Gaps })
}

/// A line for each way, what else is wrong, and whether nothing is.
fn lines(catalog: &Catalog) -> (Vec<String>, bool) {
    let legs = gaps::legs(catalog);
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(["BACKUP", "TIMELINE", "FROM", "TO", "MISSING"]);
    for leg in &legs {
        table.add_row([
            leg.backup.to_string(),
            leg.timeline.to_string(),
            leg.from.to_string(),
            leg.to.to_string(),
            missing(leg),
        ]);
    }
    let mark = |leg: &Leg| paint("●", if leg.gaps.is_empty() { Tone::Good } else { Tone::Bad });
    let row = |(index, line): (usize, String)| match index.checked_sub(1).and_then(|row| legs.get(row)) {
        Some(leg) => format!("{} {}", mark(leg), line.trim_end()),
        None => format!("  {}", paint(line.trim_end(), Tone::Faint)),
    };
    let mut lines: Vec<String> = match legs.is_empty() {
        true => vec!["  no backup: without one, the log leads nowhere".to_owned()],
        false => table.lines().enumerate().map(row).collect(),
    };
    let lost = gaps::without_history(catalog);
    lines.extend(lost.iter().map(|timeline| {
        format!(
            "{} {:08X}.history is missing: nothing on timeline {timeline} can be reached",
            paint("●", Tone::Bad),
            timeline.0
        )
    }));
    let strange = catalog
        .unreadable
        .iter()
        .map(|strange| format!("{} {}: {}", paint("●", Tone::Bad), strange.key, strange.problem));
    lines.extend(strange);
    let whole = legs.iter().all(|leg| leg.gaps.is_empty()) && lost.is_empty() && catalog.unreadable.is_empty();
    (lines, whole && !legs.is_empty())
}

fn missing(leg: &Leg) -> String {
    match leg.gaps.is_empty() {
        true => "nothing".to_owned(),
        false => leg.gaps.iter().map(Gap::to_string).collect::<Vec<_>>().join(", "),
    }
}
