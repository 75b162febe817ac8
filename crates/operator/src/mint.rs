//! Makes what must not be guessed: passwords, keys and the certificates over them.
//!
//! What goes where, and what must stay as it is, is decided in [`crate::secrets`]; here are only the materials. Making real ones
//! takes milliseconds and differs each time, so a simulator has its own mint. Never: a key or a password in an error.

use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use bellwether_core::contract::key;

/// 32 letters and digits: 190 bits, and nothing that any shell, URI or configuration file would trip over.
const PASSWORD_LENGTH: usize = 32;
const ALPHABET: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// Clocks differ between nodes: a certificate that is valid from now on is not valid yet on some of them.
const BACKDATED: Duration = Duration::from_secs(3600);

/// Why something could not be made.
#[derive(Debug, thiserror::Error)]
pub enum MintError {
    /// The operating system gave no randomness.
    #[error("no randomness: {0}")]
    Randomness(getrandom::Error),
    /// What is in the authority's Secret isn't usable.
    #[error("the certificate authority's Secret has no usable {0}; delete the Secret to have a new authority made")]
    Authority(&'static str),
    /// The certificate could not be made.
    #[error("no certificate: {0}")]
    Certificate(#[from] rcgen::Error),
}

/// A certificate and its key, both PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Pair {
    /// The certificate.
    pub certificate: Vec<u8>,
    /// The key.
    pub key: Vec<u8>,
}

/// From when until when.
#[derive(Clone, Copy, Debug)]
pub struct Validity {
    /// The time of issue.
    pub now: Timestamp,
    /// The end.
    pub not_after: Timestamp,
}

/// What a certificate is for.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    /// A server under these host names.
    Server(&'a [String]),
    /// A client of this common name.
    Client(&'a str),
}

/// Where keys, certificates and passwords come from.
pub trait Mint {
    /// A new password.
    fn password(&self) -> Result<Vec<u8>, MintError>;
    /// A certificate of an authority over its own key: the one given, or a new one.
    fn authority(&self, common_name: &str, key: Option<&[u8]>, validity: Validity) -> Result<Pair, MintError>;
    /// A certificate over a new key, signed by `authority`.
    fn issue(&self, subject: Subject<'_>, authority: &Pair, validity: Validity) -> Result<Pair, MintError>;
}

/// The mint of production.
#[derive(Clone, Copy, Debug, Default)]
pub struct Genuine;

impl Mint for Genuine {
    fn password(&self) -> Result<Vec<u8>, MintError> {
        let mut password = Vec::with_capacity(PASSWORD_LENGTH);
        while password.len() < PASSWORD_LENGTH {
            let mut bytes = [0u8; 64];
            getrandom::fill(&mut bytes).map_err(MintError::Randomness)?;
            // 248 is the largest multiple of 62 in a byte: what is above would make some letters likelier.
            let letters = bytes.iter().filter(|byte| **byte < 248).map(|byte| ALPHABET[usize::from(byte % 62)]);
            password.extend(letters.take(PASSWORD_LENGTH - password.len()));
        }
        Ok(password)
    }

    fn authority(&self, common_name: &str, key: Option<&[u8]>, validity: Validity) -> Result<Pair, MintError> {
        let key = key.map_or_else(|| KeyPair::generate().map_err(MintError::from), read_key)?;
        let mut params = params(common_name, validity)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        Ok(pair(&params.self_signed(&key)?, &key))
    }

    fn issue(&self, subject: Subject<'_>, authority: &Pair, validity: Validity) -> Result<Pair, MintError> {
        let mut params = match subject {
            Subject::Server(names) => {
                // The common name is for people; hosts are matched against the alternative names only.
                let mut params = params("postgresql", validity)?;
                params.subject_alt_names = CertificateParams::new(names.to_vec())?.subject_alt_names;
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
                params
            }
            Subject::Client(common_name) => {
                let mut params = params(common_name, validity)?;
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
                params
            }
        };
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let unusable = |_| MintError::Authority(key::CA_CRT);
        let certificate = std::str::from_utf8(&authority.certificate).map_err(|_| MintError::Authority(key::CA_CRT))?;
        let issuer = Issuer::from_ca_cert_pem(certificate, read_key(&authority.key)?).map_err(unusable)?;
        let key = KeyPair::generate()?;
        Ok(pair(&params.signed_by(&key, &issuer)?, &key))
    }
}

fn params(common_name: &str, validity: Validity) -> Result<CertificateParams, MintError> {
    let mut params = CertificateParams::new(vec![])?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let at = |time: Timestamp| epoch + Duration::from_secs(u64::try_from(time.as_second()).unwrap_or(0));
    params.not_before = at(validity.now) - BACKDATED;
    params.not_after = at(validity.not_after);
    Ok(params)
}

fn pair(certificate: &rcgen::Certificate, key: &KeyPair) -> Pair {
    Pair { certificate: certificate.pem().into_bytes(), key: key.serialize_pem().into_bytes() }
}

fn read_key(pem: &[u8]) -> Result<KeyPair, MintError> {
    let text = std::str::from_utf8(pem).map_err(|_| MintError::Authority(key::CA_KEY))?;
    KeyPair::from_pem(text).map_err(|_| MintError::Authority(key::CA_KEY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_passwords_are_alike() {
        let passwords: std::collections::BTreeSet<_> = (0..100).map(|_| Genuine.password().unwrap()).collect();
        assert_eq!(passwords.len(), 100);
        assert!(passwords.iter().flatten().all(u8::is_ascii_alphanumeric));
    }
}
