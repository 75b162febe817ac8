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
    let password = contents[key::PASSWORD].iter().copied().collect::<Vec<u8>>();
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
