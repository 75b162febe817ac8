//! Who is asking: a name and its groups, from a client certificate.
//!
//! The common name is the user, each organization a group. The certificate's chain was verified by TLS before it comes here.

use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The group that may do everything.
pub const MASTERS: &str = "system:masters";
const AUTHENTICATED: &str = "system:authenticated";

/// An authenticated user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// `system:serviceaccount:<namespace>:<name>`, or a person's or component's name.
    pub name: String,
    /// The groups it is in, `system:authenticated` included.
    pub groups: Vec<String>,
}

impl User {
    /// A user in `groups`, and in the group of everybody who is authenticated.
    pub fn new(name: impl Into<String>, groups: impl IntoIterator<Item = String>) -> User {
        let mut groups: Vec<String> = groups.into_iter().collect();
        if !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.into());
        }
        User { name: name.into(), groups }
    }

    /// A service account, with the groups that every service account has.
    pub fn service_account(namespace: &str, name: &str) -> User {
        let groups = ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
        User::new(format!("system:serviceaccount:{namespace}:{name}"), groups)
    }

    /// The user that a verified client certificate names; none when it has no common name.
    pub fn from_certificate(der: &[u8]) -> Option<User> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let subject = certificate.subject();
        let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
        let groups =
            subject.iter_organization().filter_map(|group| group.as_str().ok().map(str::to_owned)).collect::<Vec<_>>();
        Some(User::new(name, groups))
    }

    /// Whether it may do everything.
    pub fn is_master(&self) -> bool {
        self.groups.iter().any(|group| group == MASTERS)
    }
}

#[cfg(test)]
mod tests {
    use super::super::pki::Pki;
    use super::*;

    #[test]
    fn a_certificate_names_its_user_and_group() {
        let now = jiff::Timestamp::now();
        let pki = Pki::open(None, std::net::Ipv4Addr::LOCALHOST.into(), now).unwrap();
        let identity = pki.client("alice", Some("dba"), now).unwrap();
        let (_, pem) = x509_parser::pem::parse_x509_pem(identity.certificate.as_bytes()).unwrap();
        let user = User::from_certificate(&pem.contents).unwrap();
        assert_eq!(user, User::new("alice", ["dba".to_owned()]));
        assert!(!user.is_master());
    }

    #[test]
    fn a_service_account_is_in_its_namespaces_group() {
        let user = User::service_account("shop", "orders");
        assert_eq!(user.name, "system:serviceaccount:shop:orders");
        assert!(user.groups.contains(&"system:serviceaccounts:shop".to_owned()));
    }
}
