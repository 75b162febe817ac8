//! Reads a request's method, path and query: what is asked for, in the API's terms.
//!
//! From: the HTTP request line. Nothing here knows which resources exist; that is the registry's to say. Never: a path that reaches
//! an object of another namespace than the one that authorization was asked about.

/// A path of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// `/healthz`, `/livez`, `/readyz` and their parts.
    Health,
    /// `/version`
    Version,
    /// `/api`
    CoreVersions,
    /// `/apis`
    Groups,
    /// `/apis/<group>`
    Group(String),
    /// `/api/v1` or `/apis/<group>/<version>`
    Resources {
        /// The group.
        group: String,
        /// The version.
        version: String,
    },
    /// `/openapi/v2`
    OpenApiV2,
    /// `/openapi/v3`
    OpenApiIndex,
    /// `/openapi/v3/api/v1`, `/openapi/v3/apis/<group>/<version>`
    OpenApi {
        /// The group.
        group: String,
        /// The version.
        version: String,
    },
    /// Something of a resource.
    Object(Path),
    /// Nothing of ours.
    Unknown,
}

/// The path of a collection, an object or a subresource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// API group; empty for the core group.
    pub group: String,
    /// API version.
    pub version: String,
    /// The namespace in the path.
    pub namespace: Option<String>,
    /// The resource's plural.
    pub plural: String,
    /// The object's name.
    pub name: Option<String>,
    /// The subresource.
    pub subresource: Option<String>,
}

/// Reads a path. Its segments are percent-decoded one by one, so that an encoded slash cannot make a longer path.
pub fn route(path: &str) -> Route {
    let segments: Vec<String> = path.split('/').filter(|segment| !segment.is_empty()).map(decode).collect();
    let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
    match parts.as_slice() {
        ["healthz" | "livez" | "readyz", ..] => Route::Health,
        ["version"] => Route::Version,
        ["api"] => Route::CoreVersions,
        ["apis"] => Route::Groups,
        ["apis", group] => Route::Group((*group).into()),
        ["api", version] => Route::Resources { group: String::new(), version: (*version).into() },
        ["apis", group, version] => Route::Resources { group: (*group).into(), version: (*version).into() },
        ["openapi", "v2"] => Route::OpenApiV2,
        ["openapi", "v3"] => Route::OpenApiIndex,
        ["openapi", "v3", "api", version] => Route::OpenApi { group: String::new(), version: (*version).into() },
        ["openapi", "v3", "apis", group, version] => {
            Route::OpenApi { group: (*group).into(), version: (*version).into() }
        }
        ["api", version, rest @ ..] => object("", version, rest),
        ["apis", group, version, rest @ ..] => object(group, version, rest),
        _ => Route::Unknown,
    }
}

fn object(group: &str, version: &str, rest: &[&str]) -> Route {
    let (namespace, rest) = match rest {
        // A namespace is an object too: `namespaces/a`, `namespaces/a/status`.
        ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => (None, rest),
        ["namespaces", namespace, rest @ ..] => (Some((*namespace).to_owned()), rest),
        _ => (None, rest),
    };
    let path = |plural: &&str, name: Option<&&str>, subresource: Option<&&str>| {
        Route::Object(Path {
            group: group.into(),
            version: version.into(),
            namespace: namespace.clone(),
            plural: (*plural).into(),
            name: name.map(|name| (*name).into()),
            subresource: subresource.map(|subresource| (*subresource).into()),
        })
    };
    match rest {
        [plural] => path(plural, None, None),
        [plural, name] => path(plural, Some(name), None),
        [plural, name, subresource] => path(plural, Some(name), Some(subresource)),
        _ => Route::Unknown,
    }
}

impl Path {
    /// The RBAC verb of a method on this path; none where there is no such thing.
    pub fn verb(&self, method: &http::Method, watch: bool) -> Option<&'static str> {
        Some(match (method.as_str(), self.name.is_some()) {
            ("GET" | "HEAD", _) if watch && self.subresource.is_none() => "watch",
            ("GET" | "HEAD", true) => "get",
            ("GET" | "HEAD", false) => "list",
            ("POST", false) => "create",
            ("POST", true) if self.subresource.is_some() => "create",
            ("PUT", true) => "update",
            ("PATCH", true) => "patch",
            ("DELETE", true) => "delete",
            ("DELETE", false) => "deletecollection",
            _ => return None,
        })
    }
}

/// The query of a request: keys and values, decoded.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Parses `a=b&c=d`.
    pub fn parse(query: Option<&str>) -> Query {
        let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        Query(
            pairs
                .map(|pair| {
                    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decode(&key.replace('+', " ")), decode(&value.replace('+', " ")))
                })
                .collect(),
        )
    }

    /// The first value of a key that is not empty: `resourceVersion=` means the same as leaving it out.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, value)| name == key && !value.is_empty()).map(|(_, value)| value.as_str())
    }

    /// Whether a flag is set, as Go reads booleans.
    pub fn flag(&self, key: &str) -> bool {
        self.0.iter().any(|(name, value)| {
            name == key && !matches!(value.as_str(), "0" | "false" | "False" | "FALSE" | "f" | "F")
        })
    }

    /// All values of a key.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(name, value)| name == key && !value.is_empty()).map(|(_, value)| value.as_str())
    }
}

/// Percent-decoding; what is not valid UTF-8 afterwards matches no name and is kept as replacement characters.
fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        let escaped = (bytes[index] == b'%')
            .then(|| bytes.get(index + 1..index + 3))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        out.push(escaped.unwrap_or(bytes[index]));
        index += if escaped.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    fn path(text: &str) -> Path {
        match route(text) {
            Route::Object(path) => path,
            other => panic!("{text} is {other:?}"),
        }
    }

    #[test]
    fn a_namespaced_object_and_its_subresource() {
        let found = path("/apis/bellwether.dev/v1/namespaces/shop/postgresclusters/orders/status");
        assert_eq!(found.group, "bellwether.dev");
        assert_eq!(found.namespace.as_deref(), Some("shop"));
        assert_eq!(found.plural, "postgresclusters");
        assert_eq!(found.name.as_deref(), Some("orders"));
        assert_eq!(found.subresource.as_deref(), Some("status"));
    }

    #[test]
    fn a_namespace_is_an_object_itself() {
        let found = path("/api/v1/namespaces/shop");
        assert_eq!(
            (found.namespace.as_deref(), found.plural.as_str(), found.name.as_deref()),
            (None, "namespaces", Some("shop"))
        );
        assert_eq!(path("/api/v1/namespaces/shop/status").subresource.as_deref(), Some("status"));
        assert_eq!(path("/api/v1/namespaces/shop/pods").namespace.as_deref(), Some("shop"));
    }

    #[test]
    fn an_encoded_slash_makes_no_longer_path() {
        assert_eq!(path("/api/v1/namespaces/a/pods/x%2Fstatus").name.as_deref(), Some("x/status"));
    }

    #[test]
    fn verbs_follow_method_name_and_watch() {
        let (all, one) = (path("/api/v1/pods"), path("/api/v1/namespaces/a/pods/x"));
        assert_eq!(all.verb(&Method::GET, false), Some("list"));
        assert_eq!(all.verb(&Method::GET, true), Some("watch"));
        assert_eq!(one.verb(&Method::GET, false), Some("get"));
        assert_eq!(all.verb(&Method::DELETE, false), Some("deletecollection"));
        assert_eq!(all.verb(&Method::PUT, false), None);
        assert_eq!(one.verb(&Method::POST, false), None);
    }

    #[test]
    fn a_query_is_decoded_and_empty_values_are_none() {
        let query = Query::parse(Some("labelSelector=a%3Db%2Cc&resourceVersion=&watch=1&follow"));
        assert_eq!(query.get("labelSelector"), Some("a=b,c"));
        assert_eq!(query.get("resourceVersion"), None);
        assert!(query.flag("watch") && query.flag("follow") && !query.flag("other"));
        assert!(!Query::parse(Some("watch=false")).flag("watch"));
    }
}
