//! Sets of fields, in the form that `managedFields` carries (FieldsV1).
//!
//! A set is a tree. An edge is a path element as FieldsV1 writes it: `f:name` a field, `k:{…}` a list element by its keys, `v:…` an
//! element of a set by its value. A node is a member, or only leads to members.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::shape::Shape;

/// A set of paths. What two sets have in common they share: most of what a write does to one leaves most of it alone.
#[derive(Clone, Debug, Default)]
pub(in crate::store) struct FieldSet {
    /// Nothing where there are none: most sets that are made stay empty.
    nodes: Option<Arc<Nodes>>,
}

type Nodes = BTreeMap<Arc<str>, Node>;

static NONE: Nodes = Nodes::new();

impl PartialEq for FieldSet {
    fn eq(&self, other: &Self) -> bool {
        self.is(other) || self.nodes() == other.nodes()
    }
}

impl Eq for FieldSet {}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Node {
    member: bool,
    children: FieldSet,
}

impl FieldSet {
    fn nodes(&self) -> &Nodes {
        self.nodes.as_deref().unwrap_or(&NONE)
    }

    /// Whether it is the very same set.
    fn is(&self, other: &FieldSet) -> bool {
        match (&self.nodes, &other.nodes) {
            (Some(mine), Some(theirs)) => Arc::ptr_eq(mine, theirs),
            (None, None) => true,
            _ => false,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes().values().all(|node| !node.member && node.children.is_empty())
    }

    /// Whether an element at this level is a member.
    pub(super) fn has(&self, element: &str) -> bool {
        self.nodes().get(element).is_some_and(|node| node.member)
    }

    /// What lies below an element.
    pub(super) fn below(&self, element: &str) -> Option<&FieldSet> {
        self.nodes().get(element).map(|node| &node.children).filter(|children| !children.is_empty())
    }

    /// How many elements this level has.
    pub(super) fn len(&self) -> usize {
        self.nodes().len()
    }

    /// An element of this level: whether it is a member, and what lies below it.
    pub(super) fn element(&self, element: &str) -> Option<(bool, &FieldSet)> {
        self.nodes().get(element).map(|node| (node.member, &node.children))
    }

    /// The elements of this level: whether each is a member, and what lies below it.
    pub(super) fn elements(&self) -> impl Iterator<Item = (&str, bool, &FieldSet)> {
        self.nodes().iter().map(|(element, node)| (&**element, node.member, &node.children))
    }

    pub(super) fn union(&self, other: &FieldSet) -> FieldSet {
        if self.nodes().is_empty() || self.is(other) {
            return other.clone();
        }
        if other.nodes().is_empty() {
            return self.clone();
        }
        let mut all = self.clone();
        for (element, theirs) in other.nodes() {
            match self.nodes().get(element) {
                Some(mine) => {
                    let children = mine.children.union(&theirs.children);
                    all.change(element, mine, mine.member || theirs.member, children);
                }
                None => all.put(element.clone(), theirs.member, theirs.children.clone()),
            }
        }
        all
    }

    /// Whether every member of this is one of the other.
    pub(super) fn within(&self, other: &FieldSet) -> bool {
        self.is(other)
            || self.nodes().iter().all(|(element, node)| match other.nodes().get(element) {
                Some(theirs) => (!node.member || theirs.member) && node.children.within(&theirs.children),
                None => !node.member && node.children.is_empty(),
            })
    }

    pub(super) fn intersection(&self, other: &FieldSet) -> FieldSet {
        let mut both = FieldSet::default();
        for (element, theirs) in other.nodes() {
            if let Some(mine) = self.nodes().get(element) {
                both.put(element.clone(), mine.member && theirs.member, mine.children.intersection(&theirs.children));
            }
        }
        both
    }

    /// What it says of some fields: of each what `below` leaves of it.
    pub(super) fn of_fields(&self, below: impl Fn(&str, &FieldSet) -> Option<FieldSet>) -> FieldSet {
        let mut kept = FieldSet::default();
        for (element, node) in self.nodes() {
            if let Some(children) = element.strip_prefix("f:").and_then(|field| below(field, &node.children)) {
                kept.put(element.clone(), node.member, children);
            }
        }
        kept
    }

    /// Members that are not members of the other; what lies below one of those stays.
    pub(super) fn difference(&self, other: &FieldSet) -> FieldSet {
        let mut rest = self.clone();
        for (element, theirs) in other.nodes() {
            if let Some(mine) = self.nodes().get(element) {
                let children = mine.children.difference(&theirs.children);
                rest.change(element, mine, mine.member && !theirs.member, children);
            }
        }
        rest
    }

    /// Without the other's members and all that lies below them.
    pub(super) fn without_subtrees(&self, other: &FieldSet) -> FieldSet {
        let mut kept = FieldSet::default();
        for (element, node) in self.nodes() {
            let children = match other.nodes().get(element) {
                Some(theirs) if theirs.member => continue,
                Some(theirs) => node.children.without_subtrees(&theirs.children),
                None => node.children.clone(),
            };
            kept.put(element.clone(), node.member, children);
        }
        kept
    }

    /// Sets an element of this level, unless that would say nothing.
    pub(super) fn put(&mut self, element: impl Into<Arc<str>>, member: bool, children: FieldSet) {
        if member || !children.is_empty() {
            Arc::make_mut(self.nodes.get_or_insert_default()).insert(element.into(), Node { member, children });
        }
    }

    /// Sets an element that was another, if it is: a set of which nothing changes stays shared.
    fn change(&mut self, element: &Arc<str>, was: &Node, member: bool, children: FieldSet) {
        if member == was.member && children.is(&was.children) {
            return;
        }
        if member || !children.is_empty() {
            self.put(element.clone(), member, children);
        } else if let Some(nodes) = &mut self.nodes {
            Arc::make_mut(nodes).remove(element);
        }
    }

    /// The set with every named field on the way to a member made a member itself, as far as the shape says that it is a field of a
    /// struct: a struct goes when all of its fields go.
    pub(super) fn with_named_fields(&self, shape: Shape<'_>) -> FieldSet {
        let mut result = self.clone();
        for (element, node) in self.nodes() {
            let field = element.strip_prefix("f:");
            let below = field.map_or_else(|| shape.element(), |name| shape.field(name));
            let children = node.children.with_named_fields(below);
            let named = || field.is_some_and(|name| shape.names(name));
            let member = node.member || (!children.is_empty() && named());
            result.change(element, node, member, children);
        }
        result
    }

    /// The members, those of a level before those below it.
    pub(super) fn paths(&self) -> Vec<Vec<String>> {
        let mut paths = Vec::new();
        self.collect(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect(&self, prefix: &mut Vec<String>, paths: &mut Vec<Vec<String>>) {
        for (element, _) in self.nodes().iter().filter(|(_, node)| node.member) {
            let mut path = prefix.clone();
            path.push(element.to_string());
            paths.push(path);
        }
        for (element, node) in self.nodes() {
            prefix.push(element.to_string());
            node.children.collect(prefix, paths);
            prefix.pop();
        }
    }

    /// As FieldsV1.
    pub(super) fn to_json(&self) -> Value {
        let mut map = Map::new();
        for (element, node) in self.nodes() {
            let mut below = match node.children.to_json() {
                Value::Object(below) => below,
                _ => Map::new(),
            };
            if node.member && !below.is_empty() {
                below.insert(".".into(), Value::Object(Map::new()));
            }
            map.insert(element.to_string(), Value::Object(below));
        }
        Value::Object(map)
    }

    /// From FieldsV1; what is not in that form is left out.
    pub(super) fn from_json(json: &Value) -> FieldSet {
        let mut set = FieldSet::default();
        for (element, below) in json.as_object().into_iter().flatten().filter(|(element, _)| *element != ".") {
            let member = below.as_object().is_none_or(|below| below.is_empty() || below.contains_key("."));
            set.put(element.as_str(), member, FieldSet::from_json(below));
        }
        set
    }
}

/// A path as conflicts name it: `.spec.ports[port=5432,protocol="TCP"].name`.
pub(super) fn display(path: &[String]) -> String {
    let mut text = String::new();
    for element in path {
        match element.split_at(2.min(element.len())) {
            ("f:", name) => {
                text.push('.');
                text.push_str(name);
            }
            ("k:", keys) => {
                let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
                let parts: Vec<String> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
                text.push_str(&format!("[{}]", parts.join(",")));
            }
            ("v:", value) => text.push_str(&format!("[={value}]")),
            (_, other) => text.push_str(&format!("[{other}]")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_v1_survives_a_round_trip() {
        let json = json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}}}, "f:spec": {"f:ports": {"k:{\"port\":1}": {".": {}, "f:name": {}}}, "f:x": {}}});
        assert_eq!(FieldSet::from_json(&json).to_json(), json);
    }

    #[test]
    fn difference_keeps_what_lies_below() {
        let set = FieldSet::from_json(&json!({"f:data": {".": {}, "f:x": {}}}));
        let gone = FieldSet::from_json(&json!({"f:data": {}}));
        assert_eq!(set.difference(&gone).to_json(), json!({"f:data": {"f:x": {}}}));
        assert!(set.without_subtrees(&gone).is_empty());
    }

    #[test]
    fn conflicts_name_paths_as_people_write_them() {
        let path = ["f:spec", "f:ports", "k:{\"port\":5432,\"protocol\":\"TCP\"}", "f:name"].map(String::from);
        assert_eq!(display(&path), ".spec.ports[port=5432,protocol=\"TCP\"].name");
        assert_eq!(
            display(&["f:metadata", "f:finalizers", "v:\"a/b\""].map(String::from)),
            ".metadata.finalizers[=\"a/b\"]"
        );
    }
}
