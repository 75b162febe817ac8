//! Tokens of service accounts: signed claims, so that nothing has to be stored for each.
//!
//! From: a secret key that is kept in the data directory. A token names the namespace, the name and the UID of its service account;
//! whoever checks it also asks the store whether that very account still exists. Never: a token that outlives its account, or one
//! accepted without its signature having been compared in constant time.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use jiff::Timestamp;
use ring::hmac;
use serde::{Deserialize, Serialize};

use super::pki::{PkiError, write_private};

/// Header of a JSON web token that is signed with HMAC-SHA256.
const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

/// What a token says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Claims {
    pub sub: String,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub iat: i64,
    /// Seconds since the epoch; none for the tokens that the server hands to its own parts.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub exp: Option<i64>,
}

/// Signs and checks tokens.
pub(super) struct Tokens {
    key: hmac::Key,
}

impl Tokens {
    /// Reads the key in `dir`, or makes one.
    pub(super) fn open(dir: Option<&Path>) -> Result<Tokens, PkiError> {
        let path = dir.map(|dir| dir.join("token.key"));
        if let Some(path) = &path {
            match std::fs::read(path) {
                Ok(secret) => return Ok(Tokens { key: hmac::Key::new(hmac::HMAC_SHA256, &secret) }),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(source) => return Err(PkiError::File { path: path.clone(), source }),
            }
        }
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(|error| PkiError::File {
            path: path.clone().unwrap_or_default(),
            source: std::io::Error::other(format!("no random bytes for the token key: {error}")),
        })?;
        if let Some(path) = path {
            write_private(&path, &secret).map_err(|source| PkiError::File { path, source })?;
        }
        Ok(Tokens { key: hmac::Key::new(hmac::HMAC_SHA256, &secret) })
    }

    /// A token for a service account.
    pub(super) fn issue(&self, namespace: &str, name: &str, uid: &str, now: Timestamp, seconds: Option<i64>) -> String {
        let claims = Claims {
            sub: format!("system:serviceaccount:{namespace}:{name}"),
            namespace: namespace.into(),
            name: name.into(),
            uid: uid.into(),
            iat: now.as_second(),
            exp: seconds.map(|seconds| now.as_second() + seconds),
        };
        let claims = serde_json::to_vec(&claims).unwrap_or_default();
        let signed = format!("{}.{}", BASE64.encode(HEADER), BASE64.encode(claims));
        let signature = hmac::sign(&self.key, signed.as_bytes());
        format!("{signed}.{}", BASE64.encode(signature))
    }

    /// The claims of a token that we signed and that has not expired.
    pub(super) fn verify(&self, token: &str, now: Timestamp) -> Option<Claims> {
        let (signed, signature) = token.rsplit_once('.')?;
        hmac::verify(&self.key, signed.as_bytes(), &BASE64.decode(signature).ok()?).ok()?;
        let (_, claims) = signed.split_once('.')?;
        let claims: Claims = serde_json::from_slice(&BASE64.decode(claims).ok()?).ok()?;
        claims.exp.is_none_or(|end| now.as_second() < end).then_some(claims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_names_its_account_until_it_expires() {
        let tokens = Tokens::open(None).unwrap();
        let now = Timestamp::from_second(1_000).unwrap();
        let token = tokens.issue("shop", "orders", "u-1", now, Some(60));
        assert_eq!(tokens.verify(&token, now).unwrap().name, "orders");
        assert_eq!(tokens.verify(&token, Timestamp::from_second(1_060).unwrap()), None);
    }

    #[test]
    fn a_token_with_a_changed_byte_or_of_another_server_is_refused() {
        let (ours, theirs) = (Tokens::open(None).unwrap(), Tokens::open(None).unwrap());
        let now = Timestamp::now();
        let token = ours.issue("shop", "orders", "u-1", now, None);
        assert_eq!(theirs.verify(&token, now), None);
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let forged = BASE64.encode(br#"{"sub":"x","namespace":"kube-system","name":"root","uid":"u","iat":0}"#);
        let header = signed.split_once('.').unwrap().0;
        assert_eq!(ours.verify(&format!("{header}.{forged}.{signature}"), now), None);
    }

    #[test]
    fn tokens_survive_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let token = Tokens::open(Some(dir.path())).unwrap().issue("a", "b", "u", Timestamp::now(), None);
        assert!(Tokens::open(Some(dir.path())).unwrap().verify(&token, Timestamp::now()).is_some());
    }
}
