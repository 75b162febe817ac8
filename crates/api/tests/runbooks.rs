//! Every reason has a runbook, and every runbook a reason.

use std::collections::BTreeSet;
use std::path::Path;

use bellwether_api::reason::Reason;

#[test]
fn every_reason_has_a_runbook_and_every_runbook_a_reason() {
    let directory = Path::new(env!("BELLWETHER_ROOT")).join("docs/runbooks");
    let pages: BTreeSet<_> = std::fs::read_dir(&directory)
        .expect("there are runbooks")
        .map(|entry| entry.expect("readable").file_name().into_string().expect("a readable name"))
        .filter(|name| name != "README.md")
        .collect();
    let wanted: BTreeSet<_> = Reason::ALL.iter().map(|reason| format!("{reason}.md")).collect();
    assert_eq!(pages, wanted);
}

#[test]
fn a_runbook_says_what_it_means_what_happens_and_what_to_do() {
    for reason in Reason::ALL {
        let page = Path::new(env!("BELLWETHER_ROOT")).join(format!("docs/runbooks/{reason}.md"));
        let text = std::fs::read_to_string(&page).expect("the page is there");
        assert!(text.starts_with(&format!("# {reason}\n")), "{reason}: the title is the reason");
        for heading in ["## What it means", "## What Bellwether does by itself", "## What you do", "## How to look"] {
            assert!(text.contains(heading), "{reason}: no section {heading:?}");
        }
    }
}
