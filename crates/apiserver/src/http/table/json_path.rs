//! The JSON paths of printer columns: fields, indexes, and filters that compare one field with a text.
//!
//! That is what a CRD's `additionalPrinterColumns` may use. A path that we cannot read shows an empty cell.

use serde_json::Value;

/// A parsed path.
pub(super) struct JsonPath(Vec<Step>);

#[derive(Debug, PartialEq, Eq)]
enum Step {
    Field(String),
    Index(usize),
    Every,
    Where { field: Vec<String>, equals: String },
}

impl JsonPath {
    /// Reads `.status.conditions[?(@.type=="Ready")].status`.
    pub(super) fn parse(text: &str) -> Option<JsonPath> {
        let mut steps = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            if let Some(inside) = rest.strip_prefix('[') {
                let end = closing_bracket(inside)?;
                steps.push(subscript(&inside[..end])?);
                rest = &inside[end + 1..];
            } else {
                let (name, after) = field(rest.strip_prefix('.').unwrap_or(rest));
                if name.is_empty() {
                    return None;
                }
                steps.push(Step::Field(name));
                rest = after;
            }
        }
        Some(JsonPath(steps))
    }

    /// The first value it finds.
    pub(super) fn first<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        find(object, &self.0)
    }
}

fn find<'a>(value: &'a Value, steps: &[Step]) -> Option<&'a Value> {
    let Some((step, rest)) = steps.split_first() else { return Some(value) };
    match step {
        Step::Field(name) => find(value.get(name)?, rest),
        Step::Index(index) => find(value.get(index)?, rest),
        Step::Every => value.as_array()?.iter().find_map(|item| find(item, rest)),
        Step::Where { field, equals } => {
            value.as_array()?.iter().filter(|item| is(item, field, equals)).find_map(|item| find(item, rest))
        }
    }
}

fn is(item: &Value, field: &[String], equals: &str) -> bool {
    match field.iter().try_fold(item, |value, name| value.get(name)) {
        Some(Value::String(text)) => text == equals,
        Some(other) => equals.parse::<Value>().is_ok_and(|wanted| wanted == *other),
        None => false,
    }
}

/// A field's name up to the next dot or bracket; `\.` is a dot in the name.
fn field(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut escaped = false;
    for (index, letter) in text.char_indices() {
        match letter {
            _ if escaped => {
                name.push(letter);
                escaped = false;
            }
            '\\' => escaped = true,
            '.' | '[' => return (name, &text[index..]),
            _ => name.push(letter),
        }
    }
    (name, "")
}

fn closing_bracket(text: &str) -> Option<usize> {
    let mut quote = None;
    for (index, letter) in text.char_indices() {
        match (quote, letter) {
            (None, '\'' | '"') => quote = Some(letter),
            (Some(open), letter) if open == letter => quote = None,
            (None, ']') => return Some(index),
            _ => {}
        }
    }
    None
}

fn subscript(text: &str) -> Option<Step> {
    let text = text.trim();
    if text == "*" {
        return Some(Step::Every);
    }
    if let Some(filter) = text.strip_prefix("?(").and_then(|text| text.strip_suffix(')')) {
        let (path, value) = filter.split_once("==")?;
        let path = path.trim().strip_prefix("@.")?;
        return Some(Step::Where {
            field: path.split('.').map(str::to_owned).collect(),
            equals: unquoted(value).to_owned(),
        });
    }
    match text.parse() {
        Ok(index) => Some(Step::Index(index)),
        Err(_) => (unquoted(text) != text).then(|| Step::Field(unquoted(text).to_owned())),
    }
}

fn unquoted(text: &str) -> &str {
    let text = text.trim();
    let between = |quote: char| text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote));
    between('"').or_else(|| between('\'')).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_indexes_and_filters() {
        let object = json!({"a": {"b.c": [{"n": 1, "k": "x"}, {"n": 2, "k": "y"}]}, "t": true});
        let value = |path: &str| JsonPath::parse(path).unwrap().first(&object).cloned();
        assert_eq!(value(r".a.b\.c[1].n"), Some(json!(2)));
        assert_eq!(value(r#".a['b.c'][?(@.k=="y")].n"#), Some(json!(2)));
        assert_eq!(value(".a['b.c'][*].k"), Some(json!("x")));
        assert_eq!(value(".missing.field"), None);
        assert_eq!(value("t"), Some(json!(true)));
    }

    #[test]
    fn what_is_no_path_is_none() {
        assert!(JsonPath::parse(".a[").is_none());
        assert!(JsonPath::parse("..a").is_none());
    }
}
