//! An S3 server on loopback, over TLS, for everybody who is measured: versitygw, from `hack/clouds`.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio::process::Child;

use super::machine::Machine;
use crate::{BenchError, failed};

/// The bucket.
pub const BUCKET: &str = "bench";
/// Who gets in.
pub const KEY: &str = "bellwether";
/// And by what: it is good for nothing but this run.
pub const SECRET: &str = "bench-on-loopback";
/// versitygw's own.
pub const REGION: &str = "us-east-1";
const STARTS_WITHIN: Duration = Duration::from_secs(30);

/// It, running.
pub struct S3 {
    pub address: SocketAddr,
    /// The file of its certificate, which is its own authority.
    pub certificate: PathBuf,
    server: Child,
}

impl S3 {
    /// Starts it, with nothing in it.
    pub async fn start(machine: &Machine, program: &Path) -> Result<Self, BenchError> {
        let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
        let made = generate_simple_self_signed(names).map_err(|error| failed("a certificate", error))?;
        let CertifiedKey { cert, signing_key } = made;
        let certificate = machine.write("cert.pem", &cert.pem())?;
        let key = machine.write("key.pem", &signing_key.serialize_pem())?;
        machine.fresh("s3")?;
        machine.fresh(&format!("s3/{BUCKET}"))?;
        let sidecar = machine.fresh("sidecar")?;
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = free.map_err(|error| failed("a port", error))?;
        let mut command = machine.command(program);
        command.args(["--quiet", "--port", &address.to_string(), "--cert"]).arg(&certificate).arg("--key").arg(key);
        command.args(["posix", "--sidecar"]).arg(sidecar).arg(machine.path("s3"));
        command.env("ROOT_ACCESS_KEY", KEY).env("ROOT_SECRET_KEY", SECRET);
        let log = std::fs::File::create(machine.path("s3.log")).map_err(|error| failed("s3.log", error))?;
        command.stdout(Stdio::null()).stderr(log);
        let server = command.spawn().map_err(|error| failed("versitygw", error))?;
        let began = Instant::now();
        while TcpStream::connect(address).is_err() {
            if began.elapsed() > STARTS_WITHIN {
                let said = std::fs::read_to_string(machine.path("s3.log")).unwrap_or_default();
                return Err(failed("versitygw", format!("it does not listen at {address}: {said}")));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(Self { address, certificate, server })
    }

    /// Its address.
    pub fn endpoint(&self) -> String {
        format!("https://{}", self.address)
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        let _gone = self.server.start_kill();
        let began = Instant::now();
        while matches!(self.server.try_wait(), Ok(None)) && began.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
