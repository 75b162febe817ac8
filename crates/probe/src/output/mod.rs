//! What people and scripts read: the verdict as a table or as JSON on standard output, everything else on standard error.

mod words;

use std::io::Write as _;

use comfy_table::Table;
use comfy_table::presets::NOTHING;
use probe::check::Verdict;

/// A line for whoever watches.
pub fn note(text: &str) {
    let _nobody_reads = writeln!(std::io::stderr(), "{text}");
}

/// Why it could not be done.
pub fn error(text: &str) {
    note(&format!("bellwether-probe: {text}"));
}

/// The verdict for programs.
pub fn json(verdict: &Verdict) {
    let mut out = std::io::stdout().lock();
    let _nobody_reads = serde_json::to_writer_pretty(&mut out, verdict).map(|()| writeln!(out));
}

/// What a run saw, before anything is judged.
pub fn summary(verdict: &Verdict) {
    note(&words::writes(verdict));
    for gap in &verdict.gaps {
        note(&words::gap(gap));
    }
}

/// The verdict for people.
pub fn verdict(verdict: &Verdict) {
    let mut text = format!("{}\n", words::conclusion(verdict.conclusion));
    for lie in &verdict.lies {
        text += &format!("  ✗ {}\n", words::lie(lie));
    }
    for doubt in &verdict.doubts {
        text += &format!("  ? {}\n", words::doubt(doubt));
    }
    text += &format!("\n{}\n{}\n", words::writes(verdict), words::load(&verdict.load));
    for gap in &verdict.gaps {
        text += &format!("{}\n", words::gap(gap));
    }
    for takeover in &verdict.takeovers {
        text += &format!("{}\n", words::takeover(takeover));
    }
    if !verdict.instances.is_empty() {
        text += &format!("\n{}\n", instances(verdict));
    }
    let _nobody_reads = std::io::stdout().lock().write_all(text.as_bytes());
}

fn instances(verdict: &Verdict) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header([
        "INSTANCE",
        "ROLE",
        "CAUGHT UP",
        "ROWS",
        "OF THEM AMBIGUOUS",
        "ACKNOWLEDGED BUT MISSING",
    ]);
    for instance in &verdict.instances {
        let read = |number: usize| match instance.role {
            Some(_) => number.to_string(),
            None => "?".to_owned(),
        };
        table.add_row([
            instance.instance.clone(),
            words::role(instance.role).to_owned(),
            if instance.caught_up { "yes" } else { "no" }.to_owned(),
            read(instance.rows),
            read(instance.ambiguous),
            read(instance.lacks),
        ]);
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}
