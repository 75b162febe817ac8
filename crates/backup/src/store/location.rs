//! Where a store is, and what it takes to get in: from an address and settings to a client.
//!
//! Never: a secret in a message or a log; plain HTTP unless the address of an endpoint says so; a location taken that can't work, which would be found out
//! at night by the first backup.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use bellwether_core::breaker::Limits;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey as Aws};
use object_store::azure::{AzureConfigKey as Azure, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey as Google};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::Value;

use super::http::{Connector, Patience};
use super::settings::{Key, Settings};

/// Why a location is none.
#[derive(Debug, thiserror::Error)]
pub enum LocationError {
    /// The address is not understood.
    #[error("{url:?} is no address of a store: {problem}")]
    Url {
        /// The address.
        url: String,
        /// What is wrong.
        problem: String,
    },
    /// A setting can't be used.
    #[error("{name} {problem}")]
    Setting {
        /// Its name.
        name: String,
        /// What is wrong, and what to do; never its value.
        problem: String,
    },
    /// The settings together make no store.
    #[error("{url}: {problem}")]
    Settings {
        /// The address.
        url: String,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// What is to be trusted is no certificate.
    #[error("the store's CA is no certificate in PEM: {problem}")]
    Authority {
        /// What is wrong.
        problem: String,
    },
    /// A directory can't be used.
    #[error("{}: {cause}", path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// What came back.
        cause: std::io::Error,
    },
}

impl LocationError {
    pub(super) fn setting(name: &str, problem: impl Into<String>) -> Self {
        Self::Setting { name: name.to_owned(), problem: problem.into() }
    }
}

/// Where a store is.
#[derive(Clone)]
pub struct Location {
    url: String,
    place: Place,
    settings: BTreeMap<String, String>,
    environment: Arc<BTreeMap<String, String>>,
    authorities: Option<Vec<CertificateDer<'static>>>,
    patience: Patience,
    limits: Limits,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Directory(PathBuf),
    S3 { bucket: String, prefix: Path },
    Google { bucket: String, prefix: Path },
    Azure { container: String, prefix: Path },
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.settings.keys().collect();
        f.debug_struct("Location").field("url", &self.url).field("settings", &names).finish_non_exhaustive()
    }
}

impl Location {
    /// The store at an address, with settings by the names that the environment has for them (`AWS_ACCESS_KEY_ID` …), and the authority in PEM, if it is a
    /// private one that its certificate comes from. Where the settings let nobody in, the pod's own identity does.
    pub fn new(url: &str, settings: BTreeMap<String, String>, ca: Option<&str>) -> Result<Self, LocationError> {
        Self::with(url, settings, environment(), ca)
    }

    /// The same, with all that the environment says of stores: for a command that a person runs.
    pub fn from_env(url: &str) -> Result<Self, LocationError> {
        let environment = environment();
        let settings = match place(url)? {
            Place::S3 { .. } => Settings::<Aws>::of_environment(&environment),
            Place::Google { .. } => Settings::<Google>::of_environment(&environment),
            Place::Azure { .. } => Settings::<Azure>::of_environment(&environment),
            Place::Directory(_) => BTreeMap::new(),
        };
        Self::with(url, settings, environment, None)
    }

    /// A directory. It is made when it is opened.
    pub fn directory(path: &FilePath) -> Self {
        Self {
            url: format!("file://{}", path.display()),
            place: Place::Directory(path.to_owned()),
            settings: BTreeMap::new(),
            environment: Arc::default(),
            authorities: None,
            patience: Patience::default(),
            limits: Limits::default(),
        }
    }

    /// The same, waited for less or more long.
    pub fn with_patience(self, patience: Patience) -> Self {
        Self { patience, ..self }
    }

    /// The same, left alone after fewer or more failures.
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// By which setting the address of another service than the cloud's own is said, of a store at such an address.
    pub fn endpoint_setting(url: &str) -> &'static str {
        match url.split_once("://") {
            Some(("gs", _)) => Google::ENDPOINT,
            Some(("az", _)) => Azure::ENDPOINT,
            _ => Aws::ENDPOINT,
        }
    }

    /// Its address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What was said beside its address, by name; credentials are among it.
    pub fn given(&self) -> &BTreeMap<String, String> {
        &self.settings
    }

    pub(super) fn patience(&self) -> Patience {
        self.patience
    }

    pub(super) fn limits(&self) -> Limits {
        self.limits
    }

    pub(super) fn path(&self) -> Option<&FilePath> {
        match &self.place {
            Place::Directory(path) => Some(path),
            _ => None,
        }
    }

    fn with(
        url: &str,
        settings: BTreeMap<String, String>,
        environment: BTreeMap<String, String>,
        ca: Option<&str>,
    ) -> Result<Self, LocationError> {
        let location = Self {
            url: url.trim_end_matches('/').to_owned(),
            place: place(url)?,
            settings,
            environment: Arc::new(environment),
            authorities: ca.map(authorities).transpose()?,
            patience: Patience::default(),
            limits: Limits::default(),
        };
        match &location.place {
            Place::Directory(_) => match location.settings.keys().next() {
                Some(name) => Err(LocationError::setting(name, "is of no use for a directory: leave it out")),
                None => Ok(location),
            },
            _ => location.client(vec![]).map(|_| location),
        }
    }

    /// A client, and the part of the store that is meant.
    pub(super) fn connect(&self) -> Result<(Arc<dyn ObjectStore>, Path), LocationError> {
        match (&self.place, &self.authorities) {
            (Place::Directory(path), _) => Ok((open_directory(path)?, Path::ROOT)),
            (_, Some(authorities)) => self.client(authorities.clone()),
            (_, None) => {
                let trusted = rustls_native_certs::load_native_certs().certs;
                if trusted.is_empty() && !self.is_plain() {
                    let problem = "this system trusts no authority (no CA certificates are installed): \
                        install ca-certificates, or name the store's own authority";
                    return Err(self.unfit(problem));
                }
                self.client(trusted)
            }
        }
    }

    fn client(&self, trusted: Vec<CertificateDer<'static>>) -> Result<(Arc<dyn ObjectStore>, Path), LocationError> {
        let connector = Connector::new(trusted, self.patience).map_err(|error| self.unfit(&error.to_string()))?;
        match &self.place {
            Place::Directory(path) => Ok((open_directory(path)?, Path::ROOT)),
            Place::S3 { bucket, prefix } => Ok((self.s3(bucket, connector)?, prefix.clone())),
            Place::Google { bucket, prefix } => Ok((self.google(bucket, connector)?, prefix.clone())),
            Place::Azure { container, prefix } => Ok((self.azure(container, connector)?, prefix.clone())),
        }
    }

    fn s3(&self, bucket: &str, connector: Connector) -> Result<Arc<dyn ObjectStore>, LocationError> {
        let settings: Settings<Aws> = self.settings()?;
        let pair = [("AWS_ACCESS_KEY_ID", Aws::AccessKeyId), ("AWS_SECRET_ACCESS_KEY", Aws::SecretAccessKey)];
        if let [(given, true), (missing, false)] | [(missing, false), (given, true)] =
            pair.map(|(name, key)| (name, settings.has(&key)))
        {
            return Err(LocationError::setting(missing, format!("is missing, and {given} is given: both, or none")));
        }
        let [endpoint, region] = [[Aws::Endpoint, Aws::S3Endpoint], [Aws::Region, Aws::DefaultRegion]]
            .map(|keys| keys.iter().any(|key| settings.has(key)));
        if !endpoint && !region {
            let problem = "is missing: name the region that the bucket is in, such as eu-central-1, or AWS_ENDPOINT, the address of another service than Amazon's";
            return Err(LocationError::setting("AWS_REGION", problem));
        }
        // One request for each object is what every service understands that calls itself S3.
        let builder = AmazonS3Builder::new()
            .with_disable_bulk_delete(true)
            .with_bucket_name(bucket)
            .with_http_connector(connector)
            .with_retry(self.retry())
            .with_client_options(options(settings.plain()));
        self.build(settings, builder, AmazonS3Builder::with_config, AmazonS3Builder::build)
    }

    fn google(&self, bucket: &str, connector: Connector) -> Result<Arc<dyn ObjectStore>, LocationError> {
        let settings: Settings<Google> = self.settings()?;
        for (name, key) in [
            ("GOOGLE_APPLICATION_CREDENTIALS", Google::ApplicationCredentials),
            ("GOOGLE_SERVICE_ACCOUNT", Google::ServiceAccount),
        ] {
            if settings.get(&key).is_some_and(|path| path.trim_start().starts_with('{')) {
                let problem =
                    "is where a file is, and what was given is its contents: name them GOOGLE_SERVICE_ACCOUNT_KEY";
                return Err(LocationError::setting(name, problem));
            }
        }
        if let Some(key) = settings.get(&Google::ServiceAccountKey) {
            let name = "GOOGLE_SERVICE_ACCOUNT_KEY";
            let what = "is not the JSON of a service account's key, as Google's console gives it out";
            let key: Value = serde_json::from_str(key).map_err(|_| LocationError::setting(name, what))?;
            for field in ["client_email", "private_key", "private_key_id"] {
                if !key.get(field).is_some_and(Value::is_string) {
                    return Err(LocationError::setting(name, format!("{what}: it has no {field}")));
                }
            }
            // Emulators are reached so; beside a real key it would say, out of sight, that tokens go elsewhere or not at all.
            for field in ["gcs_base_url", "disable_oauth"] {
                if key.get(field).is_some() {
                    let problem = format!(
                        "has a {field} in it, which no key of Google's has: leave it out, and write the address of another service as GOOGLE_BASE_URL"
                    );
                    return Err(LocationError::setting(name, problem));
                }
            }
        }
        let builder = GoogleCloudStorageBuilder::new()
            .with_bucket_name(bucket)
            .with_http_connector(connector)
            .with_retry(self.retry())
            .with_client_options(options(settings.plain()));
        self.build(settings, builder, GoogleCloudStorageBuilder::with_config, GoogleCloudStorageBuilder::build)
    }

    fn azure(&self, container: &str, connector: Connector) -> Result<Arc<dyn ObjectStore>, LocationError> {
        let settings: Settings<Azure> = self.settings()?;
        if !settings.has(&Azure::AccountName) {
            let problem = "is missing: name the storage account that the container is in";
            return Err(LocationError::setting("AZURE_STORAGE_ACCOUNT_NAME", problem));
        }
        // Without all three the secret would be passed over, and the machine's own identity tried instead.
        for (name, key) in [("AZURE_CLIENT_ID", Azure::ClientId), ("AZURE_TENANT_ID", Azure::AuthorityId)] {
            if settings.has(&Azure::ClientSecret) && !settings.has(&key) {
                let problem = "is missing, and AZURE_CLIENT_SECRET is given: both, and the other of AZURE_CLIENT_ID and AZURE_TENANT_ID";
                return Err(LocationError::setting(name, problem));
            }
        }
        let builder = MicrosoftAzureBuilder::new()
            .with_container_name(container)
            .with_http_connector(connector)
            .with_retry(self.retry())
            .with_client_options(options(settings.plain()));
        self.build(settings, builder, MicrosoftAzureBuilder::with_config, MicrosoftAzureBuilder::build)
    }

    fn build<K: Key, B, S: ObjectStore>(
        &self,
        settings: Settings<K>,
        builder: B,
        with: impl Fn(B, K, String) -> B,
        build: impl Fn(B) -> object_store::Result<S>,
    ) -> Result<Arc<dyn ObjectStore>, LocationError> {
        let hidden: Settings<K> = self.settings()?;
        match build(settings.apply(builder, with)) {
            Ok(store) => Ok(Arc::new(store)),
            Err(error) => Err(self.unfit(&hidden.hide(error.to_string()))),
        }
    }

    fn settings<K: Key>(&self) -> Result<Settings<K>, LocationError> {
        Settings::read(&self.settings, &self.environment)
    }

    fn is_plain(&self) -> bool {
        match &self.place {
            Place::Directory(_) => true,
            Place::S3 { .. } => self.settings::<Aws>().is_ok_and(|settings| settings.plain()),
            Place::Google { .. } => self.settings::<Google>().is_ok_and(|settings| settings.plain()),
            Place::Azure { .. } => self.settings::<Azure>().is_ok_and(|settings| settings.plain()),
        }
    }

    fn retry(&self) -> RetryConfig {
        let millis = std::time::Duration::from_millis;
        RetryConfig {
            backoff: BackoffConfig { init_backoff: millis(100), max_backoff: millis(5000), base: 2. },
            max_retries: self.patience.retries,
            retry_timeout: self.patience.total,
        }
    }

    fn unfit(&self, problem: &str) -> LocationError {
        LocationError::Settings { url: self.url.clone(), problem: problem.to_owned() }
    }
}

fn options(plain: bool) -> ClientOptions {
    ClientOptions::new().with_allow_http(plain)
}

/// The variables that are text.
fn environment() -> BTreeMap<String, String> {
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os().filter_map(text).collect()
}

fn authorities(pem: &str) -> Result<Vec<CertificateDer<'static>>, LocationError> {
    let problem = |problem: String| LocationError::Authority { problem };
    let found = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|error| problem(error.to_string()))?;
    let mut roots = rustls::RootCertStore::empty();
    for certificate in &found {
        roots.add(certificate.clone()).map_err(|error| problem(error.to_string()))?;
    }
    if found.is_empty() {
        return Err(problem("there is no BEGIN CERTIFICATE in it".to_owned()));
    }
    Ok(found)
}

fn open_directory(path: &FilePath) -> Result<Arc<dyn ObjectStore>, LocationError> {
    let failed = |cause| LocationError::Directory { path: path.to_owned(), cause };
    std::fs::create_dir_all(path).map_err(failed)?;
    let store = LocalFileSystem::new_with_prefix(path).map_err(|error| failed(std::io::Error::other(error)))?;
    Ok(Arc::new(store.with_fsync(true)))
}

fn place(url: &str) -> Result<Place, LocationError> {
    // What stands before an @ is meant for nobody to read.
    let shown = url.split_once('@').map_or_else(|| url.to_owned(), |(_, rest)| format!("…@{rest}"));
    let bad = |problem: &str| LocationError::Url { url: shown.clone(), problem: problem.to_owned() };
    let write = "write s3://bucket/path, gs://bucket/path, az://container/path or file:///path";
    let (scheme, rest) = url.split_once("://").ok_or_else(|| bad(write))?;
    if rest.contains(['@', '?', '#', '%', '\\']) || rest.contains(|c: char| c.is_control() || c.is_whitespace()) {
        return Err(bad("there is more in it than a place: no credentials, no query, no %, no blanks"));
    }
    if scheme == "file" {
        let path = FilePath::new(rest);
        let up = path.components().any(|part| part == std::path::Component::ParentDir);
        return match path.is_absolute() && !up {
            true => Ok(Place::Directory(path.to_owned())),
            false => Err(bad("a directory is written from the root on: file:///path")),
        };
    }
    let (bucket, prefix) = rest.trim_end_matches('/').split_once('/').unwrap_or((rest.trim_end_matches('/'), ""));
    let name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if bucket.is_empty() || !bucket.chars().all(name) {
        return Err(bad("the first part is the name of a bucket: letters, digits and . _ -"));
    }
    if !prefix.is_empty() && prefix.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err(bad("a path has no empty parts, no . and no .."));
    }
    let prefix = Path::parse(prefix).map_err(|_| bad("a path is made of letters, digits and . _ = -"))?;
    let bucket = bucket.to_owned();
    match scheme {
        "s3" => Ok(Place::S3 { bucket, prefix }),
        "gs" => Ok(Place::Google { bucket, prefix }),
        "az" => Ok(Place::Azure { container: bucket, prefix }),
        _ => Err(bad(write)),
    }
}

#[cfg(test)]
mod tests;
