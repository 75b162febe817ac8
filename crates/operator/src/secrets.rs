//! Makes the contents of Secrets: passwords and certificates. Pure but for randomness.
//!
//! Never: replaces a password that exists, or the key of an authority that exists. No contents in any error or log.

use std::collections::BTreeMap;
use std::time::Duration;

use bellwether_core::contract::{POSTGRES_PORT, key};
use bellwether_core::plan::{Content, Existing, SecretOrder};
use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// Keys and values of a Secret.
pub type Contents = BTreeMap<String, Vec<u8>>;

/// 32 letters and digits: 190 bits, and nothing that any shell, URI or configuration file would trip over.
const PASSWORD_LENGTH: usize = 32;
const ALPHABET: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// Clocks differ between nodes: a certificate that is valid from now on is not valid yet on some of them.
const BACKDATED: Duration = Duration::from_secs(3600);

/// Why contents could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The operating system gave no randomness.
    #[error("no randomness: {0}")]
    Randomness(getrandom::Error),
    /// The authority's Secret is needed first and isn't usable.
    #[error("the certificate authority's Secret has no usable {0}; delete the Secret to have a new authority made")]
    Authority(&'static str),
    /// The certificate could not be made.
    #[error("no certificate: {0}")]
    Certificate(#[from] rcgen::Error),
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
pub fn fill(order: &SecretOrder, sources: Sources, now: Timestamp) -> Result<Contents, SecretError> {
    match &order.content {
        Content::Authority { common_name, not_after } => {
            authority(order.existing, sources.existing, common_name, now, *not_after)
        }
        Content::ServerCertificate { names, not_after } => {
            // The common name is for people; hosts are matched against the alternative names only.
            let mut params = params("postgresql", now, *not_after)?;
            params.subject_alt_names = CertificateParams::new(names.clone())?.subject_alt_names;
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            issued(order.existing, params, sources)
        }
        Content::ClientCertificate { common_name, not_after } => {
            let mut params = params(common_name, now, *not_after)?;
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            issued(order.existing, params, sources)
        }
        Content::Password { username } => {
            let mut contents = sources.existing;
            contents.insert(key::USERNAME.to_owned(), username.clone().into_bytes());
            with_password(&mut contents, None)?;
            Ok(contents)
        }
        Content::Application { host, database, username, password_from } => {
            let supplied = match (password_from, sources.owner_password) {
                (Some((_, key)), None) if !has(&sources.existing, key::PASSWORD) => {
                    return Err(SecretError::OwnerPassword(key.clone()));
                }
                (_, supplied) => supplied,
            };
            application(sources.existing, &sources.authority, supplied, host, database, username)
        }
    }
}

fn authority(
    existing: Existing,
    mut contents: Contents,
    common_name: &str,
    now: Timestamp,
    not_after: Timestamp,
) -> Result<Contents, SecretError> {
    if existing == Existing::Keep && has(&contents, key::CA_CRT) && has(&contents, key::CA_KEY) {
        return Ok(contents);
    }
    let key_pair = match contents.get(key::CA_KEY) {
        Some(pem) if !pem.is_empty() => read_key(pem)?,
        _ => KeyPair::generate()?,
    };
    let mut params = params(common_name, now, not_after)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    contents.insert(key::CA_CRT.to_owned(), params.self_signed(&key_pair)?.pem().into_bytes());
    contents.insert(key::CA_KEY.to_owned(), key_pair.serialize_pem().into_bytes());
    Ok(contents)
}

fn issued(existing: Existing, mut params: CertificateParams, sources: Sources) -> Result<Contents, SecretError> {
    let mut contents = sources.existing;
    let complete = [key::TLS_CRT, key::TLS_KEY, key::CA_CRT].iter().all(|key| has(&contents, key));
    if existing == Existing::Keep && complete {
        return Ok(contents);
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    let text = |name: &'static str| {
        let value = sources.authority.get(name).and_then(|pem| std::str::from_utf8(pem).ok());
        value.filter(|pem| !pem.is_empty()).ok_or(SecretError::Authority(name))
    };
    let ca_crt = text(key::CA_CRT)?;
    let ca_key = read_key(text(key::CA_KEY)?.as_bytes())?;
    let issuer = Issuer::from_ca_cert_pem(ca_crt, ca_key).map_err(|_| SecretError::Authority(key::CA_CRT))?;
    let key_pair = KeyPair::generate()?;
    let certificate = params.signed_by(&key_pair, &issuer)?;
    contents.insert(key::TLS_CRT.to_owned(), certificate.pem().into_bytes());
    contents.insert(key::TLS_KEY.to_owned(), key_pair.serialize_pem().into_bytes());
    contents.insert(key::CA_CRT.to_owned(), ca_crt.as_bytes().to_vec());
    Ok(contents)
}

fn params(common_name: &str, now: Timestamp, not_after: Timestamp) -> Result<CertificateParams, SecretError> {
    let mut params = CertificateParams::new(vec![])?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let at = |time: Timestamp| epoch + Duration::from_secs(u64::try_from(time.as_second()).unwrap_or(0));
    params.not_before = at(now) - BACKDATED;
    params.not_after = at(not_after);
    Ok(params)
}

fn application(
    mut contents: Contents,
    authority: &Contents,
    supplied: Option<Vec<u8>>,
    host: &str,
    database: &str,
    username: &str,
) -> Result<Contents, SecretError> {
    with_password(&mut contents, supplied)?;
    let password = contents[key::PASSWORD].clone();
    let (user, secret, db) = (escaped(username.as_bytes()), escaped(&password), escaped(database.as_bytes()));
    let ca = authority.get(key::CA_CRT).filter(|pem| !pem.is_empty()).ok_or(SecretError::Authority(key::CA_CRT))?;
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
    contents.insert(key::CA_CRT.to_owned(), ca.clone());
    Ok(contents)
}

fn with_password(contents: &mut Contents, supplied: Option<Vec<u8>>) -> Result<(), SecretError> {
    if !has(contents, key::PASSWORD) {
        let password = match supplied {
            Some(password) => password,
            None => password()?,
        };
        contents.insert(key::PASSWORD.to_owned(), password);
    }
    Ok(())
}

fn password() -> Result<Vec<u8>, SecretError> {
    let mut password = Vec::with_capacity(PASSWORD_LENGTH);
    while password.len() < PASSWORD_LENGTH {
        let mut bytes = [0u8; 64];
        getrandom::fill(&mut bytes).map_err(SecretError::Randomness)?;
        // 248 is the largest multiple of 62 in a byte: what is above would make some letters likelier.
        let letters = bytes.iter().filter(|byte| **byte < 248).map(|byte| ALPHABET[usize::from(byte % 62)]);
        password.extend(letters.take(PASSWORD_LENGTH - password.len()));
    }
    Ok(password)
}

fn read_key(pem: &[u8]) -> Result<KeyPair, SecretError> {
    let text = std::str::from_utf8(pem).map_err(|_| SecretError::Authority(key::CA_KEY))?;
    KeyPair::from_pem(text).map_err(|_| SecretError::Authority(key::CA_KEY))
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

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn order(content: Content, existing: Existing) -> SecretOrder {
        SecretOrder { kind: SecretKind::Ca, shape: Desired::of(Kind::Secret, "s", &json!({})), content, existing }
    }
    fn at(day: i64) -> Timestamp {
        Timestamp::from_second(day * 86_400).unwrap()
    }
    fn new_authority(existing: Existing, contents: Contents, not_after: Timestamp) -> Contents {
        let content = Content::Authority { common_name: "shop orders".into(), not_after };
        fill(&order(content, existing), Sources { existing: contents, ..Sources::default() }, NOW).unwrap()
    }
    fn server(authority: &Contents) -> Contents {
        let names = vec!["orders-rw.shop.svc".to_owned(), "*.orders-pods.shop.svc".to_owned()];
        let content = Content::ServerCertificate { names, not_after: at(365) };
        fill(&order(content, Existing::Keep), Sources { authority: authority.clone(), ..Sources::default() }, NOW)
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
        let first = fill(&order(content.clone(), Existing::Keep), Sources::default(), NOW).unwrap();
        let sources = Sources { existing: first.clone(), ..Sources::default() };
        assert_eq!(
            fill(&order(content, Existing::Renew), sources, NOW).unwrap(),
            first,
            "not even a renewal touches it"
        );
    }

    #[test]
    fn no_two_passwords_are_alike() {
        let passwords: std::collections::BTreeSet<_> = (0..100).map(|_| password().unwrap()).collect();
        assert_eq!(passwords.len(), 100);
        assert!(passwords.iter().flatten().all(u8::is_ascii_alphanumeric));
    }

    #[test]
    fn an_authority_that_cannot_be_read_is_named_and_not_shown() {
        let broken =
            Contents::from([(key::CA_CRT.to_owned(), b"x".to_vec()), (key::CA_KEY.to_owned(), b"hunter2".to_vec())]);
        let content = Content::ClientCertificate { common_name: "r".into(), not_after: at(1) };
        let sources = Sources { authority: broken, ..Sources::default() };
        let error = fill(&order(content, Existing::Keep), sources, NOW).unwrap_err().to_string();
        assert!(error.contains("ca.key") && !error.contains("hunter2"), "{error}");
    }
}
