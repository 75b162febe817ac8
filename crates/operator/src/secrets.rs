//! Decides what goes into a Secret: what stays, what is missing, what is made anew. The materials come from a [`Mint`].
//!
//! Never: replaces a password that exists by one that nobody supplied, or the key of an authority that exists. No contents in any error or log.

use std::collections::BTreeMap;

use bellwether_core::contract::{POSTGRES_PORT, key};
use bellwether_core::plan::{Content, Existing, SecretOrder};
use jiff::Timestamp;

use crate::mint::{Mint, MintError, Pair, Subject, Validity};

/// Keys and values of a Secret.
pub type Contents = BTreeMap<String, Vec<u8>>;

/// Why contents could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The materials could not be made.
    #[error(transparent)]
    Mint(#[from] MintError),
    /// The user's password isn't there.
    #[error("the Secret with the owner's password has no key {0:?}")]
    OwnerPassword(String),
}

/// What an order needs beyond itself.
#[derive(Default)]
pub struct Sources {
    /// The Secret's contents as they are.
    pub existing: Contents,
    /// The authority's contents.
    pub authority: Contents,
    /// The password that the user supplied.
    pub owner_password: Option<Vec<u8>>,
}

/// The Secret's contents as they should be.
pub fn fill(mint: &dyn Mint, order: &SecretOrder, sources: Sources, now: Timestamp) -> Result<Contents, SecretError> {
    let until = |not_after: &Timestamp| Validity { now, not_after: *not_after };
    match &order.content {
        Content::Authority { common_name, not_after } => {
            authority(mint, order.existing, sources.existing, common_name, until(not_after))
        }
        Content::ServerCertificate { names, not_after } => {
            issued(mint, order.existing, Subject::Server(names), sources, until(not_after))
        }
        Content::ClientCertificate { common_name, not_after } => {
            issued(mint, order.existing, Subject::Client(common_name), sources, until(not_after))
        }
        Content::Password { username } => {
            let mut contents = sources.existing;
            contents.insert(key::USERNAME.to_owned(), username.clone().into_bytes());
            with_password(mint, &mut contents, None)?;
            Ok(contents)
        }
        Content::Application { host, database, username, password_from, .. } => {
            let supplied = match (password_from, sources.owner_password) {
                (Some((_, key)), None) if !has(&sources.existing, key::PASSWORD) => {
                    return Err(SecretError::OwnerPassword(key.clone()));
                }
                (_, supplied) => supplied,
            };
            let mut contents = sources.existing;
            with_password(mint, &mut contents, supplied)?;
            application(contents, &sources.authority, host, database, username)
        }
    }
}

fn authority(
    mint: &dyn Mint,
    existing: Existing,
    mut contents: Contents,
    common_name: &str,
    validity: Validity,
) -> Result<Contents, SecretError> {
    if existing == Existing::Keep && has(&contents, key::CA_CRT) && has(&contents, key::CA_KEY) {
        return Ok(contents);
    }
    let kept = contents.get(key::CA_KEY).filter(|pem| !pem.is_empty()).map(Vec::as_slice);
    let made = mint.authority(common_name, kept, validity)?;
    contents.insert(key::CA_CRT.to_owned(), made.certificate);
    contents.insert(key::CA_KEY.to_owned(), made.key);
    Ok(contents)
}

fn issued(
    mint: &dyn Mint,
    existing: Existing,
    subject: Subject<'_>,
    sources: Sources,
    validity: Validity,
) -> Result<Contents, SecretError> {
    let mut contents = sources.existing;
    let complete = [key::TLS_CRT, key::TLS_KEY, key::CA_CRT].iter().all(|key| has(&contents, key));
    if existing == Existing::Keep && complete {
        return Ok(contents);
    }
    let authority = Pair {
        certificate: of_authority(&sources.authority, key::CA_CRT)?,
        key: of_authority(&sources.authority, key::CA_KEY)?,
    };
    let made = mint.issue(subject, &authority, validity)?;
    contents.insert(key::TLS_CRT.to_owned(), made.certificate);
    contents.insert(key::TLS_KEY.to_owned(), made.key);
    contents.insert(key::CA_CRT.to_owned(), authority.certificate);
    Ok(contents)
}

fn of_authority(authority: &Contents, name: &'static str) -> Result<Vec<u8>, SecretError> {
    let value = authority.get(name).filter(|pem| !pem.is_empty());
    value.cloned().ok_or(SecretError::Mint(MintError::Authority(name)))
}

fn application(
    mut contents: Contents,
    authority: &Contents,
    host: &str,
    database: &str,
    username: &str,
) -> Result<Contents, SecretError> {
    let password = contents[key::PASSWORD].clone();
    let (user, secret, db) = (escaped(username.as_bytes()), escaped(&password), escaped(database.as_bytes()));
    let ca = of_authority(authority, key::CA_CRT)?;
    let values = [
        (key::HOST, host.to_owned()),
        (key::PORT, POSTGRES_PORT.to_string()),
        (key::DBNAME, database.to_owned()),
        (key::USERNAME, username.to_owned()),
        (key::URI, format!("postgresql://{user}:{secret}@{host}:{POSTGRES_PORT}/{db}?sslmode=require")),
        (
            key::JDBC_URI,
            format!("jdbc:postgresql://{host}:{POSTGRES_PORT}/{db}?user={user}&password={secret}&sslmode=require"),
        ),
    ];
    contents.extend(values.map(|(key, value)| (key.to_owned(), value.into_bytes())));
    contents.insert(key::CA_CRT.to_owned(), ca);
    Ok(contents)
}

/// Keys of an application's Secret whose value has another password in it than the one beside them: somebody has changed that.
pub fn outdated(value: impl Fn(&str) -> Option<Vec<u8>>) -> Vec<&'static str> {
    let Some(password) = value(key::PASSWORD).filter(|password| !password.is_empty()) else { return vec![] };
    let secret = escaped(&password);
    let lacks = |(key, part): &(&'static str, String)| {
        let text = value(key).filter(|text| !text.is_empty());
        text.is_some_and(|text| !String::from_utf8_lossy(&text).contains(part.as_str()))
    };
    let parts = [(key::URI, format!(":{secret}@")), (key::JDBC_URI, format!("&password={secret}&"))];
    parts.into_iter().filter(lacks).map(|(key, _)| key).collect()
}

fn with_password(mint: &dyn Mint, contents: &mut Contents, supplied: Option<Vec<u8>>) -> Result<(), SecretError> {
    if supplied.is_some() || !has(contents, key::PASSWORD) {
        let password = supplied.map_or_else(|| mint.password(), Ok)?;
        contents.insert(key::PASSWORD.to_owned(), password);
    }
    Ok(())
}

fn has(contents: &Contents, key: &str) -> bool {
    contents.get(key).is_some_and(|value| !value.is_empty())
}

/// Percent-encoded for a URI: a password that the user chose may hold anything.
fn escaped(bytes: &[u8]) -> String {
    bytes
        .iter()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(*byte).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use bellwether_core::build::secret::SecretKind;
    use bellwether_core::object::{Desired, Kind};
    use serde_json::json;
    use x509_parser::extensions::GeneralName;
    use x509_parser::pem::parse_x509_pem;

    use super::*;
    use crate::mint::Genuine;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn order(content: Content, existing: Existing) -> SecretOrder {
        SecretOrder { kind: SecretKind::Ca, shape: Desired::of(Kind::Secret, "s", &json!({})), content, existing }
    }
    fn at(day: i64) -> Timestamp {
        Timestamp::from_second(day * 86_400).unwrap()
    }
    fn new_authority(existing: Existing, contents: Contents, not_after: Timestamp) -> Contents {
        let content = Content::Authority { common_name: "shop orders".into(), not_after };
        fill(&Genuine, &order(content, existing), Sources { existing: contents, ..Sources::default() }, NOW).unwrap()
    }
    fn server(authority: &Contents) -> Contents {
        let names = vec!["orders-rw.shop.svc".to_owned(), "*.orders-pods.shop.svc".to_owned()];
        let content = Content::ServerCertificate { names, not_after: at(365) };
        fill(
            &Genuine,
            &order(content, Existing::Keep),
            Sources { authority: authority.clone(), ..Sources::default() },
            NOW,
        )
        .unwrap()
    }

    #[test]
    fn the_authority_signs_a_certificate_for_every_name_that_was_ordered() {
        let authority = new_authority(Existing::Keep, Contents::new(), at(3650));
        let issued = server(&authority);
        let (_, ca) = parse_x509_pem(&authority[key::CA_CRT]).unwrap();
        let (_, leaf) = parse_x509_pem(&issued[key::TLS_CRT]).unwrap();
        let (ca, leaf) = (ca.parse_x509().unwrap(), leaf.parse_x509().unwrap());
        assert_eq!(leaf.issuer(), ca.subject());
        assert!(ca.is_ca() && !leaf.is_ca());
        assert_eq!(leaf.validity().not_after.timestamp(), at(365).as_second());
        let names = &leaf.subject_alternative_name().unwrap().unwrap().value.general_names;
        assert!(names.contains(&GeneralName::DNSName("*.orders-pods.shop.svc")), "{names:?}");
        assert_eq!(issued[key::CA_CRT], authority[key::CA_CRT]);
    }

    #[test]
    fn a_renewed_authority_keeps_its_key_so_that_what_it_signed_stays_valid() {
        let authority = new_authority(Existing::Keep, Contents::new(), at(3650));
        let renewed = new_authority(Existing::Renew, authority.clone(), at(7300));
        assert_eq!(renewed[key::CA_KEY], authority[key::CA_KEY]);
        assert_ne!(renewed[key::CA_CRT], authority[key::CA_CRT]);
    }

    #[test]
    fn contents_that_are_complete_stay_as_they_are() {
        let authority = new_authority(Existing::Keep, Contents::new(), at(3650));
        assert_eq!(new_authority(Existing::Keep, authority.clone(), at(9999)), authority);
        let content = Content::Password { username: "postgres".into() };
        let first = fill(&Genuine, &order(content.clone(), Existing::Keep), Sources::default(), NOW).unwrap();
        let sources = Sources { existing: first.clone(), ..Sources::default() };
        assert_eq!(
            fill(&Genuine, &order(content, Existing::Renew), sources, NOW).unwrap(),
            first,
            "not even a renewal touches it"
        );
    }

    #[test]
    fn an_authority_that_cannot_be_read_is_named_and_not_shown() {
        let broken =
            Contents::from([(key::CA_CRT.to_owned(), b"x".to_vec()), (key::CA_KEY.to_owned(), b"hunter2".to_vec())]);
        let content = Content::ClientCertificate { common_name: "r".into(), not_after: at(1) };
        let sources = Sources { authority: broken, ..Sources::default() };
        let error = fill(&Genuine, &order(content, Existing::Keep), sources, NOW).unwrap_err().to_string();
        assert!(error.contains("ca.key") && !error.contains("hunter2"), "{error}");
    }
}
