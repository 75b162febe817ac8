//! What Azure's protocol takes beside our own client: a container to begin with, and the signature that lets others in for a while.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::hmac;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use url::form_urlencoded::Serializer;

use super::{BUCKET, SECRET, Server, USER};

const VERSION: &str = "2021-12-02";
const UNTIL: &str = "2099-01-01T00:00:00Z";
const OVER: &str = "https,http";

/// A shared access signature of the container: everything that backups do there, for long, and nothing else.
/// <https://learn.microsoft.com/rest/api/storageservices/create-service-sas>
pub fn shared_access() -> String {
    let may = "rcwdl";
    let signed = format!("{may}\n\n{UNTIL}\n/blob/{USER}/{BUCKET}\n\n\n{OVER}\n{VERSION}\nc\n\n\n\n\n\n\n");
    query(&[("sp", may), ("sr", "c")], &signed)
}

/// One of the account: containers may be created.
/// <https://learn.microsoft.com/rest/api/storageservices/create-account-sas>
fn creation() -> String {
    let (services, kinds, may) = ("b", "c", "c");
    let signed = format!("{USER}\n{may}\n{services}\n{kinds}\n\n{UNTIL}\n\n{OVER}\n{VERSION}\n\n");
    query(&[("ss", services), ("srt", kinds), ("sp", may)], &signed)
}

fn query(words: &[(&str, &str)], signed: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, &BASE64_STANDARD.decode(SECRET).unwrap());
    let signature = BASE64_STANDARD.encode(hmac::sign(&key, signed.as_bytes()));
    let words = words.iter().chain(&[("sv", VERSION), ("se", UNTIL), ("spr", OVER)]);
    Serializer::new(String::new()).extend_pairs(words).append_pair("sig", &signature).finish()
}

/// What a user does once, by hand.
pub fn create_container(server: &Server) {
    let access = creation();
    let request = format!(
        "PUT /{USER}/{BUCKET}?restype=container&{access} HTTP/1.1\r\nhost: {}\r\nx-ms-version: {VERSION}\r\n\
         content-length: 0\r\nconnection: close\r\n\r\n",
        server.address
    );
    let mut stream = TcpStream::connect(server.address).unwrap();
    let mut answer = vec![];
    match &server.ca {
        None => {
            stream.write_all(request.as_bytes()).unwrap();
            stream.read_to_end(&mut answer).unwrap();
        }
        Some(ca) => {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
            let config = config.with_root_certificates(roots).with_no_client_auth();
            let name = ServerName::try_from("127.0.0.1").unwrap();
            let mut stream = StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), stream);
            stream.write_all(request.as_bytes()).unwrap();
            // Whether it ends as TLS wants it is its own matter: it has answered.
            let _ = stream.read_to_end(&mut answer);
        }
    }
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
}
