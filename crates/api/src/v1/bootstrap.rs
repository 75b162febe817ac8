//! How the database comes into being: read once in the life of a cluster, and immutable from then on.

use k8s_openapi::api::core::v1::SecretKeySelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Recovery;

/// How the database comes into being.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Bootstrap {
    /// A new, empty database, made with `initdb`. With `recovery`, only the names of the application's database and of its owner, and the owner's
    /// password, are read from here.
    #[serde(default)]
    pub initdb: Initdb,
    /// A database that is restored from an object store, in place of a new one. Left out, the database is new. Where it is set, nothing is ever
    /// initialised: as long as it can't be restored, there is no database, and a condition says why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Recovery")]
    pub recovery: Option<Recovery>,
}

/// A new database.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Initdb {
    /// The application's database. How to reach it is in the Secret `<cluster>-app`.
    #[serde(default = "default_app")]
    pub database: String,
    /// The role that owns the application's database and that the application logs in as. It is no superuser.
    #[serde(default = "default_app")]
    pub owner: String,
    /// Who sorts and compares text. `libc`: the C library of the image, which changes its mind with the image's operating
    /// system (`C.UTF-8` doesn't). `icu`: ICU, for the rules of a language.
    #[serde(default)]
    pub locale_provider: LocaleProvider,
    /// The locale. With `localeProvider: libc`, `C.UTF-8` (fast, the same everywhere) or a locale that the image has, such as
    /// `en_US.UTF-8`. With `localeProvider: icu`, a language tag such as `de-DE`, or `und` for the root collation.
    #[serde(default = "default_locale")]
    pub locale: String,
    /// Whether PostgreSQL checks every page it reads against a checksum. Costs a few per cent of CPU and is how silent
    /// corruption of a disk is found; leave it on.
    #[serde(default = "yes")]
    pub data_checksums: bool,
    /// SQL run once, as superuser, in the application's database, right after it was created: extensions, schemas, grants.
    /// One or more statements an entry. If one fails, the cluster doesn't become ready and says which.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub post_init_sql: Vec<String>,
    /// The key of a Secret, in the cluster's namespace, with the owner's password. Left out, a strong one is generated; it is
    /// in the Secret `<cluster>-app` either way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "SecretKeySelector")]
    pub owner_password: Option<SecretKeySelector>,
}

/// Who provides collation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LocaleProvider {
    /// The C library.
    #[default]
    Libc,
    /// ICU.
    Icu,
}

fn default_app() -> String {
    "app".to_owned()
}
fn default_locale() -> String {
    "C.UTF-8".to_owned()
}
fn yes() -> bool {
    true
}

impl Default for Initdb {
    fn default() -> Self {
        Self {
            database: default_app(),
            owner: default_app(),
            locale_provider: LocaleProvider::default(),
            locale: default_locale(),
            data_checksums: true,
            post_init_sql: vec![],
            owner_password: None,
        }
    }
}
