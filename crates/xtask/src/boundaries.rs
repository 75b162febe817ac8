//! Proves that `core` and `api` stay what they are: pure. No clock, no randomness, no I/O, nothing async.
//!
//! From: the crates that cargo says they are built with, and their source. Never: trusts a review to notice; the same functions
//! run in production, in the simulator and in a model check only as long as nothing else decides what they return.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The crates that are pure.
const PURE: [&str; 2] = ["core", "api"];

/// Crates that bring a clock, randomness, I/O or an executor.
const DENIED_CRATES: [&str; 22] = [
    "tokio",
    "tokio-util",
    "async-std",
    "smol",
    "futures",
    "futures-util",
    "futures-executor",
    "async-trait",
    "kube-client",
    "kube-runtime",
    "hyper",
    "hyper-util",
    "axum",
    "tower",
    "reqwest",
    "rustls",
    "rand",
    "rand_core",
    "getrandom",
    "fastrand",
    "socket2",
    "mio",
];

/// Words that no line of code may have, tests included: a test that needs a clock tests the wrong thing.
const DENIED_WORDS: [&str; 17] = [
    "async ",
    ".await",
    "Instant::now",
    "SystemTime",
    "Timestamp::now",
    "Zoned::now",
    "Utc::now",
    "std::fs",
    "std::net",
    "std::process",
    "std::env",
    "std::thread",
    "rand::",
    "println!",
    "eprintln!",
    "tokio::",
    "std::io",
];

/// Fails with every trespass of the pure crates.
pub fn check(root: &Path) -> Result<String, String> {
    let mut trespasses = vec![];
    for name in PURE {
        trespasses.extend(denied_crates(&tree(root, &format!("bellwether-{name}"))?, name));
        for file in sources(&root.join("crates").join(name).join("src"))? {
            let text = fs::read_to_string(&file).map_err(|why| format!("{}: {why}", file.display()))?;
            let shown = file.strip_prefix(root).unwrap_or(&file).display().to_string();
            trespasses.extend(denied_words(&text, &shown));
        }
    }
    if trespasses.is_empty() {
        return Ok("core and api are pure: no clock, no randomness, no I/O, nothing async".to_owned());
    }
    Err(format!(
        "{}\npure crates take time, seeds and facts as arguments; see docs/architecture.md",
        trespasses.join("\n")
    ))
}

/// What cargo builds `package` with, a crate a line.
fn tree(root: &Path, package: &str) -> Result<String, String> {
    let arguments = ["tree", "--package", package, "--edges", "normal", "--prefix", "none", "--locked"];
    let output = Command::new(env!("CARGO")).args(arguments).current_dir(root).output();
    let output = output.map_err(|why| format!("cargo tree: {why}"))?;
    if !output.status.success() {
        return Err(format!("cargo tree of {package}: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn denied_crates(tree: &str, package: &str) -> Vec<String> {
    let mut found: Vec<_> = tree
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| DENIED_CRATES.contains(name))
        .map(|name| format!("{package} depends on {name}"))
        .collect();
    found.sort();
    found.dedup();
    found
}

fn denied_words(source: &str, file: &str) -> Vec<String> {
    let mut found = vec![];
    for (number, line) in source.lines().enumerate() {
        let code = without_comment(line);
        for word in DENIED_WORDS.iter().filter(|word| has_word(code, word)) {
            found.push(format!("{file}:{}: uses `{}`: {}", number + 1, word.trim(), line.trim()));
        }
    }
    found
}

/// The line up to its comment. A `//` inside a string cuts the rest off too; addresses are no words of the list.
fn without_comment(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

/// Whether `word` stands in `code` and isn't the tail of a longer name (`operand::` is not `rand::`).
fn has_word(code: &str, word: &str) -> bool {
    let starts_with_name = word.starts_with(|c: char| c.is_alphanumeric());
    code.match_indices(word).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        !starts_with_name || !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

/// Every Rust file below `folder`.
fn sources(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = vec![];
    for entry in fs::read_dir(folder).map_err(|why| format!("{}: {why}", folder.display()))? {
        let path = entry.map_err(|why| format!("{}: {why}", folder.display()))?.path();
        if path.is_dir() {
            found.extend(sources(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_denied_word_is_caught_where_it_is_planted() {
        for word in DENIED_WORDS {
            let planted = format!("fn fine() {{}}\n    let x = {word}();\n");
            let found = denied_words(&planted, "src/x.rs");
            assert!(
                found.iter().any(|line| line.starts_with("src/x.rs:2:") && line.contains(word.trim())),
                "{word}: {found:?}"
            );
        }
    }

    #[test]
    fn every_denied_crate_is_caught_where_it_is_planted() {
        for name in DENIED_CRATES {
            let planted = format!("bellwether-core v0.1.0\nserde v1.0.0\n{name} v1.2.3\n{name} v1.2.3 (*)\n");
            assert_eq!(denied_crates(&planted, "core"), [format!("core depends on {name}")]);
        }
    }

    #[test]
    fn comments_and_longer_names_are_no_trespass() {
        let fine = "/// Not async and no Instant::now.\nlet operand = operand::of(x); // std::fs\nlet not_async = 1;\n";
        assert_eq!(denied_words(fine, "src/x.rs"), [""; 0]);
    }

    #[test]
    fn crates_that_are_allowed_pass() {
        assert_eq!(
            denied_crates("kube-core v5.0.0\njiff v0.2.0\ncroner v4.0.0\nhyperloglog v1.0.0\n", "core"),
            [""; 0]
        );
    }

    #[test]
    fn sources_below_are_found() {
        let own = Path::new(env!("BELLWETHER_ROOT")).join("crates/xtask/src");
        let found = sources(&own).expect("readable");
        assert!(found.iter().any(|file| file.ends_with("reference/tables.rs")), "{found:?}");
    }
}
