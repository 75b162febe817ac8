//! Pages that are one table each: versions, owned settings, reasons.

use std::fmt::Write as _;

use bellwether_api::owned::{TOPICS, Topic};
use bellwether_api::reason::Reason;
use bellwether_api::versions::{self, SUPPORTED, Tested};

use super::{HEADER, cell, prose};

/// `docs/reference/versions.md`.
pub fn versions() -> String {
    let mut page = format!(
        "{HEADER}\n# PostgreSQL versions\n\n\
         What [`spec.version`](postgrescluster.md#specversion) may be. Older versions are past their end of life.\n\n\
         | version | tested | image by default |\n|---|---|---|\n"
    );
    for version in SUPPORTED {
        let tested = match version.tested {
            Tested::Suites => "yes: every suite",
            Tested::Trial => "yes: `bellwether try`",
            Tested::Not => "no; expected to work",
        };
        let default = if version.major == versions::DEFAULT { " (taken when none is named)" } else { "" };
        let image = versions::default_image(version.major);
        writeln!(page, "| `\"{}\"`{default} | {tested} | `{image}` |", version.major).expect("a String takes any text");
    }
    page.push_str(
        "\nA version that was taken by default is stored in the cluster's spec: a new release of Bellwether, which may test a \
         newer PostgreSQL, never changes a running cluster.\n",
    );
    page
}

/// `docs/reference/parameters.md`.
pub fn parameters() -> String {
    let mut page = format!(
        "{HEADER}\n# Settings that Bellwether owns\n\n\
         [`spec.parameters`](postgrescluster.md#specparameters) takes any setting of PostgreSQL but these. Each is owned for a \
         reason, and each has something to use instead. Names that end in `*` stand for everything that begins so.\n"
    );
    for topic in &TOPICS {
        topic_section(&mut page, topic);
    }
    page
}

fn topic_section(page: &mut String, topic: &Topic) {
    let names = topic.names.iter().map(|name| format!("`{name}`"));
    let prefixes = topic.prefixes.iter().map(|prefix| format!("`{prefix}*`"));
    let list: Vec<_> = names.chain(prefixes).collect();
    let mut title = topic.name.to_owned();
    title[..1].make_ascii_uppercase();
    write!(
        page,
        "\n## {title}\n\n{}\n\n- **Why:** {}.\n- **Instead:** {}.\n",
        list.join(", "),
        prose(topic.why),
        prose(topic.instead)
    )
    .expect("a String takes any text");
}

/// `docs/reference/reasons.md`.
pub fn reasons() -> String {
    let mut page = format!(
        "{HEADER}\n# Reasons\n\n\
         Every condition of a `PostgresCluster` carries a `reason`. It is one of these, and it is the name of its runbook.\n\n\
         | reason | what it means |\n|---|---|\n"
    );
    for reason in Reason::ALL {
        writeln!(page, "| [`{reason}`](../runbooks/{reason}.md) | {} |", cell(reason.meaning()))
            .expect("a String takes any text");
    }
    page
}
