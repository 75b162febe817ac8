//! What it takes to get into a store, by the names that a Secret or a pod's environment has for it (`AWS_ACCESS_KEY_ID` …).
//!
//! Decides which of these are known, and what a pod's own identity adds where no key was given. Never: a value in a message, for any may be secret; a setting
//! that is taken silently and does nothing.

use std::collections::BTreeMap;
use std::str::FromStr;

use object_store::ClientConfigKey;
use object_store::aws::AmazonS3ConfigKey as Aws;
use object_store::azure::AzureConfigKey as Azure;
use object_store::gcp::GoogleConfigKey as Google;
use url::Url;

use super::location::LocationError;

/// What a setting is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It is, or is a part of, what lets us in.
    Credential,
    /// It tells of an identity that the surroundings give to a pod, and where.
    Identity,
    /// An address of a service.
    Endpoint,
    /// The address of the store says this.
    Address,
    /// How requests travel, which is not for settings to say: it would do nothing.
    Transport,
    /// That plain HTTP may be used: the address of the endpoint says so too.
    AllowHttp,
    /// That an emulator on this machine is meant, wherever the account is: it would turn TLS off and take the place of the endpoint.
    Emulator,
    /// Anything else that object stores of its kind know.
    Other,
}

/// The names that one kind of store knows.
pub(super) trait Key: FromStr + AsRef<str> + PartialEq + Sized {
    /// What variables of the environment begin with.
    const PREFIX: &'static str;
    /// Those of use, for whoever wrote another.
    const KNOWN: &'static str;
    /// By which of them the address of another service than the cloud's own is said.
    const ENDPOINT: &'static str;
    fn role(&self) -> Role;
}

fn transport(key: &ClientConfigKey) -> Role {
    if *key == ClientConfigKey::AllowHttp { Role::AllowHttp } else { Role::Transport }
}

impl Key for Aws {
    const PREFIX: &'static str = "AWS_";
    const KNOWN: &'static str = "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT, AWS_ROLE_ARN, \
        AWS_WEB_IDENTITY_TOKEN_FILE, AWS_VIRTUAL_HOSTED_STYLE_REQUEST, AWS_SERVER_SIDE_ENCRYPTION, AWS_SSE_KMS_KEY_ID";
    const ENDPOINT: &'static str = "AWS_ENDPOINT";
    fn role(&self) -> Role {
        match self {
            Self::AccessKeyId | Self::SecretAccessKey | Self::Token | Self::SkipSignature => Role::Credential,
            Self::WebIdentityTokenFile
            | Self::RoleArn
            | Self::RoleSessionName
            | Self::ContainerCredentialsRelativeUri
            | Self::ContainerCredentialsFullUri
            | Self::ContainerAuthorizationTokenFile
            | Self::Region
            | Self::DefaultRegion => Role::Identity,
            Self::Endpoint | Self::S3Endpoint | Self::StsEndpoint => Role::Endpoint,
            Self::Bucket => Role::Address,
            Self::Client(key) => transport(key),
            _ => Role::Other,
        }
    }
}

impl Key for Google {
    const PREFIX: &'static str = "GOOGLE_";
    const KNOWN: &'static str = "GOOGLE_SERVICE_ACCOUNT_KEY (the JSON of a key), GOOGLE_APPLICATION_CREDENTIALS (a file with it), GOOGLE_BASE_URL";
    const ENDPOINT: &'static str = "GOOGLE_BASE_URL";
    fn role(&self) -> Role {
        match self {
            Self::ServiceAccount | Self::ServiceAccountKey | Self::BearerToken | Self::SkipSignature => {
                Role::Credential
            }
            Self::ApplicationCredentials => Role::Identity,
            Self::BaseUrl => Role::Endpoint,
            Self::Bucket => Role::Address,
            Self::Client(key) => transport(key),
            _ => Role::Other,
        }
    }
}

impl Key for Azure {
    const PREFIX: &'static str = "AZURE_";
    const KNOWN: &'static str = "AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN, AZURE_CLIENT_ID, \
        AZURE_CLIENT_SECRET, AZURE_TENANT_ID, AZURE_FEDERATED_TOKEN_FILE, AZURE_STORAGE_ENDPOINT";
    const ENDPOINT: &'static str = "AZURE_STORAGE_ENDPOINT";
    fn role(&self) -> Role {
        match self {
            Self::AccessKey | Self::SasKey | Self::Token | Self::ClientSecret | Self::SkipSignature => Role::Credential,
            Self::ClientId
            | Self::AuthorityId
            | Self::AuthorityHost
            | Self::FederatedTokenFile
            | Self::MsiEndpoint
            | Self::AccountName => Role::Identity,
            Self::Endpoint => Role::Endpoint,
            Self::UseEmulator => Role::Emulator,
            Self::ContainerName => Role::Address,
            Self::Client(key) => transport(key),
            _ => Role::Other,
        }
    }
}

/// The settings of one store, each by its key.
pub(super) struct Settings<K>(Vec<(K, String)>);

impl<K: Key> Settings<K> {
    /// From what a user gave; where that lets nobody in, with the identity that the environment tells of.
    pub fn read(
        given: &BTreeMap<String, String>,
        environment: &BTreeMap<String, String>,
    ) -> Result<Self, LocationError> {
        let mut settings = Self(vec![]);
        for (name, value) in given {
            let key = parse::<K>(name)
                .ok_or_else(|| LocationError::setting(name, format!("is not known here; of use are {}", K::KNOWN)))?;
            // `echo … | base64` puts a line's end behind a secret, and nothing that is meant here has one.
            let value = value.trim_end_matches(['\r', '\n']);
            let problem = match key.role() {
                Role::Address => Some("is said by the address of the store: leave it out"),
                Role::Transport => Some("has no effect here: leave it out"),
                Role::Emulator => Some(EMULATOR),
                _ if value.is_empty() => Some("is empty: give it a value, or leave it out"),
                _ if settings.0.iter().any(|(other, _)| *other == key) => {
                    Some("says what another name says already: leave one of them out")
                }
                Role::Endpoint => address_problem(value),
                _ => None,
            };
            if let Some(problem) = problem {
                return Err(LocationError::setting(name, problem));
            }
            // One too many would be a part of every path.
            let value = if key.role() == Role::Endpoint { value.trim_end_matches('/') } else { value };
            settings.0.push((key, value.to_owned()));
        }
        if !settings.lets_in() {
            settings.add(environment, |role| role == Role::Identity);
        }
        Ok(settings)
    }

    /// All that the environment says of it. It is full of what others need: what is not known here is left to them.
    pub fn of_environment(environment: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let ours = |name: &str| {
            let role = parse::<K>(name).map(|key| key.role());
            name.starts_with(K::PREFIX) && !matches!(role, None | Some(Role::Address | Role::Transport))
        };
        let mut found: Vec<K> = vec![];
        let mut first = |name: &str| {
            let Some(key) = parse::<K>(name) else { return false };
            let new = !found.contains(&key);
            found.push(key);
            new
        };
        let of_use = environment.iter().filter(|(name, value)| !value.trim().is_empty() && ours(name) && first(name));
        of_use.map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    fn add(&mut self, environment: &BTreeMap<String, String>, wanted: impl Fn(Role) -> bool) {
        for (name, value) in environment.iter().filter(|(name, value)| name.starts_with(K::PREFIX) && !value.is_empty())
        {
            if let Some(key) = parse::<K>(name)
                && wanted(key.role())
                && !self.has(&key)
            {
                self.0.push((key, value.clone()));
            }
        }
    }

    fn lets_in(&self) -> bool {
        self.0.iter().any(|(key, _)| key.role() == Role::Credential)
    }

    pub fn has(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    pub fn get(&self, key: &K) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == key).map(|(_, value)| value.as_str())
    }

    /// Whether plain HTTP is what somebody wrote.
    pub fn plain(&self) -> bool {
        self.0.iter().any(|(key, value)| key.role() == Role::Endpoint && value.starts_with("http://"))
    }

    /// With each of them but those that only concern the way.
    pub fn apply<B>(self, builder: B, with: impl Fn(B, K, String) -> B) -> B {
        let told = self.0.into_iter().filter(|(key, _)| key.role() != Role::AllowHttp);
        told.fold(builder, |builder, (key, value)| with(builder, key, value))
    }

    /// A text without any value of these: what a library says of a bad one may quote it.
    pub fn hide(&self, text: String) -> String {
        let secret = self.0.iter().filter(|(_, value)| value.len() > 3);
        secret.fold(text, |text, (key, value)| text.replace(value.as_str(), &format!("<{}>", key.as_ref())))
    }
}

const EMULATOR: &str = "is not used here, because it would send everything in the clear to this machine, whatever else is said: leave it out, and write the \
    emulator's address with its account, AZURE_STORAGE_ENDPOINT=http://127.0.0.1:10000/devstoreaccount1, and its name and key as any other's";
/// What is behind these is a cloud's own, and has TLS.
const CLOUDS: [&str; 7] = [
    "amazonaws.com",
    "amazonaws.com.cn",
    "googleapis.com",
    "core.windows.net",
    "storage.azure.net",
    "core.chinacloudapi.cn",
    "core.usgovcloudapi.net",
];

fn parse<K: Key>(name: &str) -> Option<K> {
    name.to_ascii_lowercase().parse().ok()
}

fn is_a_cloud(host: &str) -> bool {
    let host = host.trim_end_matches('.');
    CLOUDS.iter().any(|cloud| host.strip_suffix(cloud).is_some_and(|before| before.is_empty() || before.ends_with('.')))
}

fn address_problem(value: &str) -> Option<&'static str> {
    let write = "is no address of a service: write https://host:port";
    let Ok(url) = Url::parse(value) else { return Some(write) };
    if url.scheme() == "http" && url.host_str().is_some_and(is_a_cloud) {
        return Some(
            "begins with http:// and is a cloud's own: everything would go there in the clear; write https://",
        );
    }
    let plain = matches!(url.scheme(), "http" | "https") && url.host_str().is_some_and(|host| !host.is_empty());
    let secret = !url.username().is_empty() || url.password().is_some();
    if !plain {
        Some(write)
    } else if secret || url.query().is_some() || url.fragment().is_some() {
        Some("has more than an address in it: write https://host:port, and credentials under their own names")
    } else {
        None
    }
}
