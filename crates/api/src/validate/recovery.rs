//! Decides whether a stored `spec.bootstrap.recovery` can be acted on.
//!
//! Never: a source guessed where two are named or none is, a target where two are; whoever restores would get another database than they asked for.

use jiff::Timestamp;

use super::{Invalid, store};
use crate::v1::{Bootstrap, LocaleProvider, Recovery, RecoveryTarget};

const RECOVERY: &str = "spec.bootstrap.recovery";
/// The longest name that PostgreSQL gives a restore point, in bytes.
const LONGEST_NAME: usize = 63;

fn invalid(field: &str, value: impl Into<String>, fix: &str) -> Invalid {
    Invalid::new(format!("{RECOVERY}{field}"), value, fix)
}

/// Everything in it that can't be acted on.
pub(super) fn recovery(bootstrap: &Bootstrap) -> Vec<Invalid> {
    let Some(recovery) = &bootstrap.recovery else { return vec![] };
    let mut found: Vec<_> = source(recovery).into_iter().collect();
    found.extend(recovery.store.iter().flat_map(|there| store(&format!("{RECOVERY}.store"), there)));
    if recovery.archive.is_some() != recovery.store.is_some() {
        let value = recovery.archive.clone().unwrap_or_default();
        found.push(invalid(".archive", value, "goes with store, and only with it: write both, or neither"));
    }
    if recovery.backup.is_some()
        && let Some(id) = &recovery.backup_id
    {
        found.push(invalid(".backupId", id, "is a second backup beside the one in backup: leave one of them out"));
    }
    let number = |text: &str| text.parse::<u32>().is_ok_and(|number| number > 0);
    if !["latest", "current"].contains(&recovery.timeline.as_str()) && !number(&recovery.timeline) {
        found.push(invalid(".timeline", &recovery.timeline, "is no timeline: write latest, current or a number"));
    }
    found.extend(recovery.target.iter().flat_map(target));
    found.extend(of_no_effect(bootstrap));
    found
}

/// What a restored database brings along.
fn of_no_effect(bootstrap: &Bootstrap) -> Vec<Invalid> {
    let initdb = &bootstrap.initdb;
    let fix = "has no effect beside recovery: leave it out";
    let no_effect = |field: &str, value: String| Invalid::new(format!("spec.bootstrap.initdb.{field}"), value, fix);
    let mut found = vec![];
    if initdb.locale_provider != LocaleProvider::Libc || initdb.locale != "C.UTF-8" {
        found.push(no_effect("locale", initdb.locale.clone()));
    }
    if !initdb.data_checksums {
        found.push(no_effect("dataChecksums", "false".to_owned()));
    }
    found.extend(initdb.post_init_sql.first().map(|sql| no_effect("postInitSql", sql.clone())));
    found
}

fn source(recovery: &Recovery) -> Option<Invalid> {
    let given = [
        ("backup", recovery.backup.is_some()),
        ("cluster", recovery.cluster.is_some()),
        ("store", recovery.store.is_some()),
    ];
    let given: Vec<_> = given.into_iter().filter(|(_, given)| *given).map(|(name, _)| name).collect();
    let fix = "does not say from where, or says it twice: write exactly one of backup, cluster and store";
    (given.len() != 1).then(|| invalid("", given.join(" "), fix))
}

fn target(target: &RecoveryTarget) -> Vec<Invalid> {
    let RecoveryTarget { time, lsn, name, transaction, exclusive } = target;
    let given = [
        ("time", time.is_some()),
        ("lsn", lsn.is_some()),
        ("name", name.is_some()),
        ("transaction", transaction.is_some()),
    ];
    let given: Vec<_> = given.into_iter().filter(|(_, given)| *given).map(|(name, _)| name).collect();
    let mut found = vec![];
    if given.len() != 1 {
        let fix = "does not say how far, or says it twice: write exactly one of time, lsn, name and transaction";
        found.push(invalid(".target", given.join(" "), fix));
    }
    if let Some(time) = time.as_ref().filter(|time| time.parse::<Timestamp>().is_err()) {
        found.push(invalid(
            ".target.time",
            time,
            "is no moment: write date, time and zone, such as 2026-11-18T14:30:00Z",
        ));
    }
    if let Some(lsn) = lsn.as_ref().filter(|lsn| !is_position(lsn)) {
        found.push(invalid(
            ".target.lsn",
            lsn,
            "is no position in the log: write it as PostgreSQL does, such as 16/B374D848",
        ));
    }
    if let Some(name) =
        name.as_ref().filter(|name| name.is_empty() || name.len() > LONGEST_NAME || name.contains(char::is_control))
    {
        found.push(invalid(
            ".target.name",
            name,
            "is no name of a restore point: it has one line, and 63 bytes at most",
        ));
    }
    if let Some(transaction) = transaction.filter(|transaction| *transaction < 3) {
        found.push(invalid(
            ".target.transaction",
            transaction.to_string(),
            "is no transaction of anybody's: write 3 or more",
        ));
    }
    if *exclusive && name.is_some() {
        found.push(invalid(".target.exclusive", "true", "means nothing beside name: leave it out"));
    }
    found
}

fn is_position(text: &str) -> bool {
    let part = |part: &str| (1..=8).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    text.split_once('/').is_some_and(|(high, low)| part(high) && part(low))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::{BackupStore, SourceName};
    use rstest::rstest;

    fn refused(change: impl FnOnce(&mut Bootstrap, &mut Recovery)) -> String {
        let backup = Some(SourceName { name: "nightly".to_owned() });
        let mut restored = Recovery { backup, ..Recovery::default() };
        let mut bootstrap = Bootstrap::default();
        change(&mut bootstrap, &mut restored);
        bootstrap.recovery = Some(restored);
        recovery(&bootstrap).iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    fn aimed(target: RecoveryTarget) -> String {
        refused(|_, recovery| recovery.target = Some(target))
    }

    #[test]
    fn one_source_and_no_target_is_the_end_of_its_log() {
        assert_eq!(refused(|_, _| ()), "");
    }

    #[test]
    fn no_source_or_two_are_named() {
        let none = refused(|_, recovery| recovery.backup = None);
        assert!(none.contains("spec.bootstrap.recovery: \"\"") && none.contains("exactly one"), "{none}");
        let two = refused(|_, recovery| recovery.cluster = Some(SourceName { name: "orders".to_owned() }));
        assert!(two.contains("\"backup cluster\""), "{two}");
        let no_archive = refused(|_, recovery| {
            recovery.backup = None;
            recovery.store = Some(BackupStore { url: "s3://acme".to_owned(), ..BackupStore::default() });
        });
        assert!(no_archive.starts_with("spec.bootstrap.recovery.archive"), "{no_archive}");
    }

    #[rstest]
    #[case::none(RecoveryTarget::default(), "exactly one of time")]
    #[case::two(RecoveryTarget { lsn: Some("0/1".into()), transaction: Some(700), ..RecoveryTarget::default() }, "\"lsn transaction\"")]
    #[case::no_day(RecoveryTarget { time: Some("2026-02-30T00:00:00Z".into()), ..RecoveryTarget::default() }, "such as 2026")]
    #[case::no_zone(RecoveryTarget { time: Some("2026-02-20T00:00:00".into()), ..RecoveryTarget::default() }, "such as 2026")]
    #[case::no_position(RecoveryTarget { lsn: Some("16".into()), ..RecoveryTarget::default() }, "such as 16/B374D848")]
    #[case::too_long(RecoveryTarget { name: Some("ä".repeat(40)), ..RecoveryTarget::default() }, "63 bytes")]
    #[case::two_lines(RecoveryTarget { name: Some("a\nb".into()), ..RecoveryTarget::default() }, "one line")]
    #[case::frozen(RecoveryTarget { transaction: Some(2), ..RecoveryTarget::default() }, "3 or more")]
    #[case::before_a_name(RecoveryTarget { name: Some("a".into()), exclusive: true, ..RecoveryTarget::default() }, "leave it out")]
    fn a_target_that_is_none_is_named(#[case] target: RecoveryTarget, #[case] words: &str) {
        let message = aimed(target);
        assert!(message.contains(words) && message.lines().count() == 1, "{message}");
    }

    #[test]
    fn what_a_restored_database_brings_along_is_not_said_again() {
        for (field, message) in [
            ("locale", refused(|bootstrap, _| "de_DE.UTF-8".clone_into(&mut bootstrap.initdb.locale))),
            ("dataChecksums", refused(|bootstrap, _| bootstrap.initdb.data_checksums = false)),
            ("postInitSql", refused(|bootstrap, _| bootstrap.initdb.post_init_sql.push("select 1".to_owned()))),
        ] {
            assert!(message.starts_with(&format!("spec.bootstrap.initdb.{field}")), "{message}");
        }
        assert_eq!(refused(|bootstrap, _| "shop".clone_into(&mut bootstrap.initdb.database)), "");
    }
}
