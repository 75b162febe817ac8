//! `bellwether`: one binary, several roles.
//!
//! The roles that only exist between two processes (guard, guard-exec, archiver, archive-wal, restore-wal, pod-exec), and the one of a pod that verifies a backup, are told apart before anything else is set up:
//! they must work when memory is short, and have nothing to configure.

mod archive;
mod args;
mod ask;
mod backup;
mod bring_up;
mod cluster;
mod consent;
mod doctor;
mod events;
mod exit;
mod explain;
mod failover;
mod fence;
mod logs;
mod output;
mod pause;
mod prune;
mod psql;
mod restore;
mod roles;
mod status;
mod store;
mod switchover;
mod trial;
mod verify;
mod wal;
mod why;

use std::process::ExitCode;

use bellwether_agent::archive as archiving;
use bellwether_agent::guard;
use bellwether_agent::restore::unpack;
use bellwether_core::contract::VERIFY_ROLE;
use bellwether_embedded::spawn;

use args::{Cli, Role};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some((role, rest)) = arguments.split_first() {
        match role.as_str() {
            guard::ROLE => return guard::main(rest),
            guard::exec::ROLE => return guard::exec::main(rest),
            archiving::command::ROLE => return archiving::command::main(rest),
            archiving::restore_wal::ROLE => return archiving::restore_wal::main(rest),
            unpack::ROLE => return unpack::main(rest),
            archiving::process::ROLE => return archiving::process::main(),
            VERIFY_ROLE => return archiving::verify::main(),
            spawn::STAGE => return roles::pod_exec(rest),
            _ => {}
        }
    }
    bellwether_runtime::client::install_crypto();
    match Cli::read().role {
        Role::Up(options) => bring_up::run(options),
        Role::Try(options) => trial::run(&options),
        Role::Status(options) => status::run(&options),
        Role::Why(options) => why::run(&options),
        Role::Events(options) => events::run(&options),
        Role::Plan(options) => explain::run(&options),
        Role::Doctor(options) => doctor::run(&options),
        Role::Pause(options) => pause::pause(&options),
        Role::Resume(options) => pause::resume(&options),
        Role::Switchover(options) => switchover::run(&options),
        Role::Failover(options) => failover::run(&options),
        Role::Fence(options) => fence::run(&options),
        Role::Unfence(options) => fence::lift(&options),
        Role::Backup(args::Backup::Now(options)) => backup::now(&options),
        Role::Backup(args::Backup::Prune(options)) => prune::run(&options),
        Role::Backup(args::Backup::Verify(options)) => verify::run(&options),
        Role::Backups(options) => backup::list(&options),
        Role::Restore(options) => restore::run(&options),
        Role::Wal(args::Wal::Gaps(options)) => wal::gaps(&options),
        Role::Psql(options) => psql::run(&options),
        Role::Logs(options) => logs::run(&options),
        Role::Completion(options) => roles::completion(options),
        Role::Operator(options) => roles::operator(options),
        Role::Agent => bellwether_agent::agent::main(),
        Role::InstallAgent(options) => roles::install_agent(&options),
        Role::Version => roles::version(),
    }
}
