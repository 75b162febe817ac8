//! `docs/proof/field-notes.md`: what has hurt people elsewhere, and the tests here that would have caught it.
//!
//! From: the names of tests. One that begins with `note_31_` shows note 31. Never: a note in the list that no test shows; a test that names a note nobody knows.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use super::{HEADER, cell};

/// What somebody reported, and what is to be seen here.
struct Note {
    number: u8,
    happened: &'static str,
    reported: &'static str,
    here: &'static str,
}

const fn note(number: u8, happened: &'static str, reported: &'static str, here: &'static str) -> Note {
    Note { number, happened, reported, here }
}

/// Those that are shown. The numbers are those of the collection that they come from.
const NOTES: [Note; 23] = [
    note(
        1,
        "a finalizer outlives its operator, and the namespace is stuck",
        "cloudnative-pg #10535",
        "a namespace that holds both goes, in every order",
    ),
    note(
        2,
        "a resource that is being deleted is still reconciled",
        "cloudnative-pg #9554",
        "deletion begins at every step",
    ),
    note(
        3,
        "what was deleted while the operator was down leaves orphans",
        "zalando/postgres-operator #2678",
        "operator stopped, cluster deleted, operator started: nothing is left",
    ),
    note(
        9,
        "leader election times out several times an hour",
        "cloudnative-pg #9659",
        "a slow API for an hour: no operator exits",
    ),
    note(
        10,
        "one of many watches is stuck until a restart",
        "stackable trino-operator #936",
        "a watch that stalls is noticed",
    ),
    note(11, "30,000 writes an hour", "restate #138", "writes while nothing happens: none"),
    note(
        12,
        "a restart loop from a field that never converges",
        "cloudnative-pg #8884, zalando/postgres-operator #2909",
        "a second pass over anything writes nothing",
    ),
    note(
        13,
        "volumes deleted although they were to be kept",
        "zalando/postgres-operator #2567",
        "no input deletes a volume of a live instance",
    ),
    note(14, "a stale cache, and a live volume deleted", "instaclustr #407", "every watch travels in time"),
    note(
        15,
        "a volume on its way out taken for one that is there",
        "cloudnative-pg #10985",
        "an object that is wanted and is being deleted",
    ),
    note(
        18,
        "a failover stalls, or is silently reverted",
        "cloudnative-pg #11346",
        "whoever is promoted is killed at each step of it",
    ),
    note(20, "one backup that failed blocks all later ones", "cloudnative-pg #10385", "the store is down, and then up"),
    note(
        21,
        "an upgrade of the operator restarts every database",
        "cloudnative-pg #5950, crunchy postgres-operator #3428",
        "a new operator restarts nothing",
    ),
    note(
        22,
        "a cache of all Secrets, and no memory left",
        "cloudnative-pg #10924",
        "of foreign objects none is asked for",
    ),
    note(
        23,
        "a disruption budget blocks a drain for ever",
        "zalando/postgres-operator #611",
        "whatever the size, one more may go",
    ),
    note(
        24,
        "an inactive slot fills the disk",
        "zalando/postgres-operator #2012",
        "a replica is away: the log is bounded",
    ),
    note(25, "replicas made twice from a stale cache", "kuberay #715", "a watch says nothing while something is made"),
    note(
        29,
        "a replica broken for forty hours, and healthy by its status",
        "cloudnative-pg #10419",
        "streaming is broken: that is said, with the reason",
    ),
    note(
        30,
        "a schedule in the spec and no backup; missed runs made up for 380 times",
        "crunchy postgres-operator #3624, cloudnative-pg #7623",
        "the age of the newest verified backup is a condition; one run makes up for all",
    ),
    note(
        31,
        "the last segment of a backup was never archived, and it was called complete",
        "plugin-barman-cloud #652",
        "complete only when every segment that it needs was read back",
    ),
    note(
        32,
        "the log of another cluster overwrote ours",
        "plugin-barman-cloud #263",
        "a directory for each database, and nothing is replaced",
    ),
    note(33, "bad checksums, and exit code 0", "pgbackrest #2687", "one byte is changed: never verified"),
    note(34, "one command removed all of the log", "wal-g #230", "retention never passes the newest verified backup"),
];

/// The page, and an error where a note is not shown, or is not one.
pub fn page(root: &Path) -> Result<String, String> {
    render(&NOTES, &tests(root)?)
}

fn render(notes: &[Note], tests: &BTreeMap<u8, Vec<(String, String)>>) -> Result<String, String> {
    let mut page = format!(
        "{HEADER}\n# What has hurt others, and the tests that would have caught it\n\n\
         Each line is a public report about an operator of databases, or a published finding. The tests of a note have its number in their name, so that\n\
         `cargo test --workspace note_31` runs all that shows note 31. This page is made from those names: a test that goes takes its line with it, and a\n\
         note that no test shows any more is an error.\n\n\
         | note | what happened | reported at | shown here by |\n|---|---|---|---|\n"
    );
    for Note { number, happened, reported, here } in notes {
        let shown = tests.get(number).ok_or_else(|| {
            format!("note {number} ({happened}) is shown by no test: name the test that does note_{number}_…, or take the note off the list")
        })?;
        let shown: Vec<_> = shown.iter().map(|(name, file)| format!("[`{name}`](../../{file})")).collect();
        let (happened, reported) = (cell(happened), cell(reported));
        writeln!(page, "| {number} | {happened} | {reported} | {here}: {} |", shown.join(", "))
            .expect("a String takes any text");
    }
    match tests.iter().find(|(number, _)| notes.iter().all(|note| note.number != **number)) {
        Some((number, shown)) => Err(format!(
            "{} shows note {number}, which is not on the list in crates/xtask/src/reference/notes.rs",
            shown[0].0
        )),
        None => Ok(page),
    }
}

/// The tests that show a note: their names, and the files that they are in.
fn tests(root: &Path) -> Result<BTreeMap<u8, Vec<(String, String)>>, String> {
    let mut files = vec![];
    sources(&root.join("crates"), &mut files)?;
    files.sort();
    let mut found: BTreeMap<u8, Vec<(String, String)>> = BTreeMap::new();
    for file in files {
        let text = fs::read_to_string(&file).map_err(|why| format!("{}: {why}", file.display()))?;
        let shown = file.strip_prefix(root).unwrap_or(&file).display().to_string();
        for (number, name) in text.lines().filter_map(named) {
            found.entry(number).or_default().push((name, shown.clone()));
        }
    }
    Ok(found)
}

/// A line that begins a test of a note.
fn named(line: &str) -> Option<(u8, String)> {
    let code = line.trim_start();
    let code = code.strip_prefix("async ").unwrap_or(code).strip_prefix("fn ")?;
    let name = code.split('(').next()?;
    let number = name.strip_prefix("note_")?.split('_').next()?.parse().ok()?;
    Some((number, name.to_owned()))
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) -> Result<(), String> {
    let failed = |why: std::io::Error| format!("{}: {why}", directory.display());
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            sources(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_shows_the_note_in_its_name() {
        let line = "    async fn note_31_a_backup_waits_for_its_log() {";
        assert_eq!(named(line), Some((31, "note_31_a_backup_waits_for_its_log".to_owned())));
        assert_eq!(named("        fn note_12_a_plan(spec in specs()) {"), Some((12, "note_12_a_plan".to_owned())));
        for other in ["// fn note_31_x()", "fn note(number: u8)", "fn a_note_31_x() {", "note_31_x();"] {
            assert_eq!(named(other), None, "{other}");
        }
    }

    #[test]
    fn a_note_without_a_test_and_a_test_without_a_note_are_errors() {
        let notes = [note(31, "a backup without its log", "somewhere #1", "read back")];
        let shown = |number| BTreeMap::from([(number, vec![("note_x".to_owned(), "crates/x.rs".to_owned())])]);
        assert!(render(&notes, &shown(31)).unwrap().contains("| 31 | a backup without its log |"));
        assert!(render(&notes, &BTreeMap::new()).unwrap_err().contains("note 31"));
        let both = shown(31).into_iter().chain(shown(99)).collect();
        assert!(render(&notes, &both).unwrap_err().contains("note 99"));
    }
}
