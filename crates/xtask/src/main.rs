//! The project's own chores: `cargo xtask generate [--check]` and `cargo xtask boundaries`.

mod boundaries;
mod deploy;
mod generate;
mod reference;
mod yaml;

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask <chore>
  generate          write CRDs, manifests, the chart and reference docs from the types
  generate --check  fail when a generated file isn't what the types say
  boundaries        fail when `core` or `api` reach for a clock, randomness, I/O or anything async";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let root = Path::new(env!("BELLWETHER_ROOT"));
    let result = match arguments[..] {
        ["generate"] => generate::write(root),
        ["generate", "--check"] => generate::check(root),
        ["boundaries"] => boundaries::check(root),
        _ => Err(USAGE.to_owned()),
    };
    // Nobody reads a failed write to a closed pipe; the exit code says enough.
    match result {
        Ok(said) => {
            let _ = writeln!(std::io::stdout(), "{said}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            let _ = writeln!(std::io::stderr(), "{why}");
            ExitCode::FAILURE
        }
    }
}
