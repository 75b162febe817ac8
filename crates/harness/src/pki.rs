//! Who is who in the cluster: the API server's certificate, and a token with a kubeconfig for everybody who calls it.
//!
//! Tokens rather than client certificates: the API server reads them from one file, and a cluster that lives for an
//! afternoon renews nothing.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};
use serde_json::json;

use crate::Error;
use crate::layout::{API_PORT, CONTROL_ADDRESS, KUBERNETES_SERVICE, Node, kubeconfig, state};

/// A caller of the API server.
struct Identity {
    /// Its kubeconfig's file name.
    file: String,
    user: String,
    group: &'static str,
}

fn identities() -> Vec<Identity> {
    let component = |name: &str| Identity { file: name.to_owned(), user: format!("system:{name}"), group: "" };
    let mut all = vec![
        Identity { file: "admin".into(), user: "admin".into(), group: "system:masters" },
        component("kube-controller-manager"),
        component("kube-scheduler"),
        component("kube-proxy"),
        component("coredns"),
        component("local-volumes"),
    ];
    all.extend(Node::ALL.map(|node| Identity {
        file: node.to_string(),
        user: format!("system:node:{node}"),
        group: "system:nodes",
    }));
    all
}

/// The kubeconfig of a component or node.
pub fn kubeconfig_of(name: &str) -> PathBuf {
    state("pki").join(format!("{name}.kubeconfig"))
}

/// Writes certificates, keys, tokens and kubeconfigs.
pub fn create() -> Result<(), Error> {
    let directory = state("pki");
    fs::create_dir_all(&directory).map_err(Error::file(&directory))?;

    let (authority, issuer) = authority()?;
    write(&directory.join("ca.crt"), &authority)?;
    let (certificate, key) = server(&issuer)?;
    write(&directory.join("apiserver.crt"), &certificate)?;
    write(&directory.join("apiserver.key"), &key)?;
    let accounts = KeyPair::generate()?;
    write(&directory.join("service-accounts.key"), &accounts.serialize_pem())?;
    write(&directory.join("service-accounts.pub"), &accounts.public_key_pem())?;

    let mut tokens = String::new();
    for identity in identities() {
        let token = uuid::Uuid::new_v4().simple().to_string();
        tokens.push_str(&format!("{token},{},{},\"{}\"\n", identity.user, identity.user, identity.group));
        let config = config_for(&authority, &token);
        write(&kubeconfig_of(&identity.file), &config)?;
        if identity.file == "admin" {
            write(&kubeconfig(), &config)?;
        }
    }
    write(&directory.join("tokens.csv"), &tokens)
}

fn authority() -> Result<(String, Issuer<'static, KeyPair>), Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "bellwether-harness");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?.pem();
    Ok((certificate, Issuer::new(params, key)))
}

fn server(issuer: &Issuer<'static, KeyPair>) -> Result<(String, String), Error> {
    let names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"];
    let mut params = CertificateParams::new(names.map(String::from).to_vec())?;
    params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    params.subject_alt_names.push(SanType::IpAddress(CONTROL_ADDRESS.into()));
    params.subject_alt_names.push(SanType::IpAddress(KUBERNETES_SERVICE.into()));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    Ok((params.signed_by(&key, issuer)?.pem(), key.serialize_pem()))
}

/// A kubeconfig as JSON, which is YAML too. The authority is inline: the file can be copied elsewhere.
fn config_for(authority: &str, token: &str) -> String {
    let name = "bellwether-harness";
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {
            "server": format!("https://{CONTROL_ADDRESS}:{API_PORT}"),
            "certificate-authority-data": BASE64.encode(authority),
        }}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    });
    format!("{config:#}\n")
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    let mut file = fs::File::options()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(path)
        .map_err(Error::file(path))?;
    file.write_all(text.as_bytes()).map_err(Error::file(path))
}
