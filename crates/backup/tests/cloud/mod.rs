//! Servers that speak the protocols of the clouds, each a process of its own on loopback (`hack/clouds` installs them).
//!
//! One of each is started when the first test needs it, and ends with the tests, however these end: a shell waits for our end of a pipe to close, and
//! then ends the server and removes its directory. Each store that is given out is a part of its own, in which there is nothing.

#![allow(clippy::print_stderr, reason = "a skipped test says why")]

mod azure;

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bellwether_backup::Location;
use rcgen::{CertifiedKey, generate_simple_self_signed};

use crate::support::PATIENCE;

pub const BUCKET: &str = "backups";
/// A bucket that no server has.
pub const NO_BUCKET: &str = "no-such-bucket";
const USER: &str = "bellwether";
/// Both as Amazon's secrets are and, as Azure's keys, Base64.
const SECRET: &str = "Y2xvdWRzLWFyZS10ZXN0ZWQtb24tbG9vcGJhY2stb25seQ==";
/// A secret that lets nobody in.
pub const WRONG: &str = "YW5vdGhlci1zZWNyZXQtdGhhdC1sZXRzLW5vYm9keS1pbi0tLQ==";
/// Node needs seconds to start on a busy machine.
const STARTS_WITHIN: Duration = Duration::from_secs(60);

/// Whose protocol is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cloud {
    /// By Azurite.
    Azure,
    /// By fake-gcs-server, behind what it leaves out.
    Google,
    /// By versitygw.
    Amazon,
}

/// How one is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    Tls,
    PlainHttp,
}

static RUNNING: [OnceLock<Option<Server>>; 6] = [const { OnceLock::new() }; 6];
static PARTS: AtomicUsize = AtomicUsize::new(0);

impl Cloud {
    /// The server, if it is installed; if it is not, that is said.
    pub fn server(self, over: Over) -> Option<&'static Server> {
        RUNNING[self as usize * 2 + over as usize].get_or_init(|| Server::start(self, over)).as_ref()
    }

    fn program(self) -> &'static str {
        match self {
            Self::Azure => "azurite",
            Self::Google => "google",
            Self::Amazon => "versitygw",
        }
    }

    fn scheme(self) -> &'static str {
        match self {
            Self::Azure => "az",
            Self::Google => "gs",
            Self::Amazon => "s3",
        }
    }

    /// By what name it says that somebody may not.
    pub fn refusal(self) -> &'static str {
        match self {
            Self::Azure => "AuthorizationFailure",
            Self::Google => "AuthenticationRequired",
            Self::Amazon => "SignatureDoesNotMatch",
        }
    }

    fn command(self, program: &Path, dir: &Path, address: SocketAddr, over: Over) -> Command {
        let (data, port) = (dir.join("data"), address.port().to_string());
        let tls = |certificate: &str, key: &str| match over {
            Over::Tls => {
                let file = |name: &str| dir.join(name).display().to_string();
                vec![certificate.to_owned(), file("cert.pem"), key.to_owned(), file("key.pem")]
            }
            Over::PlainHttp => vec![],
        };
        let mut command = Command::new(program);
        match self {
            Self::Azure => command
                .args(["--silent", "--blobHost", "127.0.0.1", "--blobPort", &port, "--location"])
                .arg(data)
                .args(tls("--cert", "--key"))
                .env("AZURITE_ACCOUNTS", format!("{USER}:{SECRET}")),
            Self::Google => command
                .args(["-listen", &address.to_string(), "-buckets", BUCKET, "-data"])
                .arg(data)
                .arg("-account")
                .arg(dir.join("account.json"))
                .args(tls("-cert", "-key")),
            Self::Amazon => command
                .args(["--quiet", "--port", &address.to_string()])
                .args(tls("--cert", "--key"))
                .args(["posix", "--sidecar"])
                .arg(dir.join("sidecar"))
                .arg(data)
                .envs([("ROOT_ACCESS_KEY", USER), ("ROOT_SECRET_KEY", SECRET)]),
        };
        command
    }
}

/// One that runs.
pub struct Server {
    cloud: Cloud,
    pub address: SocketAddr,
    ca: Option<String>,
    dir: PathBuf,
    /// The end of the pipe that the shell waits on.
    _until: ChildStdin,
    _shell: Child,
}

/// Runs a server until whoever started it is gone, and leaves nothing of it behind.
const SHELL: &str = r#"
dir=$1; shift
"$@" </dev/null >"$dir/log" 2>&1 &
server=$!
read -r nothing
kill "$server"
wait "$server" 2>/dev/null
rm -rf "$dir"
"#;

impl Server {
    fn start(cloud: Cloud, over: Over) -> Option<Self> {
        let found = Command::new(Path::new(env!("BELLWETHER_ROOT")).join("hack/clouds"))
            .args(["--if-installed", cloud.program()])
            .output()
            .expect("hack/clouds runs");
        if !found.status.success() {
            eprintln!("SKIPPED: {}", String::from_utf8_lossy(&found.stderr).trim());
            return None;
        }
        let place = PathBuf::from(String::from_utf8_lossy(&found.stdout).trim());
        let program = place.join(cloud.program()).join(cloud.program());
        // A port that is free now may be taken before it is used.
        (0..3).find_map(|_| Self::try_start(cloud, over, &program)).or_else(|| panic!("{cloud:?}: no port stayed free"))
    }

    fn try_start(cloud: Cloud, over: Over, program: &Path) -> Option<Self> {
        let dir = tempfile::Builder::new().prefix("bw-cloud-").tempdir().unwrap().keep();
        for name in [format!("data/{BUCKET}"), "sidecar".to_owned()] {
            std::fs::create_dir_all(dir.join(name)).unwrap();
        }
        let ca = (over == Over::Tls).then(|| certificate(&dir));
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let command = cloud.command(program, &dir, address, over);
        let mut shell = Command::new("sh");
        shell.args(["-c", SHELL, "cloud"]).arg(&dir).arg(command.get_program()).args(command.get_args());
        shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let mut shell = shell.stdin(Stdio::piped()).spawn().unwrap();
        let until = shell.stdin.take().unwrap();
        let server = Self { cloud, address, ca, dir, _until: until, _shell: shell };
        server.listens()?;
        if cloud == Cloud::Azure {
            azure::create_container(&server);
        }
        Some(server)
    }

    /// Whether it listens; nothing if another has its port.
    fn listens(&self) -> Option<()> {
        let began = Instant::now();
        loop {
            let log = std::fs::read_to_string(self.dir.join("log")).unwrap_or_default();
            if log.to_lowercase().contains("already in use") {
                return None;
            }
            if TcpStream::connect(self.address).is_ok() {
                return Some(());
            }
            assert!(began.elapsed() < STARTS_WITHIN, "{:?} does not listen at {}: {log}", self.cloud, self.address);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A part of the store in which there is nothing, with its own settings.
    pub fn part(&self) -> Location {
        self.part_at(self.address, BUCKET)
    }

    pub fn part_at(&self, address: SocketAddr, bucket: &str) -> Location {
        self.located(address, bucket, self.credentials())
    }

    /// The same, for somebody who shows something else.
    pub fn located(&self, address: SocketAddr, bucket: &str, credentials: BTreeMap<String, String>) -> Location {
        let part = PARTS.fetch_add(1, Ordering::Relaxed);
        let url = format!("{}://{bucket}/part-{part}", self.cloud.scheme());
        let mut settings = credentials;
        settings.insert(Location::endpoint_setting(&url).to_owned(), self.endpoint(address));
        Location::new(&url, settings, self.ca.as_deref()).unwrap().with_patience(PATIENCE)
    }

    fn endpoint(&self, address: SocketAddr) -> String {
        let scheme = if self.ca.is_some() { "https" } else { "http" };
        let path = if self.cloud == Cloud::Azure { format!("/{USER}") } else { String::new() };
        format!("{scheme}://{address}{path}")
    }

    pub fn credentials(&self) -> BTreeMap<String, String> {
        let pairs = match self.cloud {
            Cloud::Azure => {
                vec![("AZURE_STORAGE_ACCOUNT_NAME", USER.to_owned()), ("AZURE_STORAGE_ACCOUNT_KEY", SECRET.to_owned())]
            }
            Cloud::Google => {
                let key = std::fs::read_to_string(self.dir.join("account.json")).unwrap();
                vec![("GOOGLE_SERVICE_ACCOUNT_KEY", key)]
            }
            Cloud::Amazon => vec![("AWS_ACCESS_KEY_ID", USER.to_owned()), ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned())],
        };
        pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// What lets nobody in, and the secret in it.
    pub fn wrong_credentials(&self) -> (BTreeMap<String, String>, String) {
        let mut credentials = self.credentials();
        let secret = match self.cloud {
            Cloud::Azure => {
                credentials.insert("AZURE_STORAGE_ACCOUNT_KEY".to_owned(), WRONG.to_owned()).map(|_| WRONG.to_owned())
            }
            Cloud::Amazon => {
                credentials.insert("AWS_SECRET_ACCESS_KEY".to_owned(), WRONG.to_owned()).map(|_| WRONG.to_owned())
            }
            // That of an account which another server gave out.
            Cloud::Google => {
                let other = if self.ca.is_some() { Over::PlainHttp } else { Over::Tls };
                credentials = self.cloud.server(other).unwrap().credentials();
                let key: serde_json::Value = serde_json::from_str(&credentials["GOOGLE_SERVICE_ACCOUNT_KEY"]).unwrap();
                key["private_key"].as_str().unwrap().lines().nth(1).map(str::to_owned)
            }
        };
        (credentials, secret.unwrap())
    }

    /// What Azure gives to those who are let in for a while: nothing but a signature, in the query of each request.
    pub fn shared_access(&self) -> BTreeMap<String, String> {
        let pairs =
            [("AZURE_STORAGE_ACCOUNT_NAME", USER.to_owned()), ("AZURE_STORAGE_SAS_TOKEN", azure::shared_access())];
        pairs.map(|(name, value)| (name.to_owned(), value)).into()
    }
}

fn certificate(dir: &Path) -> String {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(dir.join("cert.pem"), cert.pem()).unwrap();
    std::fs::write(dir.join("key.pem"), signing_key.serialize_pem()).unwrap();
    cert.pem()
}
