//! The programs of the cluster: from the distribution by package name, or built from Go modules by version.
//!
//! Built programs are kept outside the checkout, in a directory named after the version; each appears there only when it
//! is complete. Never: a service of the distribution that starts because its package was installed for us.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use crate::command::Run;
use crate::layout::KUBERNETES;
use crate::{Error, Layout};

/// What is needed of the distribution: a file that shows that it is there, and the Debian package that brings it.
const PACKAGES: [(&str, &str); 12] = [
    ("etcd", "etcd-server"),
    ("containerd", "containerd"),
    ("runc", "runc"),
    ("/usr/lib/cni/bridge", "containernetworking-plugins"),
    ("ip", "iproute2"),
    ("iptables", "iptables"),
    ("conntrack", "conntrack"),
    ("debootstrap", "debootstrap"),
    ("mkfs.xfs", "xfsprogs"),
    ("nsenter", "util-linux"),
    ("mount", "mount"),
    ("sysctl", "procps"),
];

const KUBERNETES_PROGRAMS: [&str; 6] =
    ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl"];

/// The first build downloads and compiles a few thousand packages: seven minutes on two cores, more than thirty where others keep both busy.
const BUILD: Duration = Duration::from_secs(2 * 3600);

/// Installs and builds what is missing.
pub fn prepare(layout: &Layout, say: &dyn Fn(&str)) -> Result<(), Error> {
    install(say)?;
    let programs = layout.programs();
    fs::create_dir_all(&programs).map_err(Error::file(&programs))?;
    build_kubernetes(layout, say)?;
    build_own(layout, "coredns", say)?;
    build_own(layout, "pause", say)
}

fn present(file: &str) -> bool {
    let directories = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
    if file.starts_with('/') {
        Path::new(file).exists()
    } else {
        directories.iter().any(|d| Path::new(d).join(file).exists())
    }
}

fn install(say: &dyn Fn(&str)) -> Result<(), Error> {
    let missing: Vec<&str> = PACKAGES.iter().filter(|(file, _)| !present(file)).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !present("apt-get") {
        return Err(Error::Refused(format!(
            "install these with your package manager, under Debian's names: {}",
            missing.join(" ")
        )));
    }
    say(&format!("installing {}", missing.join(" ")));
    let guard = ServiceGuard::engage()?;
    let patience = Duration::from_secs(600);
    Run::line("apt-get -qq update").within(patience).go()?;
    Run::line(&format!("apt-get -qq install -y --no-install-recommends {}", missing.join(" ")))
        .env("DEBIAN_FRONTEND", "noninteractive")
        .within(patience)
        .go()?;
    drop(guard);
    disable_services(&missing)
}

/// Debian asks this file before it starts a service. One that is there already is the administrator's, and stays.
struct ServiceGuard {
    ours: bool,
}

const POLICY: &str = "/usr/sbin/policy-rc.d";

impl ServiceGuard {
    fn engage() -> Result<ServiceGuard, Error> {
        let path = Path::new(POLICY);
        if path.exists() {
            return Ok(ServiceGuard { ours: false });
        }
        fs::write(path, "#!/bin/sh\nexit 101\n").map_err(Error::file(path))?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).map_err(Error::file(path))?;
        Ok(ServiceGuard { ours: true })
    }
}

impl Drop for ServiceGuard {
    fn drop(&mut self) {
        if self.ours {
            // Left behind it only keeps services from starting at installation, which is what an administrator sees at once.
            let _ = fs::remove_file(POLICY);
        }
    }
}

/// Also not at the next boot.
fn disable_services(installed: &[&str]) -> Result<(), Error> {
    if !Path::new("/run/systemd/system").exists() {
        return Ok(());
    }
    for (package, service) in [("etcd-server", "etcd.service"), ("containerd", "containerd.service")] {
        if installed.contains(&package) {
            Run::line(&format!("systemctl disable --now {service}")).within(Duration::from_secs(60)).go()?;
        }
    }
    Ok(())
}

fn build_kubernetes(layout: &Layout, say: &dyn Fn(&str)) -> Result<(), Error> {
    let missing: Vec<&str> = KUBERNETES_PROGRAMS.into_iter().filter(|name| !layout.program(name).exists()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    say(&format!("building Kubernetes {KUBERNETES} from Go modules ({}): minutes, once", missing.join(", ")));
    let (major, minor) = KUBERNETES.trim_start_matches('v').split_once('.').unwrap_or_default();
    let minor = minor.split('.').next().unwrap_or_default();
    let stamp = "-X k8s.io/component-base/version.git";
    let flags = format!("-s -w {stamp}Version={KUBERNETES} {stamp}Major={major} {stamp}Minor={minor}");
    let packages = missing.iter().map(|name| format!("k8s.io/kubernetes/cmd/{name}"));
    let arguments =
        ["-tags", "selinux notest grpcnotrace", "-ldflags", &flags].map(String::from).into_iter().chain(packages);
    go_build(layout, "components", arguments, &missing)
}

fn build_own(layout: &Layout, name: &str, say: &dyn Fn(&str)) -> Result<(), Error> {
    if layout.program(name).exists() {
        return Ok(());
    }
    say(&format!("building {name}"));
    go_build(layout, name, ["-ldflags", "-s -w", "."].map(String::from), &[name])
}

/// Builds in a scratch directory and renames, so that an interrupted build is never taken for a program.
fn go_build(
    layout: &Layout,
    module: &str,
    arguments: impl IntoIterator<Item = String>,
    programs: &[&str],
) -> Result<(), Error> {
    let scratch = layout.programs().join("building");
    fs::create_dir_all(&scratch).map_err(Error::file(&scratch))?;
    let output = format!("{}/", scratch.display());
    let common = ["build", "-trimpath", "-mod=readonly", "-o", &output].map(String::from);
    Run::new("go", common.into_iter().chain(arguments))
        .directory(&layout.sources.join(module))
        .env("CGO_ENABLED", "0")
        .within(BUILD)
        .go()?;
    for program in programs {
        let built = scratch.join(program);
        fs::rename(&built, layout.program(program)).map_err(Error::file(&built))?;
    }
    // With what an interrupted build may have left there.
    fs::remove_dir_all(&scratch).map_err(Error::file(&scratch))
}
