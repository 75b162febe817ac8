//! The rules of `spec.backup.schedule`: five fields, each within its range, and a date that comes.
//!
//! Regular expressions, because CEL in an API server has a budget for its work. What they can't say (a stepped range of
//! months that misses every long one) is found by [`crate::validate`]. Never: a schedule accepted that never fires; the
//! user would believe in backups that nobody takes.

use super::rule::Rule;

const FIELD: &str = "spec.backup.schedule";
/// Steps: `/15`.
const STEP: &str = "(/[1-9][0-9]?)";

/// One of the five fields.
struct Part {
    name: &'static str,
    number: &'static str,
    words: Option<&'static str>,
    allowed: &'static str,
}

const PARTS: [Part; 5] = [
    Part { name: "minute", number: "[0-5]?[0-9]", words: None, allowed: "0-59" },
    Part { name: "hour", number: "(2[0-3]|[01]?[0-9])", words: None, allowed: "0-23" },
    Part { name: "day of month", number: "(3[01]|[12][0-9]|0?[1-9])", words: None, allowed: "1-31" },
    Part {
        name: "month",
        number: "(1[0-2]|0?[1-9])",
        words: Some("(JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC)"),
        allowed: "1-12 or JAN-DEC",
    },
    Part {
        name: "day of week",
        number: "[0-7]",
        words: Some("(SUN|MON|TUE|WED|THU|FRI|SAT)"),
        allowed: "0-7 or SUN-SAT (0 and 7 are Sunday)",
    },
];

/// The words in the order of their numbers, to tell a range that runs backwards.
const ORDER: &str = "SUN MON TUE WED THU FRI SAT JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC";

/// The rules.
pub fn rules() -> Vec<Rule> {
    let mut rules = vec![Rule::on(
        FIELD,
        format!("self.matches('{}')", five()),
        "doesn't have five fields: write minute, hour, day of month, month and day of week, separated by spaces, such as \
         0 2 * * *",
    )];
    rules.extend(PARTS.iter().enumerate().map(|(place, part)| field(place, part)));
    rules.push(forwards());
    rules.push(comes());
    rules
}

fn five() -> &'static str {
    "^[^ ]+( +[^ ]+){4}$"
}

/// The field at `place` is a list of `*`, numbers, words and ranges, the latter with steps.
fn field(place: usize, part: &Part) -> Rule {
    let range = |atom: &str| format!("{atom}(-{atom}{STEP}?)?");
    let mut choices = vec![format!("[*]{STEP}?"), range(part.number)];
    choices.extend(part.words.map(range));
    let list = list(&format!("({})", choices.join("|")));
    let after = PARTS.len() - 1 - place;
    Rule::on(
        FIELD,
        format!("!self.matches('{}') || self.matches('(?i)^([^ ]+ +){{{place}}}{list}( +[^ ]+){{{after}}}$')", five()),
        format!(
            "has a wrong {}: write *, or {} as a number, a range or a list, with a step behind * or a range if you like",
            part.name, part.allowed
        ),
    )
}

/// Ranges run forwards. `FRI-SUN` doesn't, because Sunday is the first day.
fn forwards() -> Rule {
    let backwards_numbers = "self.findAll('[0-9]+-[0-9]+').exists(r, int(r.split('-')[0]) > int(r.split('-')[1]))";
    let backwards_words = format!(
        "self.upperAscii().findAll('[A-Z]+-[A-Z]+').exists(r, '{ORDER}'.indexOf(r.split('-')[0]) > '{ORDER}'.indexOf(r.split('-')[1]))"
    );
    Rule::on(
        FIELD,
        format!("!{backwards_numbers} && !{backwards_words}"),
        "has a range that runs backwards: write the smaller end first, or a list, such as FRI,SAT,SUN",
    )
}

/// The date comes in some year. With a day of week beside the day of month, cron fires on either, so only `*` is looked at.
fn comes() -> Rule {
    let days = |day: &str| list(&format!("{day}(-{day}{STEP}?)?"));
    let months = |month: &str| list(&format!("{month}(-{month}{STEP}?)?"));
    let february = format!("{} +{}", days("3[01]"), months("(0?2|FEB)"));
    let short_months = format!("{} +{}", days("31"), list("(0?[2469]|11|FEB|APR|JUN|SEP|NOV)"));
    Rule::on(
        FIELD,
        format!("!self.matches('(?i)^[^ ]+ +[^ ]+ +({february}|{short_months}) +[*]$')"),
        "names a date that never comes, so no backup would ever be taken: choose a day that the month has, such as \
         0 2 28 2 *",
    )
}

fn list(item: &str) -> String {
    format!("{item}(,{item})*")
}
