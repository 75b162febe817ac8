//! Decides which Secrets are made, completed or renewed.
//!
//! From: which keys are there, when certificates expire, which authority issued them, and the password that the user supplies. Never: replaces a
//! password that exists by one that nobody supplied, or the key of an authority that exists: everything that trusts it would stop to.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::SecretKeySelector;

use super::action::{Action, Content, Effect, Existing, SecretOrder, WaitingOn};
use crate::build::Parent;
use crate::build::secret::{self, SecretKind, Validity};
use crate::contract::{REPLICATION_USER, SUPERUSER};
use crate::fact::Fact;
use crate::observed::{Observed, Secret};

/// Ten years: replacing an authority means touching every client that pinned it.
pub const AUTHORITY_LIFETIME: SignedDuration = SignedDuration::from_hours(24 * 3650);
/// One year, and a third of it as lead: four months in which a renewal may fail before anybody is cut off.
pub const CERTIFICATE_LIFETIME: SignedDuration = SignedDuration::from_hours(24 * 365);

/// What to do about the Secrets, and when to look again.
#[derive(Clone, Debug, Default)]
pub struct Certificates {
    /// Orders, the authority first.
    pub actions: Vec<Action>,
    /// What is waited on.
    pub waiting_on: Vec<WaitingOn>,
    /// When the next certificate falls due for renewal.
    pub next_renewal: Option<Timestamp>,
}

/// Looks at the Secrets.
pub fn certificates(observed: &Observed, parent: &Parent<'_>, now: Timestamp) -> Certificates {
    let mut result = Certificates::default();
    if !observed.secrets.complete {
        result.waiting_on.push(WaitingOn::Sight(vec!["Secret".to_owned()]));
        return result;
    }
    let mut issuer = None;
    for kind in SecretKind::ALL {
        let seen = observed.secrets.items.get(&kind.name(parent));
        let source = source(observed, kind, seen);
        let need = need(parent, kind, seen, source, issuer, now);
        if kind == SecretKind::Ca {
            issuer = need.validity.not_after;
        }
        if let Some(lifetime) = lifetime(kind) {
            let due = need.validity.not_after.map(|end| end - lifetime / 3);
            result.next_renewal = [result.next_renewal, due].into_iter().flatten().min();
        }
        let Some((why, existing)) = need.why else { continue };
        if kind == SecretKind::App
            && let Some(waiting) = owner_password_missing(observed, parent, seen)
        {
            result.waiting_on.push(waiting);
            continue;
        }
        let shape = secret::secret(parent, kind, need.validity, source);
        let order =
            SecretOrder { kind, shape, content: content(parent, kind, need.validity, need.password_anew), existing };
        result.actions.push(Action { effect: Effect::Issue(order), why });
    }
    result
}

struct Need {
    why: Option<(String, Existing)>,
    validity: Validity,
    /// The password that is there gives way to the one that the user supplies now.
    password_anew: bool,
}

/// The edition of the user's own Secret that the password is, or is to be, taken from. One that is gone takes nothing back.
fn source<'a>(observed: &'a Observed, kind: SecretKind, seen: Option<&'a Secret>) -> Option<&'a str> {
    let taken = seen.and_then(|secret| secret.password_from.as_deref());
    match kind {
        SecretKind::App => observed.owner_password.known().map(String::as_str).or(taken),
        _ => None,
    }
}

fn need(
    parent: &Parent<'_>,
    kind: SecretKind,
    seen: Option<&Secret>,
    source: Option<&str>,
    issuer: Option<Timestamp>,
    now: Timestamp,
) -> Need {
    let issuer = issuer.filter(|_| matches!(kind, SecretKind::Server | SecretKind::Replication | SecretKind::App));
    let fresh = Validity { not_after: lifetime(kind).map(|lifetime| whole_seconds(now + lifetime)), issuer };
    let password_anew = seen.is_some_and(|secret| secret.password_from.as_deref() != source);
    let asking =
        |why: &str, existing, validity| Need { why: Some((why.to_owned(), existing)), validity, password_anew };
    let Some(secret) = seen else { return asking("the cluster needs it", Existing::Keep, fresh) };
    let missing: Vec<_> = kind.keys().iter().filter(|key| !secret.keys.iter().any(|have| have == *key)).collect();
    let kept = Validity { not_after: secret.not_after, issuer };
    let expiring = lifetime(kind).is_some_and(|lifetime| match secret.not_after {
        Some(end) => end.duration_since(now) < lifetime / 3,
        None => true,
    });
    if expiring {
        return asking("less than a third of its lifetime is left", Existing::Renew, fresh);
    }
    if secret.issuer != issuer {
        return asking("the certificate authority was replaced or renewed", Existing::Renew, fresh);
    }
    if !missing.is_empty() {
        // A certificate without its key, or the other way round, can't be completed.
        let (existing, validity) =
            if fresh.not_after.is_some() { (Existing::Renew, fresh) } else { (Existing::Keep, kept) };
        return asking(&format!("it lacks {missing:?}"), existing, validity);
    }
    if password_anew {
        return asking("spec.bootstrap.initdb.ownerPassword was supplied anew", Existing::Keep, kept);
    }
    let shape = secret::secret(parent, kind, kept, source);
    let applied = shape.value["metadata"]["annotations"][bellwether_api::labels::APPLIED_HASH].as_str();
    if secret.applied.as_deref() != applied {
        return asking("its metadata is not as it should be", Existing::Keep, kept);
    }
    Need { why: None, validity: kept, password_anew }
}

fn lifetime(kind: SecretKind) -> Option<SignedDuration> {
    match kind {
        SecretKind::Ca => Some(AUTHORITY_LIFETIME),
        SecretKind::Server | SecretKind::Replication => Some(CERTIFICATE_LIFETIME),
        SecretKind::Superuser | SecretKind::App => None,
    }
}

fn content(parent: &Parent<'_>, kind: SecretKind, validity: Validity, password_anew: bool) -> Content {
    let initdb = &parent.cluster.spec.bootstrap.initdb;
    let not_after = validity.not_after.unwrap_or(Timestamp::MAX);
    match kind {
        SecretKind::Ca => {
            Content::Authority { common_name: format!("{} {}", parent.namespace, parent.names.cluster()), not_after }
        }
        SecretKind::Server => Content::ServerCertificate { names: server_names(parent), not_after },
        SecretKind::Replication => Content::ClientCertificate { common_name: REPLICATION_USER.to_owned(), not_after },
        SecretKind::Superuser => Content::Password { username: SUPERUSER.to_owned() },
        SecretKind::App => Content::Application {
            host: format!("{}.{}.svc", parent.names.rw(), parent.namespace),
            database: initdb.database.clone(),
            username: initdb.owner.clone(),
            password_from: initdb.owner_password.as_ref().map(|from| (from.name.clone(), from.key.clone())),
            password_anew,
        },
    }
}

/// Every name by which a client may reach an instance.
fn server_names(parent: &Parent<'_>) -> Vec<String> {
    let (names, namespace) = (&parent.names, &parent.namespace);
    let mut all = vec![];
    for host in [names.rw(), names.ro(), names.r()] {
        all.extend([host.clone(), format!("{host}.{namespace}"), format!("{host}.{namespace}.svc")]);
        all.push(format!("{host}.{namespace}.svc.cluster.local"));
    }
    let pods = names.pods();
    all.extend([format!("*.{pods}.{namespace}.svc"), format!("*.{pods}.{namespace}.svc.cluster.local")]);
    all.push("localhost".to_owned());
    all
}

/// The user promised a password; without it nothing is generated in its place.
fn owner_password_missing(observed: &Observed, parent: &Parent<'_>, app: Option<&Secret>) -> Option<WaitingOn> {
    let SecretKeySelector { name, key, .. } = parent.cluster.spec.bootstrap.initdb.owner_password.as_ref()?;
    let has_password = app.is_some_and(|app| app.keys.iter().any(|key| key == crate::contract::key::PASSWORD));
    let there = has_password || matches!(observed.owner_password, Fact::Known(_));
    (!there).then(|| WaitingOn::OwnerPassword { secret: name.clone(), key: key.clone() })
}

/// As text in an annotation it has no fractions, and what is read back must equal what was written.
pub(super) fn whole_seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}
