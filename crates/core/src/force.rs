//! Decides how a person's word that an instance is to lead, whatever is lost by it, is written on the Lease, and what is left of it there.
//!
//! The wish is an annotation that the next write of the Lease removes, so that it is followed at most once. What was done is another, which
//! stays: it is the record that acknowledged commits may be gone. Never: takes what can't be understood for a wish.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::election::Whom;
use crate::instance::switchover::ANY;
use crate::wal::Term;

/// Annotation on the Lease: the wish. Written by people, or for them by `bellwether failover`; removed by the next write of the Lease.
pub const WISH: &str = "bellwether.dev/force-failover";
/// Annotation on the Lease: what was done. Written by the agent that led by force.
pub const RECORD: &str = "bellwether.dev/forced-failover";

/// The wish.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Wish {
    /// An instance's name, or `any`: then the one with the longest log of those who answer.
    pub to: String,
    /// The highest term when it was made: in any other it counts for nothing.
    pub term: Option<Term>,
    /// When, for people.
    #[serde(default)]
    pub at: Option<String>,
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Who leads by force.
    pub instance: String,
    /// In which term.
    pub term: Term,
    /// When.
    pub at: String,
    /// When it was asked for.
    #[serde(default)]
    pub asked: Option<String>,
    /// Who was not heard: names where they are known, otherwise identities.
    #[serde(default)]
    pub unheard: Vec<String>,
}

impl Wish {
    /// What the Lease says, if anybody wishes anything that can be understood.
    pub fn on(object: &Value) -> Option<Self> {
        serde_json::from_str(object["metadata"]["annotations"][WISH].as_str()?).ok()
    }

    /// What it is to the instance of this name.
    pub fn whom(&self, me: &str) -> Whom {
        match self.to.as_str() {
            ANY => Whom::Best,
            name if name == me => Whom::Me,
            _ => Whom::Another,
        }
    }
}

impl Record {
    /// What the annotation says.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

impl std::fmt::Display for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { instance, term, at, unheard, .. } = self;
        write!(f, "{instance} was made to lead term {} by force at {at}", term.0)?;
        if unheard.is_empty() {
            return write!(f, ", though another had more; what only that one had is lost");
        }
        write!(f, ", though {} did not answer; what only they had is lost", unheard.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lease(wish: &str) -> Value {
        json!({"metadata": {"annotations": {WISH: wish}}})
    }

    #[test]
    fn a_wish_is_for_one_instance_or_for_whoever_has_most() {
        let wish = Wish::on(&lease(r#"{"to": "orders-2", "term": 4}"#)).unwrap();
        assert_eq!((wish.whom("orders-2"), wish.whom("orders-3")), (Whom::Me, Whom::Another));
        assert_eq!(wish.term, Some(Term(4)));
        assert_eq!(Wish::on(&lease(r#"{"to": "any", "term": null}"#)).unwrap().whom("orders-3"), Whom::Best);
    }

    #[test]
    fn what_can_not_be_understood_is_no_wish() {
        for text in ["", "orders-2", "{}", r#"{"term": 4}"#] {
            assert_eq!(Wish::on(&lease(text)), None, "{text}");
        }
        assert_eq!(Wish::on(&json!({})), None);
    }
}
