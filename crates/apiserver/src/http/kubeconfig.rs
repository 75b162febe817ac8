//! Writes kubeconfig files.
//!
//! From: the server's address, its authority, and one way to prove who one is. Everything is inside the file, so that it works
//! from any directory and after the data directory has moved.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::pki::Identity;

/// How the holder of a kubeconfig proves who it is.
pub(super) enum Credential<'a> {
    Certificate(&'a Identity),
    Token(&'a str),
}

/// The text of a kubeconfig with one cluster, one user and one context.
pub(super) fn render(
    server: &str,
    authority: &str,
    user: &str,
    namespace: &str,
    credential: &Credential<'_>,
) -> String {
    let authority = STANDARD.encode(authority);
    let credential = match credential {
        Credential::Certificate(identity) => format!(
            "    client-certificate-data: {}\n    client-key-data: {}\n",
            STANDARD.encode(&identity.certificate),
            STANDARD.encode(&identity.key)
        ),
        Credential::Token(token) => format!("    token: {token}\n"),
    };
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: bellwether\n\
         clusters:\n- name: bellwether\n  cluster:\n    server: {server}\n    certificate-authority-data: {authority}\n\
         contexts:\n- name: bellwether\n  context:\n    cluster: bellwether\n    user: {user:?}\n    namespace: {namespace}\n\
         users:\n- name: {user:?}\n  user:\n{credential}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kube_reads_what_we_write() {
        let text = render("https://127.0.0.1:1", "CA", "system:serviceaccount:a:b", "a", &Credential::Token("t"));
        let parsed = kube::config::Kubeconfig::from_yaml(&text).unwrap();
        assert_eq!(parsed.current_context.as_deref(), Some("bellwether"));
        assert_eq!(parsed.auth_infos[0].name, "system:serviceaccount:a:b");
        assert_eq!(parsed.clusters[0].cluster.as_ref().unwrap().server.as_deref(), Some("https://127.0.0.1:1"));
    }
}
