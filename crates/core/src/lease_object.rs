//! Decides how the election's record is written on a Kubernetes Lease, and how it is read back.
//!
//! Never: takes what can't be understood for absent. A `sync` annotation that reads as "commits wait for nobody" when it was only
//! damaged would let a candidate lead without an acknowledged commit.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::election::{
    Edition, LeaseContent, LeaseUid, LeaseVersion, LeaseView, MemberId, Members, Rule, Span, Sync, Voters,
};
use crate::force;
use crate::wal::Term;

/// Annotation on the Lease: the UIDs of every instance that the holder has acknowledged, JSON. Written by the holder's agent.
pub const MEMBERS: &str = "bellwether.dev/members";
/// Annotation on the Lease: the rules of synchronous replication, JSON. Written by the holder's agent.
pub const SYNC: &str = "bellwether.dev/sync";
/// Annotation on the Lease: how often members and sync were changed, a number. Written by the holder's agent.
pub const EDITION: &str = "bellwether.dev/edition";

/// Annotation on the Lease: a person or a program wants another primary, this instance or `any`. Whoever writes the Lease next removes it: a
/// request is for the primary that is asked, and not for its successors.
pub const SWITCHOVER: &str = "bellwether.dev/switchover";

/// Annotation on the Lease: when the operator asked for that, for a rollout. It tells its own request from a person's, and is removed with it.
pub const SWITCHOVER_ASKED: &str = "bellwether.dev/switchover-asked";

/// Whom somebody wants as primary.
pub fn switchover(object: &Value) -> Option<&str> {
    object["metadata"]["annotations"][SWITCHOVER].as_str()
}

/// Why a Lease can't be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the Lease's {field} is {found:?}, which is not {expected}: nobody acts on it until it is")]
pub struct Unreadable {
    field: &'static str,
    found: String,
    expected: &'static str,
}

/// A rule as it is written. The holder's own is what it asks for, `null` where that is nothing; a former leader's names it too.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Former {
        by: String,
        // Said even where it is nothing: what is missing was lost.
        #[serde(deserialize_with = "Option::deserialize")]
        rule: Option<Count>,
    },
    Own(Option<Count>),
}

#[derive(Serialize, Deserialize)]
struct Count {
    needed: usize,
    members: Vec<String>,
}

/// What the Lease says. `lease` stands in for a duration that nobody wrote yet.
pub fn read(object: &Value, lease: Span) -> Result<LeaseView, Unreadable> {
    let (metadata, spec) = (&object["metadata"], &object["spec"]);
    let bad = |field, found: &Value, expected| Unreadable { field, found: found.to_string(), expected };
    let uid = &metadata["uid"];
    let uid = uid.as_str().and_then(MemberId::from_uid).ok_or_else(|| bad("uid", uid, "a UID"))?;
    let version = &metadata["resourceVersion"];
    let number = version.as_str().and_then(|text| text.parse().ok());
    let version = LeaseVersion(number.ok_or_else(|| bad("resourceVersion", version, "a number"))?);
    let holder = match spec["holderIdentity"].as_str() {
        None | Some("") => None,
        Some(text) => {
            Some(MemberId::from_uid(text).ok_or_else(|| bad("holderIdentity", &spec["holderIdentity"], "a UID"))?)
        }
    };
    let seconds = spec["leaseDurationSeconds"].as_u64();
    let content = LeaseContent {
        holder,
        term: spec["leaseTransitions"].as_u64().map(Term),
        members: members(&metadata["annotations"][MEMBERS])?,
        sync: sync(&metadata["annotations"][SYNC])?,
        duration: seconds.map_or(lease, |seconds| Span(seconds * 1_000)),
        edition: edition(&metadata["annotations"][EDITION])?,
    };
    Ok(LeaseView { uid: LeaseUid(uid.0), version, content })
}

fn members(annotation: &Value) -> Result<Members, Unreadable> {
    let Some(text) = annotation.as_str() else { return Ok(Members::default()) };
    let bad = || Unreadable { field: MEMBERS, found: text.to_owned(), expected: "a list of UIDs" };
    uids(&serde_json::from_str::<Vec<String>>(text).map_err(|_| bad())?).ok_or_else(bad)
}

fn sync(annotation: &Value) -> Result<Sync, Unreadable> {
    let Some(text) = annotation.as_str() else { return Ok(Sync::default()) };
    let bad = || Unreadable { field: SYNC, found: text.to_owned(), expected: "a list of rules" };
    let rules: Vec<Written> = serde_json::from_str(text).map_err(|_| bad())?;
    rules.into_iter().map(|rule| understood(rule).ok_or_else(bad)).collect()
}

fn edition(annotation: &Value) -> Result<Edition, Unreadable> {
    let Some(text) = annotation.as_str() else { return Ok(Edition::default()) };
    let bad = |_| Unreadable { field: EDITION, found: text.to_owned(), expected: "a number" };
    text.parse().map(Edition).map_err(bad)
}

fn understood(rule: Written) -> Option<Rule> {
    let (former, count) = match rule {
        Written::Former { by, rule } => (Some(MemberId::from_uid(&by)?), rule),
        Written::Own(rule) => (None, rule),
    };
    let voters = match count {
        None => None,
        // A rule that nobody can satisfy is no rule for "nobody".
        Some(count) => Some(Voters::new(count.needed, uids(&count.members)?)?),
    };
    Some(Rule { former, voters })
}

fn uids(texts: &[String]) -> Option<Members> {
    texts.iter().map(|text| MemberId::from_uid(text)).collect()
}

/// The object to PUT: `seen`, on which the write was decided, with the new content. Its version is the one seen (E1), and fields of
/// others stay. `now` makes it differ from what is stored: a PUT that changes nothing is answered with OK and keeps its version,
/// so a renewal without it would give tenure that nobody else can see.
pub fn written(seen: &Value, version: LeaseVersion, content: &LeaseContent, now: Timestamp) -> Value {
    let mut object = seen.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        // Who manages which field is told by the write, not repeated in it.
        metadata.remove("managedFields");
        metadata.insert("resourceVersion".to_owned(), version.0.to_string().into());
    }
    if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
        annotations.remove(SWITCHOVER);
        annotations.remove(SWITCHOVER_ASKED);
        annotations.remove(force::WISH);
    }
    let texts = |all: &Members| all.iter().map(|id| id.to_string()).collect::<Vec<_>>();
    let rule = |rule: &Rule| {
        let count = |voters: &Voters| Count { needed: voters.needed(), members: texts(voters.members()) };
        let voters = rule.voters.as_ref().map(count);
        match rule.former {
            Some(leader) => Written::Former { by: leader.to_string(), rule: voters },
            None => Written::Own(voters),
        }
    };
    let rules: Vec<_> = content.sync.rules().map(rule).collect();
    object["metadata"]["annotations"][MEMBERS] = json!(texts(&content.members)).to_string().into();
    object["metadata"]["annotations"][SYNC] = json!(rules).to_string().into();
    object["metadata"]["annotations"][EDITION] = content.edition.0.to_string().into();
    object["spec"]["holderIdentity"] = content.holder.map_or(Value::Null, |holder| holder.to_string().into());
    object["spec"]["leaseTransitions"] = content.term.map_or(Value::Null, |term| term.0.into());
    object["spec"]["renewTime"] = now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string().into();
    object["spec"]["leaseDurationSeconds"] = content.duration.0.div_ceil(1_000).into();
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: MemberId = MemberId(0xa);
    const B: MemberId = MemberId(0xb);

    fn empty() -> Value {
        json!({
            "metadata": {"name": "orders", "uid": MemberId(7).to_string(), "resourceVersion": "5", "managedFields": []},
            "spec": {},
        })
    }
    fn content() -> LeaseContent {
        let both: Members = [A, B].into_iter().collect();
        LeaseContent {
            holder: Some(A),
            term: Some(Term(3)),
            members: both.clone(),
            sync: Sync::only(None)
                .joined_by(Voters::new(2, both.clone()))
                .left_by(Some(B))
                .joined_by(Voters::new(1, both.without(A))),
            duration: Span(6_000),
            edition: Edition(9),
        }
    }

    #[test]
    fn what_was_written_reads_back_in_a_joint_step_too() {
        let object = written(&empty(), LeaseVersion(5), &content(), Timestamp::UNIX_EPOCH);
        let view = read(&object, Span(1)).unwrap();
        assert_eq!((view.version, view.content), (LeaseVersion(5), content()));
    }

    #[test]
    fn a_renewal_differs_from_what_it_renews() {
        let first = written(&empty(), LeaseVersion(5), &content(), Timestamp::UNIX_EPOCH);
        let later = Timestamp::from_microsecond(1).unwrap();
        assert_ne!(written(&first, LeaseVersion(5), &content(), later)["spec"], first["spec"]);
    }

    #[test]
    fn what_somebody_wishes_ends_with_the_next_write_and_what_was_done_stays() {
        let mut seen = empty();
        for key in [SWITCHOVER, SWITCHOVER_ASKED, force::WISH, force::RECORD] {
            seen["metadata"]["annotations"][key] = "x".into();
        }
        let object = written(&seen, LeaseVersion(5), &content(), Timestamp::UNIX_EPOCH);
        let annotations = object["metadata"]["annotations"].as_object().unwrap();
        let kept: Vec<_> =
            annotations.keys().filter(|key| seen["metadata"]["annotations"].get(key).is_some()).collect();
        assert_eq!(kept, [force::RECORD]);
    }

    #[test]
    fn a_lease_that_nobody_took_names_nobody() {
        let view = read(&empty(), Span(6_000)).unwrap();
        assert_eq!((view.content.holder, view.content.term, view.content.sync), (None, None, Sync::default()));
    }

    #[test]
    fn a_damaged_annotation_is_not_taken_for_none() {
        let former = json!([{"by": B.to_string()}]).to_string();
        let stranger = json!([{"by": "b", "rule": null}]).to_string();
        for (key, text) in [
            (MEMBERS, "{"),
            (MEMBERS, "[\"a\"]"),
            (SYNC, "[{}]"),
            (SYNC, "[{\"needed\":0,\"members\":[]}]"),
            (SYNC, &former),
            (SYNC, &stranger),
        ] {
            let mut object = empty();
            object["metadata"]["annotations"][key] = text.into();
            assert!(read(&object, Span(1)).is_err(), "{key}={text}");
        }
    }
}
