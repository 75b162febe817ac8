//! Decides what an image may be called: `host/path:tag`, in full.
//!
//! Never: a short name. Runtimes complete `operator:1` to a public registry's name, so the kubelet would look for another image than
//! the one that was loaded, and perhaps find somebody else's.

use std::fmt;
use std::str::FromStr;

/// A full image name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageName {
    repository: String,
    tag: String,
}

impl ImageName {
    /// The part after the last colon.
    pub fn tag(&self) -> &str {
        &self.tag
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.repository, self.tag)
    }
}

/// Why a name is none of ours.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} {problem}: write it in full, such as bellwether.dev/operator:0.1.0")]
pub struct BadName {
    name: String,
    problem: &'static str,
}

impl FromStr for ImageName {
    type Err = BadName;

    fn from_str(name: &str) -> Result<Self, BadName> {
        let bad = |problem| BadName { name: name.to_owned(), problem };
        let (host, rest) = name.split_once('/').ok_or_else(|| bad("names no registry"))?;
        if !(host.contains('.') || host.contains(':') || host == "localhost") {
            return Err(bad("begins with what no runtime takes for a registry"));
        }
        let (path, tag) = rest.split_once(':').ok_or_else(|| bad("has no tag"))?;
        let plain = |text: &str, more: &str| {
            text.starts_with(|c: char| c.is_ascii_alphanumeric())
                && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || more.contains(c))
        };
        if !path.split('/').all(|part| plain(part, "._-")) {
            return Err(bad("has a path with other characters than a-z 0-9 . _ -"));
        }
        if tag.len() > 128 || !plain(&tag.to_ascii_lowercase(), "._-") {
            return Err(bad("has a tag that is too long or has other characters than a-z A-Z 0-9 . _ -"));
        }
        Ok(Self { repository: format!("{host}/{path}"), tag: tag.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_names_are_taken_apart_and_put_together_again() {
        for (name, tag) in [
            ("bellwether.dev/operator:0.1.0", "0.1.0"),
            ("localhost:5000/a/b-c:v1.0_RC1", "v1.0_RC1"),
            ("localhost/x:1", "1"),
        ] {
            let read: ImageName = name.parse().expect(name);
            assert_eq!((read.tag(), read.to_string().as_str()), (tag, name));
        }
    }

    #[test]
    fn what_a_runtime_would_complete_or_refuse_is_refused_with_an_example() {
        for name in [
            "operator",
            "operator:1",
            "library/operator:1",
            "a.b/operator",
            "a.b/Operator:1",
            "a.b/o:",
            "a.b/:1",
            "a.b/o:x y",
        ] {
            let why = name.parse::<ImageName>().expect_err(name).to_string();
            assert!(why.contains(&format!("{name:?}")) && why.contains("bellwether.dev/operator"), "{why}");
        }
    }
}
