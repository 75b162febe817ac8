//! What is asked of a CEL rule before its CRD is stored: that it compiles, names only fields that exist, and can't run for ages.
//!
//! The library that evaluates rules knows no types, so the fields and the cost are checked here, on the rule's syntax tree, against
//! the schema. What can't be told from the schema passes.

use kube_cel::cel::Program;
use kube_cel::cel::common::ast::operators::INDEX;
use kube_cel::cel::common::ast::{ComprehensionExpr, EntryExpr, Expr};
use serde_json::Value;

use crate::error::{FieldError, Problem};

/// Steps that one rule may take by estimate.
const BUDGET: f64 = 10_000_000.0;

/// How many elements a list can have that states no limit: as many as fit into a request, at a few bytes each.
const UNBOUNDED: f64 = 1_000_000.0;

/// What is wrong with the rules of one node of a schema at `path`.
pub(crate) fn rule_errors(node: &Value, path: &str) -> Vec<FieldError> {
    let rules = node["x-kubernetes-validations"].as_array().into_iter().flatten();
    rules.enumerate().filter_map(|(index, rule)| rule_error(node, path, index, rule)).collect()
}

fn rule_error(node: &Value, path: &str, index: usize, rule: &Value) -> Option<FieldError> {
    let at = format!("{path}.x-kubernetes-validations[{index}]");
    let text = rule["rule"].as_str().unwrap_or_default();
    let expression = rule["messageExpression"].as_str();
    for (field, source) in [("rule", Some(text)), ("messageExpression", expression)] {
        let Some(source) = source else { continue };
        let program = match Program::compile(source) {
            Ok(program) => program,
            Err(error) => {
                return Some(refused(format!("{at}.{field}"), source, &format!("compilation failed: ERROR: {error}")));
            }
        };
        let mut checker = Checker { scope: Vec::new(), times: 1.0, cost: 0.0, problem: None };
        // With an optional old value its fields are reached through functions.
        let old = (rule["optionalOldSelf"] != true).then_some(node);
        checker.scope.extend([("self".to_owned(), Some(node)), ("oldSelf".to_owned(), old)]);
        checker.visit(&program.expression().expr);
        if let Some(problem) = checker.problem {
            return Some(refused(format!("{at}.{field}"), source, &located(source, &problem)));
        }
        if checker.cost > BUDGET {
            let factor = checker.cost / BUDGET;
            let by = if factor > 100.0 { "more than 100x".to_owned() } else { format!("{factor:.1}x") };
            let detail = format!(
                "estimated rule cost exceeds budget by factor of {by} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
            );
            return Some(FieldError::forbidden(format!("{at}.{field}"), detail));
        }
    }
    None
}

fn refused(field: String, source: &str, why: &str) -> FieldError {
    FieldError { field, problem: Problem::Invalid, detail: format!("{}: {why}", Value::from(source)) }
}

struct Undefined {
    field: String,
    why: String,
}

/// The message with the place of the field under the rule, as CEL's own compiler shows it.
fn located(source: &str, problem: &Undefined) -> String {
    let column = source.find(&format!(".{}", problem.field)).unwrap_or(0);
    format!(
        "compilation failed: ERROR: <input>:1:{}: {}\n | {source}\n | {}^",
        column + 1,
        problem.why,
        ".".repeat(column)
    )
}

struct Checker<'a> {
    /// Variables and the schemas of their values, where known.
    scope: Vec<(String, Option<&'a Value>)>,
    /// How often the current expression is evaluated.
    times: f64,
    cost: f64,
    problem: Option<Undefined>,
}

impl<'a> Checker<'a> {
    /// Checks an expression and returns the schema of its value, where known.
    fn visit(&mut self, expression: &Expr) -> Option<&'a Value> {
        self.cost += self.times;
        match expression {
            Expr::Ident(name) => self.scope.iter().rev().find(|(one, _)| one == name).and_then(|(_, schema)| *schema),
            Expr::Select(select) => {
                let of = self.visit(&select.operand.expr)?;
                self.field(of, &select.field)
            }
            Expr::Call(call) => {
                let target = call.target.as_ref().map(|target| self.visit(&target.expr));
                let args: Vec<Option<&Value>> = call.args.iter().map(|arg| self.visit(&arg.expr)).collect();
                if call.func_name == INDEX {
                    return target.or_else(|| args.first().copied()).flatten().and_then(element);
                }
                None
            }
            Expr::Comprehension(comprehension) => {
                self.comprehension(comprehension);
                None
            }
            Expr::List(list) => {
                for item in &list.elements {
                    self.visit(&item.expr);
                }
                None
            }
            Expr::Map(map) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        self.visit(&entry.key.expr);
                        self.visit(&entry.value.expr);
                    }
                }
                None
            }
            Expr::Literal(_) | Expr::Struct(_) | Expr::Unspecified => None,
        }
    }

    fn field(&mut self, of: &'a Value, name: &str) -> Option<&'a Value> {
        // Names that are no identifiers are written escaped; those are taken on trust.
        let trusted = name.contains("__") || matches!(name, "apiVersion" | "kind" | "metadata");
        let open = of["x-kubernetes-preserve-unknown-fields"] == true || of["x-kubernetes-int-or-string"] == true;
        if let Some(schema) = of.get("properties").and_then(|all| all.get(name)) {
            return Some(schema);
        }
        if let Some(schema) = of.get("additionalProperties") {
            return Some(schema).filter(|schema| schema.is_object());
        }
        let why = match of["type"].as_str() {
            _ if trusted || open => return None,
            None => return None,
            Some("object") => format!("undefined field '{name}'"),
            Some(kind) => format!("type '{}' does not support field selection", cel_type(kind)),
        };
        self.problem.get_or_insert(Undefined { field: name.to_owned(), why });
        None
    }

    fn comprehension(&mut self, comprehension: &ComprehensionExpr) {
        let range = self.visit(&comprehension.iter_range.expr);
        let times = range.map_or(1.0, |range| {
            let limit = range["maxItems"].as_f64().or_else(|| range["maxProperties"].as_f64());
            limit.unwrap_or(UNBOUNDED)
        });
        let item = range.filter(|range| range.get("items").is_some()).and_then(element);
        let outside = (self.scope.len(), self.times);
        self.visit(&comprehension.accu_init.expr);
        self.scope.push((comprehension.iter_var.clone(), item));
        self.scope.extend(comprehension.iter_var2.iter().map(|name| (name.clone(), None)));
        self.scope.push((comprehension.accu_var.clone(), None));
        self.times *= times;
        self.visit(&comprehension.loop_cond.expr);
        self.visit(&comprehension.loop_step.expr);
        self.times = outside.1;
        self.visit(&comprehension.result.expr);
        self.scope.truncate(outside.0);
    }
}

fn element(schema: &Value) -> Option<&Value> {
    schema.get("items").or_else(|| schema.get("additionalProperties")).filter(|schema| schema.is_object())
}

fn cel_type(kind: &str) -> &str {
    match kind {
        "integer" => "int",
        "number" => "double",
        "boolean" => "bool",
        "array" => "list",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn said(rule: &str) -> Option<String> {
        let node = json!({
            "type": "object",
            "properties": {
                "a": {"type": "string"}, "n": {"type": "integer"}, "list": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "integer"}}}},
                "short": {"type": "array", "maxItems": 10, "items": {"type": "string"}},
                "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"y": {"type": "integer"}}}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            },
            "x-kubernetes-validations": [{"rule": rule}],
        });
        rule_errors(&node, "s").first().map(FieldError::body)
    }

    #[test]
    fn sound_rules_pass() {
        for rule in [
            "self.a == 'x'",
            "self.list.all(i, i.x > 1)",
            "self.list[0].x > 1",
            "self.map['k'].y > 1",
            "!has(self.n) || self.n > 1",
            "self.free.anything == 1",
            "self.short.all(x, self.short.all(y, self.short.all(z, x != y || y != z)))",
            "self.a.matches('^x$') && size(self.a) < 3",
        ] {
            assert_eq!(said(rule), None, "{rule}");
        }
    }

    #[test]
    fn a_field_that_does_not_exist_is_pointed_at() {
        assert_eq!(
            said("self.b > 1").unwrap(),
            "Invalid value: \"self.b > 1\": compilation failed: ERROR: <input>:1:5: undefined field 'b'\n | self.b > 1\n | ....^"
        );
        assert!(said("self.n.deep > 1").unwrap().contains("type 'int' does not support field selection"));
        assert!(said("self.list.exists(i, i.z == 1)").unwrap().contains("undefined field 'z'"));
    }

    #[test]
    fn a_rule_that_could_run_for_ages_is_refused() {
        let message = said("self.list.all(x, self.list.all(y, self.list.all(z, x.x != y.x || y.x != z.x)))").unwrap();
        assert!(message.contains("estimated rule cost exceeds budget by factor of more than 100x"), "{message}");
    }

    #[test]
    fn a_rule_that_does_not_parse_is_refused() {
        assert!(said("self.a ==").unwrap().contains("compilation failed"));
    }
}
