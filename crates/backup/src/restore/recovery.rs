//! Decides what PostgreSQL is told about recovery: where the log comes from, how far to go, and what to do there.
//!
//! Pure: settings, and lines of `postgresql.conf`. The file [`SIGNAL`] beside it makes PostgreSQL recover at all. Never: two targets, which PostgreSQL
//! refuses; one that is left over in the backup's own configuration; a value that ends early and goes on as a setting of its own.

use std::fmt::Write as _;

use bellwether_core::wal::{Lsn, Timeline};
use jiff::Timestamp;

/// The file in a data directory that makes PostgreSQL recover from the archive. It is empty.
pub const SIGNAL: &str = "recovery.signal";
/// What a backup may bring along that says something else: one that was taken from a standby has the first, and would follow its primary.
pub const LEFT_OVER: [&str; 2] = ["standby.signal", SIGNAL];

/// How far to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// As far as the log goes.
    Latest,
    /// Until the backup is consistent, and no further.
    Immediate,
    /// Up to what was committed at this time.
    Time(Timestamp, Including),
    /// Up to this position.
    Lsn(Lsn, Including),
    /// Up to the restore point of this name (`pg_create_restore_point`).
    Name(String),
    /// Up to the commit of this transaction. Others with higher numbers may have been committed before it.
    Xid(u64, Including),
}

/// Whether what lies exactly at the target is recovered too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Including {
    /// It is.
    Target,
    /// Recovery ends right before it.
    JustBefore,
}

/// Which way to go where the history forks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Along {
    /// To the newest timeline that the archive has.
    Latest,
    /// To this one.
    Timeline(Timeline),
}

/// What to do at the target. Without a target PostgreSQL promotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Stay there, readable, until somebody says to promote.
    Pause,
    /// Begin a new timeline and accept writes.
    Promote,
    /// Stop.
    ShutDown,
}

/// A recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// The shell command that fetches `%f` to `%p`.
    pub restore_command: String,
    /// How far to go.
    pub target: Target,
    /// Which way.
    pub along: Along,
    /// What to do there.
    pub then: Then,
}

/// Why a recovery can't be written down.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting}: the value {value:?} has a line break or a zero byte in it")]
pub struct BadRecovery {
    setting: &'static str,
    value: String,
}

/// Every setting that names a target.
const TARGETS: [&str; 5] =
    ["recovery_target", "recovery_target_time", "recovery_target_lsn", "recovery_target_name", "recovery_target_xid"];

impl Recovery {
    /// The settings, in the order in which PostgreSQL has to read them.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let (target, including) = match &self.target {
            Target::Latest => (None, None),
            Target::Immediate => (Some(("recovery_target", "immediate".to_owned())), None),
            Target::Time(at, including) => {
                // Whatever the server's time zone and style of dates are.
                let text = at.strftime("%Y-%m-%d %H:%M:%S%.6f+00").to_string();
                (Some(("recovery_target_time", text)), Some(*including))
            }
            Target::Lsn(position, including) => (Some(("recovery_target_lsn", position.to_string())), Some(*including)),
            Target::Name(name) => (Some(("recovery_target_name", name.clone())), None),
            Target::Xid(xid, including) => (Some(("recovery_target_xid", xid.to_string())), Some(*including)),
        };
        let along = match self.along {
            Along::Latest => "latest".to_owned(),
            Along::Timeline(timeline) => timeline.to_string(),
        };
        let then = match self.then {
            Then::Pause => "pause",
            Then::Promote => "promote",
            Then::ShutDown => "shutdown",
        };
        let inclusive = if including == Some(Including::JustBefore) { "off" } else { "on" };
        let mut settings = vec![
            ("restore_command", self.restore_command.clone()),
            ("recovery_target_timeline", along),
            ("recovery_target_action", then.to_owned()),
            ("recovery_target_inclusive", inclusive.to_owned()),
        ];
        // One that is left over from an earlier recovery would count as a second. The empty ones come first: PostgreSQL takes one that
        // follows the target for a second too.
        let unset = TARGETS.into_iter().filter(|name| target.as_ref().is_none_or(|(chosen, _)| name != chosen));
        settings.extend(unset.map(|name| (name, String::new())));
        settings.extend(target);
        settings
    }

    /// The settings, as lines of `postgresql.conf`.
    pub fn lines(&self) -> Result<String, BadRecovery> {
        self.settings().into_iter().try_fold(String::new(), |mut lines, (setting, value)| {
            if value.contains(['\n', '\r', '\0']) {
                return Err(BadRecovery { setting, value });
            }
            // Writing to a String does not fail.
            let _ = writeln!(lines, "{setting} = {}", quoted(&value));
            Ok(lines)
        })
    }
}

/// In single quotes; PostgreSQL reads C escapes there, so backslashes are doubled as quotes are.
pub(super) fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn to(target: Target) -> Recovery {
        let restore_command = "bellwether wal fetch %f '%p'".to_owned();
        Recovery { restore_command, target, along: Along::Latest, then: Then::Promote }
    }

    #[rstest]
    #[case(Target::Immediate, "recovery_target = 'immediate'")]
    #[case(
        Target::Time("2026-11-18T02:00:05.7Z".parse().unwrap(), Including::Target),
        "recovery_target_time = '2026-11-18 02:00:05.700000+00'"
    )]
    #[case(Target::Lsn(Lsn(0x16_B374_D848), Including::Target), "recovery_target_lsn = '16/B374D848'")]
    #[case(Target::Name("it's".to_owned()), "recovery_target_name = 'it''s'")]
    #[case(Target::Xid(751, Including::Target), "recovery_target_xid = '751'")]
    fn the_target_is_the_last_setting_and_the_others_are_none(#[case] target: Target, #[case] expected: &str) {
        let lines = to(target).lines().unwrap();
        assert_eq!(lines.lines().last(), Some(expected));
        let unset = TARGETS.iter().filter(|name| lines.contains(&format!("{name} = ''\n"))).count();
        assert_eq!(unset, TARGETS.len() - 1);
    }

    #[test]
    fn without_a_target_none_of_an_earlier_recovery_counts() {
        let lines = to(Target::Latest).lines().unwrap();
        assert_eq!(TARGETS.iter().filter(|name| lines.contains(&format!("{name} = ''\n"))).count(), TARGETS.len());
    }

    #[test]
    fn what_lies_at_the_target_is_left_out_only_when_that_was_said() {
        let before = to(Target::Xid(7, Including::JustBefore)).lines().unwrap();
        assert!(before.contains("recovery_target_inclusive = 'off'\n"));
        assert!(to(Target::Xid(7, Including::Target)).lines().unwrap().contains("recovery_target_inclusive = 'on'\n"));
    }

    #[test]
    fn a_value_never_ends_early() {
        let quoted = to(Target::Latest).lines().unwrap();
        assert!(quoted.starts_with("restore_command = 'bellwether wal fetch %f ''%p'''\n"), "{quoted}");
        for name in ["a\nfsync = off", "a\r", "a\0"] {
            assert!(to(Target::Name(name.to_owned())).lines().is_err());
        }
    }
}
