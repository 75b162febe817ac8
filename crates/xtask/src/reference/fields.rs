//! The parts of a page about a kind: its columns, each field with its type, default, rules and what happens when it changes, its status.

use std::fmt::Write as _;

use bellwether_api::v1;
use bellwether_api::v1::fields::{Field, OnChange};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

use super::{cell, prose};

/// A kind of ours.
pub struct Kind {
    /// Its definition.
    pub definition: CustomResourceDefinition,
    /// Its schema.
    pub schema: Value,
    /// Its table of fields.
    pub fields: Vec<Field>,
}

/// The fields that have a section of their own.
pub fn documented(kind: &Kind) -> Vec<&Field> {
    kind.fields.iter().filter(|field| is_documented(field)).collect()
}

fn is_documented(field: &Field) -> bool {
    field.path.starts_with("spec.")
        && !field.path.ends_with("[]")
        && !field.path.ends_with("{}")
        && !field.path.contains("[].")
}

/// What kubectl shows of it.
pub fn columns(page: &mut String, kind: &Kind, command: &str) {
    write!(
        page,
        "`kubectl get {command}` shows (those marked *wide* with `-o wide`):\n\n| column | what it is |\n|---|---|\n"
    )
    .expect("a String takes any text");
    let versions = kind.definition.spec.versions.iter();
    for column in versions.flat_map(|version| version.additional_printer_columns.iter().flatten()) {
        let wide = if column.priority.unwrap_or(0) > 0 { " *wide*" } else { "" };
        let what = column.description.as_deref().unwrap_or("How old the object is.");
        writeln!(page, "| {}{wide} | {what} |", column.name).expect("a String takes any text");
    }
}

/// All fields in one table.
pub fn summary(page: &mut String, kind: &Kind, fields: &[&Field]) {
    page.push_str("\n## All fields at a glance\n\n| field | type | default | on change |\n|---|---|---|---|\n");
    for field in fields {
        let node = v1::at(&kind.schema, field.path).expect("the table names fields that exist");
        let depth = "&nbsp;&nbsp;".repeat(field.path.matches('.').count() - 1);
        let name = field.path.rsplit('.').next().unwrap_or_default();
        let default = if field.on_change == OnChange::Group { String::new() } else { default_of(node) };
        let anchor = anchor(field.path);
        writeln!(
            page,
            "| {depth}[`{name}`](#{anchor}) | {} | {default} | {} |",
            cell(&type_of(node)),
            short(field.on_change)
        )
        .expect("a String takes any text");
    }
}

/// Each field of the spec.
pub fn sections(page: &mut String, kind: &Kind) {
    page.push_str("\n## Spec\n");
    for field in documented(kind) {
        section(page, kind, field);
    }
}

fn section(page: &mut String, kind: &Kind, field: &Field) {
    let node = v1::at(&kind.schema, field.path).expect("the table names fields that exist");
    write!(page, "\n### {}\n\n{}\n", field.path, prose(text(node, "description"))).expect("a String takes any text");
    if field.on_change == OnChange::Group {
        return;
    }
    page.push('\n');
    writeln!(page, "- Type: {}", type_of(node)).expect("a String takes any text");
    if node.get("default").is_some() {
        writeln!(page, "- Default: {}", default_of(node)).expect("a String takes any text");
    }
    if let Some(bounds) = bounds(node) {
        writeln!(page, "- Bounds: {bounds}").expect("a String takes any text");
    }
    push_rules(page, &kind.fields, field.path);
    push_rules(page, &kind.fields, &format!("{}[]", field.path));
}

/// The rules that speak of the field at `path`, wherever in the table they are kept.
pub fn push_rules(page: &mut String, all: &[Field], path: &str) {
    for rule in all.iter().flat_map(|field| &field.rules).filter(|rule| rule.field == path) {
        // The owned settings have a page of their own.
        if rule.complaint.starts_with("can't be set, because") {
            continue;
        }
        writeln!(page, "- Refused with: *{}: \"…\" {}*", rule.field, prose(&rule.complaint))
            .expect("a String takes any text");
    }
    if path == "spec.parameters" {
        page.push_str("- Refused: [settings that Bellwether owns](parameters.md)\n");
    }
}

/// What Bellwether answers.
pub fn status(page: &mut String, kind: &Kind) {
    page.push_str("| field | type | what it is |\n|---|---|---|\n");
    push_status(page, v1::at(&kind.schema, "status").expect("there is a status"), "status");
}

fn push_status(page: &mut String, node: &Value, path: &str) {
    for (name, child) in node["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        let (kind, what) = (cell(&type_of(child)), cell(&prose(text(child, "description"))));
        writeln!(page, "| `{path}` | {kind} | {what} |").expect("a String takes any text");
        if name == "conditions" {
            continue;
        }
        push_status(page, child, &path);
        push_status(page, &child["items"], &format!("{path}[]"));
    }
}

/// A text of the schema, or nothing.
pub fn text<'a>(node: &'a Value, key: &str) -> &'a str {
    node[key].as_str().unwrap_or_default()
}

fn type_of(node: &Value) -> String {
    if let Some(choices) = node["enum"].as_array() {
        let choices: Vec<_> =
            choices.iter().map(|choice| format!("`{}`", choice.as_str().unwrap_or_default())).collect();
        return format!("one of {}", choices.join(", "));
    }
    if node["x-kubernetes-int-or-string"] == true {
        return "quantity".to_owned();
    }
    match text(node, "type") {
        "array" => format!("list of {}", type_of(&node["items"])),
        "object" if node["additionalProperties"].is_object() => {
            format!("map to {}", type_of(&node["additionalProperties"]))
        }
        "string" if node["format"] == "date-time" => "time".to_owned(),
        other => other.to_owned(),
    }
}

fn default_of(node: &Value) -> String {
    match node.get("default") {
        None => String::new(),
        Some(Value::String(text)) => format!("`{text}`"),
        Some(other) => format!("`{other}`"),
    }
}

fn bounds(node: &Value) -> Option<String> {
    let number = |key: &str| node[key].as_f64().map(|number| format!("{number}"));
    let said: Vec<_> = [
        number("minimum").map(|least| format!("at least {least}")),
        number("maximum").map(|most| format!("at most {most}")),
        number("maxLength").map(|most| format!("at most {most} characters")),
        number("maxItems").map(|most| format!("at most {most} entries")),
        number("maxProperties").map(|most| format!("at most {most} entries")),
    ]
    .into_iter()
    .flatten()
    .collect();
    (!said.is_empty()).then(|| said.join(", "))
}

fn short(on_change: OnChange) -> &'static str {
    match on_change {
        OnChange::Group => "",
        OnChange::NoRestart => "no restart",
        OnChange::Reload => "no restart; some settings wait for one",
        OnChange::Restart => "restart",
        OnChange::Grows => "grows only",
        OnChange::OnceInitialised => "not once the database exists",
        OnChange::Immutable => "immutable",
    }
}

fn anchor(path: &str) -> String {
    path.to_ascii_lowercase().replace('.', "")
}
