//! Which names, labels and annotation keys are allowed, and what a kube-apiserver says of those that are not.

// Every write asks all of these of every label and annotation; a machine for regular expressions takes longer than the rest of it.

/// `[a-z0-9]([-a-z0-9]*[a-z0-9])?`
fn is_label(text: &str) -> bool {
    let inside = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    text.bytes().all(inside) && !text.is_empty() && !text.starts_with('-') && !text.ends_with('-')
}

/// Labels with dots between them.
fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

/// `[-._a-zA-Z0-9]+`
fn is_config_key(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// `([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]`
fn is_qualified(text: &str) -> bool {
    let alphanumeric = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    is_config_key(text) && alphanumeric(bytes.first()) && alphanumeric(bytes.last())
}

/// How names of a kind are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameRule {
    /// RFC 1123 subdomain: most kinds.
    Subdomain,
    /// RFC 1123 label: namespaces and services.
    Label,
    /// Anything that can be a segment of a path: RBAC kinds.
    PathSegment,
}

/// What is wrong with a name, all of it.
pub(crate) fn name_problems(rule: NameRule, name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    match rule {
        NameRule::Subdomain => {
            limit(name, 253, &mut problems);
            if !is_subdomain(name) {
                problems.push(subdomain_message());
            }
        }
        NameRule::Label => {
            limit(name, 63, &mut problems);
            if !is_label(name) {
                problems.push("a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')".into());
            }
        }
        NameRule::PathSegment => {
            if name == "." || name == ".." {
                problems.push(format!("may not be '{name}'"));
            }
            for bad in ["/", "%"] {
                if name.contains(bad) {
                    problems.push(format!("may not contain '{bad}'"));
                }
            }
        }
    }
    problems
}

fn subdomain_message() -> String {
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')".into()
}

fn limit(text: &str, most: usize, problems: &mut Vec<String>) {
    if text.len() > most {
        problems.push(format!("must be no more than {most} bytes"));
    }
}

/// What is wrong with a label or annotation key (`prefix/name`).
pub(crate) fn qualified_name_problem(key: &str) -> Option<String> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if let Some(prefix) = prefix {
        if prefix.is_empty() {
            return Some("prefix part must be non-empty".into());
        }
        if prefix.len() > 253 || !is_subdomain(prefix) {
            return Some(format!("prefix part {}", subdomain_message()));
        }
    }
    if name.contains('/') {
        return Some("a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')".into());
    }
    if name.is_empty() {
        return Some("name part must be non-empty".into());
    }
    if name.len() > 63 {
        return Some("name part must be no more than 63 bytes".into());
    }
    (!is_qualified(name)).then(|| "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')".into())
}

/// What is wrong with the value of a label.
pub(crate) fn label_value_problem(value: &str) -> Option<String> {
    if value.len() > 63 {
        return Some("must be no more than 63 bytes".into());
    }
    (!value.is_empty() && !is_qualified(value)).then(|| "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')".into())
}

/// What is wrong with a key of a ConfigMap or a Secret.
pub(crate) fn config_key_problem(key: &str) -> Option<String> {
    if key.len() > 253 {
        return Some("must be no more than 253 bytes".into());
    }
    if !is_config_key(key) {
        return Some("a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')".into());
    }
    match key {
        "." => Some("must not be '.'".into()),
        ".." => Some("must not be '..'".into()),
        _ if key.starts_with("..") => Some("must not start with '..'".into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_kubernetes_takes_are_taken() {
        for name in ["a", "a-b", "a.b", "0", "x--y"] {
            assert!(name_problems(NameRule::Subdomain, name).is_empty(), "{name}");
        }
        for name in ["", "A", "-a", "a-", "a..b", "a_b", "ä"] {
            assert!(!name_problems(NameRule::Subdomain, name).is_empty(), "{name}");
        }
        assert!(!name_problems(NameRule::Label, "a.b").is_empty());
        assert!(name_problems(NameRule::PathSegment, "system:masters").is_empty());
    }

    #[test]
    fn label_keys_and_values_have_their_own_alphabet() {
        assert_eq!(qualified_name_problem("bellwether.dev/cluster"), None);
        assert!(qualified_name_problem("bellwether.dev/").is_some());
        assert!(qualified_name_problem("a b").is_some());
        assert_eq!(label_value_problem(""), None);
        assert!(label_value_problem("-x").is_some());
        assert!(label_value_problem(&"x".repeat(64)).is_some());
    }

    #[test]
    fn config_keys_may_not_climb_out_of_a_volume() {
        assert_eq!(config_key_problem("instance.json"), None);
        assert!(config_key_problem("../etc").is_some());
        assert!(config_key_problem("..").is_some());
    }
}
