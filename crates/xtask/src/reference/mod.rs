//! The pages of `docs/reference`, and the one of `docs/proof` that is a list of tests.

pub mod backup;
pub mod cluster;
mod fields;
pub mod notes;
pub mod tables;

/// What stands at the top of a generated page.
const HEADER: &str = "<!-- Made by `make generate` from the types; changes here are lost. -->\n";

/// `text` inside a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// `<name>` outside of code would be read as HTML and vanish.
fn prose(text: &str) -> String {
    let mut code = false;
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '`' => {
                code = !code;
                out.push(c);
            }
            '<' if !code => out.push_str("&lt;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_angle_brackets_survive_in_prose_and_in_code() {
        assert_eq!(
            prose("the Secret <cluster>-app and `<cluster>-rw`"),
            "the Secret &lt;cluster>-app and `<cluster>-rw`"
        );
    }
}
