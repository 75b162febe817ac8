//! The shape of our Secrets: which keys each must have, and its metadata. The contents are made by the shell, which alone has
//! randomness; existing contents are kept as long as they are complete.

use bellwether_api::labels;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;

use super::Parent;
use crate::contract::key;
use crate::object::{Desired, Kind};

/// The Secrets of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SecretKind {
    /// The certificate authority. Never mounted.
    Ca,
    /// The servers' certificate.
    Server,
    /// The client certificate for replication and between agents.
    Replication,
    /// The superuser's password.
    Superuser,
    /// What an application needs.
    App,
}

impl SecretKind {
    /// In the order in which they depend on each other: the authority issues the certificates, and applications get its own.
    pub const ALL: [Self; 5] = [Self::Ca, Self::Server, Self::Replication, Self::Superuser, Self::App];

    /// The Secret's name.
    pub fn name(self, parent: &Parent<'_>) -> String {
        match self {
            Self::Ca => parent.names.ca(),
            Self::Server => parent.names.server_tls(),
            Self::Replication => parent.names.replication_tls(),
            Self::Superuser => parent.names.superuser(),
            Self::App => parent.names.app(),
        }
    }

    /// The keys that it must have.
    pub fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Ca => &[key::CA_CRT, key::CA_KEY],
            Self::Server | Self::Replication => &[key::TLS_CRT, key::TLS_KEY, key::CA_CRT],
            Self::Superuser => &[key::USERNAME, key::PASSWORD],
            Self::App => {
                &[key::HOST, key::PORT, key::DBNAME, key::USERNAME, key::PASSWORD, key::URI, key::JDBC_URI, key::CA_CRT]
            }
        }
    }
}

/// How long what is in a Secret is good for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Validity {
    /// When its own certificate expires; nothing for passwords.
    pub not_after: Option<Timestamp>,
    /// When the authority whose certificate it carries expires; nothing for the authority itself.
    pub issuer: Option<Timestamp>,
}

/// The Secret without its contents. `source` is the edition of the user's Secret that its password comes from.
pub fn secret(parent: &Parent<'_>, kind: SecretKind, validity: Validity, source: Option<&str>) -> Desired {
    let name = kind.name(parent);
    let from = (validity, source.map(str::to_owned));
    parent.built(Kind::Secret, &name, &from, || build(parent, kind, &name, validity, source))
}

fn build(parent: &Parent<'_>, kind: SecretKind, name: &str, validity: Validity, source: Option<&str>) -> Desired {
    let mut metadata = parent.owned(name);
    let dated = [(labels::NOT_AFTER, validity.not_after), (labels::ISSUER_NOT_AFTER, validity.issuer)];
    let dated = dated.into_iter().filter_map(|(key, at)| Some((key.to_owned(), at?.to_string())));
    let sourced = source.map(|source| (labels::PASSWORD_FROM.to_owned(), source.to_owned()));
    metadata.annotations = Some(dated.chain(sourced).collect());
    let type_ = match kind {
        SecretKind::Server | SecretKind::Replication => "kubernetes.io/tls",
        SecretKind::Superuser | SecretKind::Ca | SecretKind::App => "Opaque",
    };
    let object = Secret { metadata, type_: Some(type_.to_owned()), ..Secret::default() };
    Desired::of(Kind::Secret, name, &object)
}
