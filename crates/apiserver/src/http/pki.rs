//! The server's certificates: one authority, the server's own certificate, and client certificates for people and components.
//!
//! From: a directory (or nothing, for a server that lives in memory) and the time. A certificate and its key are one file that is
//! renamed into place, so that a crash leaves either the old pair or the new one, never a key without its certificate. Never: a key
//! file that others can read, or a certificate of an earlier authority presented after the authority was replaced.

use std::fs;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};

/// An authority outlives every laptop it is made on; nobody has to hand out a new kubeconfig because of it.
const AUTHORITY_DAYS: i64 = 3650;
/// Leaf certificates live a year and are renewed at a start within the last month.
const LEAF_DAYS: i64 = 365;
const RENEW_DAYS: i64 = 30;

/// Why there are no certificates.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file could not be read or written.
    #[error("{}: {source}; the directory must be writable by the user that runs the server", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A certificate could not be made or read.
    #[error("{what}: {source}")]
    Certificate {
        /// What was being made.
        what: String,
        /// What the certificate library said.
        source: rcgen::Error,
    },
}

/// A certificate with its key, in PEM.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

/// The authority and what it has signed for the server itself.
pub struct Pki {
    dir: Option<PathBuf>,
    authority: Identity,
    /// Presented to clients.
    pub server: Identity,
}

impl Pki {
    /// Reads the certificates in `dir`, makes those that are missing or about to expire. Without a directory all are new.
    pub fn open(dir: Option<&Path>, listen: IpAddr, now: Timestamp) -> Result<Pki, PkiError> {
        if let Some(dir) = dir {
            fs::create_dir_all(dir).map_err(|source| PkiError::File { path: dir.to_owned(), source })?;
        }
        let dir = dir.map(Path::to_owned);
        let authority = kept(dir.as_deref(), "ca", now, None, || new_authority(now))?;
        let file = format!("server-{}", listen.to_string().replace(':', "_"));
        let server = kept(dir.as_deref(), &file, now, Some(&authority.certificate), || {
            sign(&authority, server_params(listen)?, now)
        })?;
        Ok(Pki { dir, authority, server })
    }

    /// The authority's certificate: what clients trust.
    pub fn authority(&self) -> &str {
        &self.authority.certificate
    }

    /// A client certificate for a user in at most one group; the same one again as long as it is good.
    pub fn client(&self, user: &str, group: Option<&str>, now: Timestamp) -> Result<Identity, PkiError> {
        let file = format!("client-{}", user.replace(|c: char| !c.is_ascii_alphanumeric(), "_"));
        kept(self.dir.as_deref(), &file, now, Some(&self.authority.certificate), || {
            sign(&self.authority, client_params(user, group), now)
        })
    }
}

/// The pair in `<dir>/<name>.pem` if it is good for a while yet and was signed by `issuer`; else the one that `make` makes, kept.
fn kept(
    dir: Option<&Path>,
    name: &str,
    now: Timestamp,
    issuer: Option<&str>,
    make: impl FnOnce() -> Result<Identity, PkiError>,
) -> Result<Identity, PkiError> {
    let Some(path) = dir.map(|dir| dir.join(format!("{name}.pem"))) else { return make() };
    match fs::read_to_string(&path) {
        Ok(text) => {
            if let Some(identity) = reusable(&text, now, issuer) {
                return Ok(identity);
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(source) => return Err(PkiError::File { path, source }),
    }
    let identity = make()?;
    let text = format!("{}{}{}", identity.certificate, issuer.unwrap_or_default(), identity.key);
    write_private(&path, text.as_bytes()).map_err(|source| PkiError::File { path, source })?;
    Ok(identity)
}

/// Parses what [`kept`] wrote: the certificate, its issuer unless it is its own, the key.
fn reusable(text: &str, now: Timestamp, issuer: Option<&str>) -> Option<Identity> {
    let blocks: Vec<String> = text.split("-----BEGIN ").skip(1).map(|block| format!("-----BEGIN {block}")).collect();
    let (certificate, key) = match (issuer, blocks.as_slice()) {
        (None, [certificate, key]) => (certificate, key),
        (Some(issuer), [certificate, signer, key]) if signer == issuer => (certificate, key),
        _ => return None,
    };
    let (_, pem) = x509_parser::pem::parse_x509_pem(certificate.as_bytes()).ok()?;
    let expires = pem.parse_x509().ok()?.validity().not_after.timestamp();
    let good = expires > now.as_second() + RENEW_DAYS * 86_400;
    good.then(|| Identity { certificate: certificate.clone(), key: key.clone() })
}

/// Writes a file that only its owner can read, complete or not at all.
pub(super) fn write_private(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let scratch = path.with_extension("new");
    // A scratch file left by a crash may have another mode; `mode` only counts when the file is created.
    match fs::remove_file(&scratch) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&scratch)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&scratch, path)
}

fn new_authority(now: Timestamp) -> Result<Identity, PkiError> {
    let failed = |source| PkiError::Certificate { what: "making the certificate authority".into(), source };
    let mut params = CertificateParams::default();
    params.distinguished_name = distinguished("bellwether", None);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    valid_for(&mut params, AUTHORITY_DAYS, now);
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.self_signed(&key).map_err(failed)?;
    Ok(Identity { certificate: certificate.pem(), key: key.serialize_pem() })
}

fn server_params(listen: IpAddr) -> Result<CertificateParams, PkiError> {
    let names = [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ];
    let mut params = CertificateParams::new(names.map(String::from).to_vec())
        .map_err(|source| PkiError::Certificate { what: "naming the server".into(), source })?;
    params.distinguished_name = distinguished("kube-apiserver", None);
    params.subject_alt_names.push(SanType::IpAddress(Ipv4Addr::LOCALHOST.into()));
    params.subject_alt_names.push(SanType::IpAddress(Ipv6Addr::LOCALHOST.into()));
    if !listen.is_unspecified() && listen != IpAddr::from(Ipv4Addr::LOCALHOST) {
        params.subject_alt_names.push(SanType::IpAddress(listen));
    }
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(params)
}

fn client_params(user: &str, group: Option<&str>) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = distinguished(user, group);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn distinguished(name: &str, group: Option<&str>) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    if let Some(group) = group {
        distinguished.push(DnType::OrganizationName, group);
    }
    distinguished
}

fn sign(authority: &Identity, mut params: CertificateParams, now: Timestamp) -> Result<Identity, PkiError> {
    let failed = |source| PkiError::Certificate { what: "signing a certificate".into(), source };
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    valid_for(&mut params, LEAF_DAYS, now);
    let authority_key = KeyPair::from_pem(&authority.key).map_err(failed)?;
    let issuer = Issuer::from_ca_cert_pem(&authority.certificate, authority_key).map_err(failed)?;
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.signed_by(&key, &issuer).map_err(failed)?;
    Ok(Identity { certificate: certificate.pem(), key: key.serialize_pem() })
}

/// Certificates begin the day before: clocks of machines that talk to each other differ.
fn valid_for(params: &mut CertificateParams, days: i64, now: Timestamp) {
    let day = |offset: i64| {
        let date =
            now.saturating_add(SignedDuration::from_hours(24 * offset)).unwrap_or(now).to_zoned(TimeZone::UTC).date();
        rcgen::date_time_ymd(date.year().into(), date.month().unsigned_abs(), date.day().unsigned_abs())
    };
    params.not_before = day(-1);
    params.not_after = day(days);
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn open(dir: &Path, now: Timestamp) -> Pki {
        Pki::open(Some(dir), Ipv4Addr::LOCALHOST.into(), now).unwrap()
    }

    #[test]
    fn a_second_start_presents_the_same_certificates() {
        let dir = tempfile::tempdir().unwrap();
        let now = Timestamp::now();
        let (first, second) = (open(dir.path(), now), open(dir.path(), now));
        assert_eq!(first.authority(), second.authority());
        assert_eq!(first.server.certificate, second.server.certificate);
        let admin = first.client("admin", Some("system:masters"), now).unwrap();
        assert_eq!(admin.certificate, second.client("admin", Some("system:masters"), now).unwrap().certificate);
    }

    #[test]
    fn a_certificate_about_to_expire_is_renewed_and_its_authority_kept() {
        let dir = tempfile::tempdir().unwrap();
        let now = Timestamp::now();
        let first = open(dir.path(), now);
        let later = open(dir.path(), now + SignedDuration::from_hours(24 * (LEAF_DAYS - RENEW_DAYS + 2)));
        assert_eq!(first.authority(), later.authority());
        assert_ne!(first.server.certificate, later.server.certificate);
    }

    #[test]
    fn a_lost_authority_takes_the_certificates_it_signed_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let first = open(dir.path(), Timestamp::now());
        fs::remove_file(dir.path().join("ca.pem")).unwrap();
        assert_ne!(first.server.certificate, open(dir.path(), Timestamp::now()).server.certificate);
    }

    #[test]
    fn nobody_else_can_read_a_key() {
        let dir = tempfile::tempdir().unwrap();
        open(dir.path(), Timestamp::now());
        for file in ["ca.pem", "server-127.0.0.1.pem"] {
            assert_eq!(fs::metadata(dir.path().join(file)).unwrap().permissions().mode() & 0o777, 0o600, "{file}");
        }
    }
}
