//! The behaviours of the Kubernetes API that we rely on, as cases that run unchanged against a real kube-apiserver and against
//! the in-memory one. Where the two differ, ours is wrong. See `docs/conformance.md`.

mod access;
mod apply;
mod apply_lists;
mod bellwether;
mod builtin;
mod crds;
mod create;
mod custom;
mod delete;
mod discovery;
mod listing;
mod patch;
mod reply;
mod rules;
mod runner;
mod schemas;
mod server;
mod subresources;
mod tables;
mod update;
mod watch;
mod watching;
mod world;

fn main() {
    let cases = [
        discovery::cases(),
        create::cases(),
        update::cases(),
        patch::cases(),
        apply::cases(),
        apply_lists::cases(),
        subresources::cases(),
        listing::cases(),
        watch::cases(),
        delete::cases(),
        crds::cases(),
        schemas::cases(),
        rules::cases(),
        tables::cases(),
        access::cases(),
        builtin::cases(),
        bellwether::cases(),
    ]
    .concat();
    let selection = runner::Selection::from_args(std::env::args().skip(1));
    std::process::exit(runner::run(&cases, &selection));
}
