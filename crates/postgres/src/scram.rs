//! Computes SCRAM-SHA-256 verifiers: what PostgreSQL stores of a password.
//!
//! Passwords are set as verifiers, so that none ever reaches a server in clear, where a log, an extension or
//! `pg_stat_statements` could keep it. A stored verifier can be compared with a password, so that setting an unchanged one
//! writes nothing.

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroU32;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SecureRandom as _;
use ring::{digest, hmac, pbkdf2};

use crate::secret::Secret;

/// PostgreSQL's own default: RFC 7677's minimum. Generated passwords are random; no number would help guessed ones.
const ITERATIONS: NonZeroU32 = NonZeroU32::new(4096).expect("4096 is not zero");
const SALT_LEN: usize = 16;
const KEY_LEN: usize = digest::SHA256_OUTPUT_LEN;

/// What PostgreSQL stores of a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    iterations: NonZeroU32,
    salt: Vec<u8>,
    stored_key: [u8; KEY_LEN],
    server_key: [u8; KEY_LEN],
}

/// The system has no randomness to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system gave no random bytes for a password's salt")]
pub struct NoRandomness;

impl Verifier {
    /// A verifier of this password, with a new salt.
    pub fn new(password: &Secret) -> Result<Self, NoRandomness> {
        let mut salt = vec![0; SALT_LEN];
        ring::rand::SystemRandom::new().fill(&mut salt).map_err(|_| NoRandomness)?;
        Ok(Self::derive(password, ITERATIONS, salt))
    }

    /// Reads what `pg_authid.rolpassword` holds; `None` when it is no SCRAM verifier.
    pub fn parse(text: &str) -> Option<Self> {
        let (settings, keys) = text.strip_prefix("SCRAM-SHA-256$")?.split_once('$')?;
        let (iterations, salt) = settings.split_once(':')?;
        let (stored, server) = keys.split_once(':')?;
        let key = |text| STANDARD.decode(text).ok()?.try_into().ok();
        Some(Self {
            iterations: iterations.parse().ok()?,
            salt: STANDARD.decode(salt).ok()?,
            stored_key: key(stored)?,
            server_key: key(server)?,
        })
    }

    /// Whether it was made of this password.
    pub fn matches(&self, password: &Secret) -> bool {
        *self == Self::derive(password, self.iterations, self.salt.clone())
    }

    fn derive(password: &Secret, iterations: NonZeroU32, salt: Vec<u8>) -> Self {
        let mut salted = [0; KEY_LEN];
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, iterations, &salt, prepared(password).as_bytes(), &mut salted);
        let key = hmac::Key::new(hmac::HMAC_SHA256, &salted);
        let sized = |bytes: &[u8]| <[u8; KEY_LEN]>::try_from(bytes).expect("SHA-256 gives 32 bytes");
        let client_key = hmac::sign(&key, b"Client Key");
        Self {
            iterations,
            salt,
            stored_key: sized(digest::digest(&digest::SHA256, client_key.as_ref()).as_ref()),
            server_key: sized(hmac::sign(&key, b"Server Key").as_ref()),
        }
    }
}

/// The password as clients prepare it (SASLprep); as it is where that refuses it, as PostgreSQL does.
fn prepared(password: &Secret) -> Cow<'_, str> {
    stringprep::saslprep(password.expose()).unwrap_or(Cow::Borrowed(password.expose()))
}

impl fmt::Display for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let salt = STANDARD.encode(&self.salt);
        let (stored, server) = (STANDARD.encode(self.stored_key), STANDARD.encode(self.server_key));
        write!(f, "SCRAM-SHA-256${}:{salt}${stored}:{server}", self.iterations)
    }
}

/// A verifier can be guessed against, so it is not printed by accident either.
impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SCRAM-SHA-256$***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verifier_knows_its_password_and_no_other() {
        for password in ["hunter2", "", "pässwörd", "\u{2168}", "a b\u{a0}c", "x\u{7}y"] {
            let verifier = Verifier::new(&Secret::new(password)).unwrap();
            let stored = Verifier::parse(&verifier.to_string()).unwrap();
            assert!(stored.matches(&Secret::new(password)), "{password}");
            assert!(!stored.matches(&Secret::new(format!("{password}x"))), "{password}");
        }
    }

    #[test]
    fn the_verifier_is_rfc_7677s() {
        // The password, salt and iterations of RFC 7677's example; the keys follow from its proof and signature.
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let verifier = Verifier::derive(&Secret::new("pencil"), ITERATIONS, salt);
        assert_eq!(
            verifier.to_string(),
            "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
             WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
        );
    }

    #[test]
    fn what_is_no_verifier_is_none() {
        for text in
            ["", "md5abc", "SCRAM-SHA-256$", "SCRAM-SHA-256$0:YQ==$YQ==:YQ==", "SCRAM-SHA-256$4096:YQ==$YQ==:YQ=="]
        {
            assert!(Verifier::parse(text).is_none(), "{text}");
        }
    }
}
