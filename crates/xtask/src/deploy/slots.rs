//! Turns an object into a template of the chart: some of its places are filled by Helm instead of here.
//!
//! The object is built once, from the chart's default values; the plain manifest is that object, and the template is the same with
//! slots. Never: a field that exists in only one of them.

use serde_json::Value;

use crate::yaml;

/// What Helm puts in a place.
pub enum Slot {
    /// An expression for one value: `key: {{ … }}`.
    Value(String),
    /// The same, key included only where it isn't empty.
    Optional(String),
    /// What a value of the chart holds, as YAML; nothing at all, key included, where that is empty.
    Block(String),
    /// The same, below a key that is there anyway: `.Values.x` is added to what the object has.
    More(String),
    /// A block that stands in place of what the object has when the value isn't empty.
    Instead(String),
}

/// Where a slot is: a JSON pointer into the object.
pub struct Place {
    pointer: &'static str,
    slot: Slot,
}

/// A slot at a JSON pointer.
pub fn slot(pointer: &'static str, slot: Slot) -> Place {
    Place { pointer, slot }
}

/// What marks a slot in the YAML, before Helm's words take its place. Letters only, so that it is never quoted.
fn mark(number: usize) -> String {
    format!("SLOT{number}SLOT")
}

/// `object` as a template, without a `---`.
pub fn template(object: &Value, places: &[Place]) -> Result<String, String> {
    let mut marked = object.clone();
    let mut snippets = vec![];
    for (number, place) in places.iter().enumerate() {
        let (parent, key) =
            place.pointer.rsplit_once('/').ok_or_else(|| format!("{:?} is no pointer", place.pointer))?;
        let parent = marked.pointer_mut(parent).ok_or_else(|| format!("{}: no such place", place.pointer))?;
        let there = match parent {
            Value::Object(map) => map.insert(unescaped(key), Value::String(mark(number))),
            _ => {
                let item = key.parse::<usize>().ok().and_then(|at| parent.get_mut(at));
                let item = item.ok_or_else(|| format!("{}: no such item", place.pointer))?;
                Some(std::mem::replace(item, Value::String(mark(number))))
            }
        };
        snippets.push(Snippet::new(&place.slot, there.as_ref(), place.pointer)?);
    }
    let text = escaped(&yaml::body(&marked)?);
    let lines: Vec<String> = text.lines().map(|line| filled(line, &snippets)).collect();
    Ok(lines.join("\n") + "\n")
}

/// A key of a JSON pointer as it is in the object.
fn unescaped(key: &str) -> String {
    key.replace("~1", "/").replace("~0", "~")
}

/// Helm would read braces of a description as its own.
fn escaped(text: &str) -> String {
    text.replace("{{", "{{ \"{{\" }}")
}

/// A slot with the YAML that the object has in its place.
struct Snippet<'a> {
    slot: &'a Slot,
    there: String,
}

impl<'a> Snippet<'a> {
    fn new(slot: &'a Slot, there: Option<&Value>, pointer: &str) -> Result<Self, String> {
        let there = match (slot, there) {
            (Slot::Value(_) | Slot::Optional(_) | Slot::Block(_), _) => String::new(),
            (_, Some(there)) => yaml::body(there)?,
            (_, None) => return Err(format!("{pointer}: the object has nothing here to add to")),
        };
        Ok(Self { slot, there })
    }

    /// The lines that take the place of `key: SLOT`. What the object has there may have slots of its own.
    fn lines(&self, key: &str, indent: usize, all: &[Snippet<'_>]) -> Vec<String> {
        let pad = " ".repeat(indent);
        let head = format!("{pad}{key}");
        let nested = |value: &str| format!("{pad}  {{{{- toYaml {value} | nindent {} }}}}", indent + 2);
        let there = || self.there.lines().map(|line| filled(&format!("{pad}  {line}"), all));
        let with = |value: &str| format!("{pad}{{{{- with {value} }}}}");
        let end = format!("{pad}{{{{- end }}}}");
        match self.slot {
            Slot::Value(expression) => vec![format!("{head} {{{{ {expression} }}}}")],
            Slot::Optional(value) => vec![with(value), format!("{head} {{{{ . | quote }}}}"), end],
            Slot::Block(value) => vec![with(value), head, nested("."), end],
            Slot::More(value) => {
                let more = [format!("{pad}  {{{{- with {value} }}}}"), nested("."), format!("{pad}  {{{{- end }}}}")];
                [head].into_iter().chain(there()).chain(more).collect()
            }
            Slot::Instead(value) => {
                let otherwise = [format!("{pad}{{{{- else }}}}")].into_iter().chain(there());
                [head, with(value), nested(".")].into_iter().chain(otherwise).chain([end]).collect()
            }
        }
    }
}

/// A line of the YAML, with what stands in its slot if it has one.
fn filled(line: &str, snippets: &[Snippet<'_>]) -> String {
    let found =
        snippets.iter().enumerate().find_map(|(number, snippet)| Some((snippet, line.strip_suffix(&mark(number))?)));
    let Some((snippet, before)) = found else {
        return line.to_owned();
    };
    let key = before.trim_start();
    snippet.lines(key.trim_end(), before.len() - key.len(), snippets).join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_expression_takes_a_values_place() {
        let text = template(
            &json!({ "a": { "b": 1, "l": ["x", "y"] } }),
            &[slot("/a/b", Slot::Value(".Values.b".to_owned())), slot("/a/l/1", Slot::Value(".Values.y".to_owned()))],
        );
        assert_eq!(text.as_deref(), Ok("a:\n  b: {{ .Values.b }}\n  l:\n  - x\n  - {{ .Values.y }}\n"));
    }

    #[test]
    fn an_empty_block_takes_its_key_with_it() {
        let text = template(&json!({ "a": { "b": 1 } }), &[slot("/a/c", Slot::Block(".Values.c".to_owned()))]);
        let wanted = "a:\n  b: 1\n  {{- with .Values.c }}\n  c:\n    {{- toYaml . | nindent 4 }}\n  {{- end }}\n";
        assert_eq!(text.as_deref(), Ok(wanted));
    }

    #[test]
    fn an_empty_value_takes_its_key_with_it() {
        let text = template(&json!({ "b": 1 }), &[slot("/a", Slot::Optional(".Values.a".to_owned()))]);
        assert_eq!(text.as_deref(), Ok("{{- with .Values.a }}\na: {{ . | quote }}\n{{- end }}\nb: 1\n"));
    }

    #[test]
    fn what_is_added_comes_after_what_is_there() {
        let text = template(&json!({ "a": { "b": "x" } }), &[slot("/a", Slot::More(".Values.c".to_owned()))]);
        let wanted = "a:\n  b: x\n  {{- with .Values.c }}\n  {{- toYaml . | nindent 2 }}\n  {{- end }}\n";
        assert_eq!(text.as_deref(), Ok(wanted));
    }

    #[test]
    fn a_slot_within_what_is_added_to_is_filled_too() {
        let places = [slot("/a/b", Slot::Value(".x".to_owned())), slot("/a", Slot::More(".y".to_owned()))];
        let text = template(&json!({ "a": { "b": 1 } }), &places).expect("a template");
        assert!(text.starts_with("a:\n  b: {{ .x }}\n  {{- with .y }}\n"), "{text}");
    }

    #[test]
    fn what_is_there_gives_way_to_a_value_that_is_set() {
        let text = template(&json!({ "a": ["x"] }), &[slot("/a", Slot::Instead(".Values.c".to_owned()))]);
        let wanted = "a:\n{{- with .Values.c }}\n  {{- toYaml . | nindent 2 }}\n{{- else }}\n  - x\n{{- end }}\n";
        assert_eq!(text.as_deref(), Ok(wanted));
    }

    #[test]
    fn a_place_that_does_not_exist_is_an_error_and_not_a_slot_less() {
        assert!(template(&json!({}), &[slot("/a/b", Slot::Value("x".to_owned()))]).is_err());
        assert!(template(&json!({}), &[slot("/a", Slot::More("x".to_owned()))]).is_err());
        assert!(template(&json!({ "a": [] }), &[slot("/a/0", Slot::Value("x".to_owned()))]).is_err());
    }

    #[test]
    fn braces_of_the_object_are_not_helms() {
        assert_eq!(template(&json!({ "a": "x {{ y" }), &[]).as_deref(), Ok("a: x {{ \"{{\" }} y\n"));
    }
}
