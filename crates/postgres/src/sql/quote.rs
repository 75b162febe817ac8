//! Quotes names and texts for the few statements that take no parameters (roles, databases).

/// A name in double quotes.
pub(super) fn ident(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text in single quotes. With a backslash in it, PostgreSQL's explicit escape form: then it doesn't matter what
/// `standard_conforming_strings` says.
pub(super) fn literal(text: &str) -> String {
    let doubled = text.replace('\'', "''");
    if doubled.contains('\\') { format!(" E'{}'", doubled.replace('\\', "\\\\")) } else { format!("'{doubled}'") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_ends_a_quoted_name_or_text_early() {
        assert_eq!(ident(r#"a"b"#), r#""a""b""#);
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(literal(r"\'; drop"), r" E'\\''; drop'");
    }
}
