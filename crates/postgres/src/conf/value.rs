//! Quotes names and values for `postgresql.conf`.
//!
//! Must never happen: that a value ends early and the rest of it is read as a setting of its own, or that a "name" is one
//! of the file's directives (`include` would read files of somebody else's choice).

use bellwether_api::owned::Topic;

/// Why a setting can't be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSetting {
    /// The name is none.
    #[error(
        "spec.parameters: {name:?} is not the name of a setting: use letters, digits and `_`, and `.` after an extension's name"
    )]
    Name {
        /// What was given as name.
        name: String,
    },
    /// The value holds a character that the file can't.
    #[error("spec.parameters.{name}: the value {value:?} has a line break or a zero byte in it; write it in one line")]
    Value {
        /// The setting.
        name: String,
        /// Its value.
        value: String,
    },
    /// The product sets it.
    #[error("spec.parameters.{name}: {value:?} can't be set: {}; {}", .owner.why, .owner.instead)]
    Owned {
        /// The setting.
        name: String,
        /// The value somebody wanted.
        value: String,
        /// Why it is owned, and what to use instead.
        owner: &'static Topic,
    },
}

/// One line of `postgresql.conf`.
pub(super) fn line(name: &str, value: &str) -> Result<String, BadSetting> {
    Ok(format!("{} = {}\n", checked_name(name)?, quoted(name, value)?))
}

fn checked_name(name: &str) -> Result<&str, BadSetting> {
    let identifier = |part: &str| {
        part.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'$')
    };
    let directive = ["include", "include_if_exists", "include_dir"].iter().any(|d| d.eq_ignore_ascii_case(name));
    if directive || !name.split('.').all(identifier) {
        return Err(BadSetting::Name { name: name.to_owned() });
    }
    Ok(name)
}

/// In single quotes; inside, quotes are doubled, and backslashes too because PostgreSQL reads C escapes there.
fn quoted(name: &str, value: &str) -> Result<String, BadSetting> {
    if value.contains(['\n', '\r', '\0']) {
        return Err(BadSetting::Value { name: name.to_owned(), value: value.to_owned() });
    }
    Ok(format!("'{}'", value.replace('\\', "\\\\").replace('\'', "''")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_backslashes_survive() {
        assert_eq!(line("a", r"it's \n").unwrap(), "a = 'it''s \\\\n'\n");
    }

    #[test]
    fn a_value_of_two_lines_is_refused_by_name() {
        for value in ["a\nb", "a\rb", "a\0b"] {
            assert!(line("work_mem", value).unwrap_err().to_string().contains("spec.parameters.work_mem"));
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for name in ["", ".", "a.", ".a", "1a", "a b", "a=b", "a'b", "include", "INCLUDE_DIR", "include_if_exists", "ä"]
        {
            assert!(line(name, "x").is_err(), "{name}");
        }
        assert!(line("pg_stat_statements.max", "x").is_ok());
    }
}
