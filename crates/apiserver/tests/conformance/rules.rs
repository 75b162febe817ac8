//! Validation of custom resources by rules in CEL.

use serde_json::{Value, json};

use crate::custom::{Definition, Resource};
use crate::runner::cases;
use crate::world::{Patch, World};

cases![
    a_broken_rule_answers_with_its_message,
    a_broken_rule_without_a_message_shows_the_rule,
    a_message_may_be_computed,
    a_rule_that_may_cost_too_much_is_refused,
    a_rule_may_name_the_field_and_the_reason,
    a_transition_rule_sees_the_old_value,
    a_transition_rule_does_not_run_on_create,
    an_optional_old_value_runs_on_create,
    a_rule_may_compare_quantities,
    a_rule_may_ask_whether_a_field_is_there,
    a_rule_may_look_at_every_element,
    a_rule_may_use_text_functions,
    a_rule_may_look_at_the_keys_of_a_map,
    a_rule_is_not_asked_when_the_schema_already_refuses,
    a_rule_of_an_unchanged_field_is_tolerated_on_update,
    a_rule_on_the_whole_object_sees_its_name,
    a_status_write_is_checked_by_rules_of_the_status,
];

async fn ruled(w: &World, properties: &Value, rules: &Value) -> Resource {
    let spec = json!({"type": "object", "properties": properties, "x-kubernetes-validations": rules});
    w.install(Definition::new(w, &spec)).await
}

async fn a_broken_rule_answers_with_its_message(w: World) {
    let properties = json!({"low": {"type": "integer"}, "high": {"type": "integer"}});
    let rules = json!([{"rule": "self.low <= self.high", "message": "low must not exceed high"}]);
    let widgets = ruled(&w, &properties, &rules).await;
    widgets.given(&w, "good", &json!({"low": 1, "high": 2})).await;
    let refusal =
        w.post(&widgets.path, &widgets.object("a", &json!({"low": 3, "high": 2}))).await.refused(422, "Invalid");
    let refusal = refusal
        .saying(&format!("Widget.{} \"a\" is invalid: spec: Invalid value: low must not exceed high", widgets.group));
    assert_eq!(refusal.cause("spec", "FieldValueInvalid"), "Invalid value: low must not exceed high");
}

async fn a_broken_rule_without_a_message_shows_the_rule(w: World) {
    let size = json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self % 2 == 1"}]});
    let widgets = w.install(Definition::with_properties(&w, &json!({"size": size}))).await;
    let refusal = w.post(&widgets.path, &widgets.object("a", &json!({"size": 2}))).await.refused(422, "Invalid");
    assert_eq!(refusal.cause("spec.size", "FieldValueInvalid"), "Invalid value: 2: failed rule: self % 2 == 1");
}

async fn a_message_may_be_computed(w: World) {
    let expression = "'\"' + self + '\" is no version: write 17'";
    let version = json!({
        "type": "string", "maxLength": 10,
        "x-kubernetes-validations": [{"rule": "self == '17'", "message": "wrong", "messageExpression": expression}],
    });
    let widgets = w.install(Definition::with_properties(&w, &json!({"version": version}))).await;
    let refusal =
        w.post(&widgets.path, &widgets.object("a", &json!({"version": "latest"}))).await.refused(422, "Invalid");
    refusal.mentioning(&["spec.version: Invalid value: \"latest\": \"latest\" is no version: write 17"]);
}

async fn a_rule_that_may_cost_too_much_is_refused(w: World) {
    let rules = json!([{"rule": "self.all(x, self.all(y, self.all(z, x != y || y != z)))"}]);
    let list = json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-validations": rules});
    let definition = Definition::with_properties(&w, &json!({"list": list}));
    w.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition.body)
        .await
        .refused(422, "Invalid")
        .mentioning(&["estimated rule cost exceeds budget by factor of more than 100x"]);
}

async fn a_rule_may_name_the_field_and_the_reason(w: World) {
    let properties = json!({"mode": {"type": "string"}, "size": {"type": "integer"}});
    let rules = json!([{
        "rule": "self.mode != 'fixed' || has(self.size)", "message": "a fixed mode needs a size",
        "fieldPath": ".size", "reason": "FieldValueRequired",
    }]);
    let widgets = ruled(&w, &properties, &rules).await;
    let refusal = w.post(&widgets.path, &widgets.object("a", &json!({"mode": "fixed"}))).await.refused(422, "Invalid");
    assert_eq!(refusal.cause("spec.size", "FieldValueRequired"), "Required value: a fixed mode needs a size");
}

fn immutable() -> Value {
    json!({
        "type": "string", "default": "x",
        "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "the field is immutable"}],
    })
}

async fn a_transition_rule_sees_the_old_value(w: World) {
    let widgets = w.install(Definition::with_properties(&w, &json!({"field": immutable()}))).await;
    widgets.given(&w, "a", &json!({"field": "one"})).await;
    w.patch(Patch::Merge, &widgets.at("a"), &json!({"spec": {"field": "two"}}))
        .await
        .refused(422, "Invalid")
        .mentioning(&["spec.field: Invalid value: \"two\": the field is immutable"]);
    w.patch(Patch::Merge, &widgets.at("a"), &json!({"metadata": {"labels": {"l": "x"}}})).await.code(200);
}

async fn a_transition_rule_does_not_run_on_create(w: World) {
    let widgets = w.install(Definition::with_properties(&w, &json!({"field": immutable()}))).await;
    w.post(&widgets.path, &widgets.object("a", &json!({"field": "anything"}))).await.code(201);
}

async fn an_optional_old_value_runs_on_create(w: World) {
    let rule = json!({
        "rule": "oldSelf.hasValue() || self == 'start'", "optionalOldSelf": true, "message": "begin with start",
    });
    let field = json!({"type": "string", "x-kubernetes-validations": [rule]});
    let widgets = w.install(Definition::with_properties(&w, &json!({"field": field}))).await;
    w.post(&widgets.path, &widgets.object("a", &json!({"field": "later"})))
        .await
        .refused(422, "Invalid")
        .mentioning(&["spec.field: Invalid value: \"later\": begin with start"]);
    widgets.given(&w, "a", &json!({"field": "start"})).await;
    w.patch(Patch::Merge, &widgets.at("a"), &json!({"spec": {"field": "later"}})).await.code(200);
}

async fn a_rule_may_compare_quantities(w: World) {
    let size = json!({
        "x-kubernetes-int-or-string": true,
        "x-kubernetes-validations": [
            {"rule": "isQuantity(string(self))", "message": "write a quantity such as 10Gi"},
            {"rule": "!isQuantity(string(self)) || !isQuantity(string(oldSelf)) || \
                      quantity(string(self)).compareTo(quantity(string(oldSelf))) >= 0", "message": "volumes can't shrink"},
        ],
    });
    let widgets = w.install(Definition::with_properties(&w, &json!({"size": size}))).await;
    widgets.given(&w, "a", &json!({"size": "1Gi"})).await;
    let change = async |size: &str| w.patch(Patch::Merge, &widgets.at("a"), &json!({"spec": {"size": size}})).await;
    change("1024Mi").await.code(200);
    change("1000Mi")
        .await
        .refused(422, "Invalid")
        .mentioning(&["spec.size: Invalid value: \"1000Mi\": volumes can't shrink"]);
    change("2Gi").await.code(200);
    change("much").await.refused(422, "Invalid").mentioning(&["\"much\": write a quantity such as 10Gi"]);
}

async fn a_rule_may_ask_whether_a_field_is_there(w: World) {
    let properties = json!({"one": {"type": "string"}, "two": {"type": "string"}});
    let rules = json!([{"rule": "has(self.one) != has(self.two)", "message": "set one or two, not both"}]);
    let widgets = ruled(&w, &properties, &rules).await;
    widgets.given(&w, "a", &json!({"one": "x"})).await;
    w.post(&widgets.path, &widgets.object("b", &json!({"one": "x", "two": "y"}))).await.refused(422, "Invalid");
    w.post(&widgets.path, &widgets.object("c", &json!({}))).await.refused(422, "Invalid");
}

async fn a_rule_may_look_at_every_element(w: World) {
    let ports = json!({
        "type": "array", "maxItems": 5, "items": {"type": "integer"},
        "x-kubernetes-validations": [
            {"rule": "self.all(p, p > 1023)", "message": "ports below 1024 are taken"},
            {"rule": "self.exists_one(p, p == 5432)", "message": "exactly one must be 5432"},
        ],
    });
    let widgets = w.install(Definition::with_properties(&w, &json!({"ports": ports}))).await;
    widgets.given(&w, "a", &json!({"ports": [5432, 8080]})).await;
    let refusal =
        w.post(&widgets.path, &widgets.object("b", &json!({"ports": [80, 8080]}))).await.refused(422, "Invalid");
    refusal.mentioning(&["ports below 1024 are taken", "exactly one must be 5432"]);
}

async fn a_rule_may_use_text_functions(w: World) {
    let field = json!({
        "type": "string", "maxLength": 64,
        "x-kubernetes-validations": [
            {"rule": "self.split(' ').size() == 5", "message": "write five fields"},
            {"rule": "self.matches('^[0-9* ,/-]+$')", "message": "only digits"},
            {"rule": "!self.startsWith(' ') && self.lowerAscii() == self", "message": "no space in front"},
        ],
    });
    let widgets = w.install(Definition::with_properties(&w, &json!({"field": field}))).await;
    widgets.given(&w, "a", &json!({"field": "0 2 * * *"})).await;
    let refusal =
        w.post(&widgets.path, &widgets.object("b", &json!({"field": "0 2 * *"}))).await.refused(422, "Invalid");
    refusal.mentioning(&["spec.field: Invalid value: \"0 2 * *\": write five fields"]);
}

async fn a_rule_may_look_at_the_keys_of_a_map(w: World) {
    let parameters = json!({
        "type": "object", "maxProperties": 20, "additionalProperties": {"type": "string", "maxLength": 64},
        "x-kubernetes-validations": [
            {"rule": "!self.exists(k, k in ['port', 'ssl'])", "message": "remove port and ssl: they are owned"},
            {"rule": "!('wal_level' in self) || self['wal_level'] == 'logical'", "message": "wal_level is logical"},
        ],
    });
    let widgets = w.install(Definition::with_properties(&w, &json!({"parameters": parameters}))).await;
    widgets.given(&w, "a", &json!({"parameters": {"work_mem": "4MB", "wal_level": "logical"}})).await;
    let body = widgets.object("b", &json!({"parameters": {"work_mem": "4MB", "port": "1", "wal_level": "minimal"}}));
    let refusal = w.post(&widgets.path, &body).await.refused(422, "Invalid");
    let refusal = refusal.mentioning(&["remove port and ssl: they are owned", "wal_level is logical"]);
    refusal.cause("spec.parameters", "FieldValueInvalid");
}

async fn a_rule_is_not_asked_when_the_schema_already_refuses(w: World) {
    let size =
        json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self > 5", "message": "more than five"}]});
    let widgets = w.install(Definition::with_properties(&w, &json!({"size": size}))).await;
    let refusal = w.post(&widgets.path, &widgets.object("a", &json!({"size": "three"}))).await.refused(422, "Invalid");
    let message = refusal.body["message"].as_str().unwrap_or_default();
    assert!(message.contains("must be of type integer"), "{message}");
    assert!(!message.contains("more than five"), "{message}");
}

async fn a_rule_of_an_unchanged_field_is_tolerated_on_update(w: World) {
    let widgets = w
        .install(Definition::with_properties(&w, &json!({"size": {"type": "integer"}, "other": {"type": "string"}})))
        .await;
    widgets.given(&w, "a", &json!({"size": 1})).await;
    let path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/x-kubernetes-validations";
    let rules = json!([{"rule": "self >= 5", "message": "five or more"}]);
    w.patch(Patch::Json, &widgets.definition, &json!([{"op": "add", "path": path, "value": rules}])).await.code(200);
    let dry = format!("{}?dryRun=All", widgets.path);
    w.until("the new rule", async || {
        (w.post(&dry, &widgets.object("b", &json!({"size": 1}))).await.code == 422).then_some(())
    })
    .await;
    w.patch(Patch::Merge, &widgets.at("a"), &json!({"spec": {"other": "x"}})).await.code(200);
    w.patch(Patch::Merge, &widgets.at("a"), &json!({"spec": {"size": 2}})).await.refused(422, "Invalid");
}

async fn a_rule_on_the_whole_object_sees_its_name(w: World) {
    let mut definition = Definition::with_properties(&w, &json!({}));
    definition.version()["schema"]["openAPIV3Schema"]["x-kubernetes-validations"] =
        json!([{"rule": "self.metadata.name.size() <= 5", "message": "a name of at most five characters"}]);
    let widgets = w.install(definition).await;
    widgets.given(&w, "short", &json!({})).await;
    w.post(&widgets.path, &widgets.object("too-long", &json!({})))
        .await
        .refused(422, "Invalid")
        .mentioning(&["a name of at most five characters"]);
}

async fn a_status_write_is_checked_by_rules_of_the_status(w: World) {
    let mut definition = Definition::with_properties(&w, &json!({"size": {"type": "integer"}}));
    definition.version()["schema"]["openAPIV3Schema"]["properties"]["status"] = json!({
        "type": "object", "properties": {"term": {
            "type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf", "message": "a term never falls"}],
        }},
    });
    let widgets = w.install(definition).await;
    widgets.given(&w, "a", &json!({"size": 1})).await;
    let term =
        async |term: i64| w.patch(Patch::Merge, &widgets.at("a/status"), &json!({"status": {"term": term}})).await;
    term(3).await.code(200);
    term(2).await.refused(422, "Invalid").mentioning(&["status.term: Invalid value: 2: a term never falls"]);
}
