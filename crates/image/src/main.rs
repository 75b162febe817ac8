//! `bellwether-image`: writes the operator's image as an archive, and its SBOM beside it. `make image` runs it.
//!
//! No Docker, no base image, no network: the shipped program is static, so an image is two files in a tar.

mod archive;
mod binary;
mod dependencies;
mod layer;
mod name;
mod sbom;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use sha2::{Digest, Sha256};

use archive::Image;
use name::ImageName;
use sbom::Library;

/// Writes the operator's image as an OCI archive, and its SBOM beside it.
#[derive(Debug, Parser)]
struct Options {
    /// The program, linked statically
    #[arg(long, value_name = "FILE")]
    binary: PathBuf,
    /// The target it was built for, such as x86_64-unknown-linux-gnu
    #[arg(long)]
    target: String,
    /// The image's name
    #[arg(long)]
    name: ImageName,
    /// The commit that it was built from
    #[arg(long)]
    revision: Option<String>,
    /// The time that everything in the image gets
    #[arg(long, env = "SOURCE_DATE_EPOCH", value_name = "SECONDS", default_value_t = 0)]
    epoch: u32,
    /// A library in the program that cargo doesn't know: NAME=VERSION=LICENCE
    #[arg(long)]
    library: Vec<Library>,
    /// Where archive and SBOM go
    #[arg(long, value_name = "DIRECTORY")]
    output: PathBuf,
}

/// What went wrong, and with what.
#[derive(Debug, thiserror::Error)]
enum ImageError {
    #[error("{path}: {why}")]
    File { path: String, why: std::io::Error },
    #[error("{path}: {why}")]
    Binary { path: String, why: binary::BadBinary },
    #[error(transparent)]
    Dependencies(#[from] dependencies::DependencyError),
    #[error("packing the image: {0}")]
    Pack(std::io::Error),
}

fn main() -> ExitCode {
    // Nobody reads a failed write to a closed pipe; the exit code says enough.
    match run(&Options::parse()) {
        Ok(said) => {
            let _ = writeln!(std::io::stdout(), "{said}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            let _ = writeln!(std::io::stderr(), "image: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<String, ImageError> {
    let program = fs::read(&options.binary).map_err(file(&options.binary))?;
    let path = || options.binary.display().to_string();
    let architecture = binary::architecture(&program).map_err(|why| ImageError::Binary { path: path(), why })?;
    let root = Path::new(env!("BELLWETHER_ROOT"));
    let packages = dependencies::linked(root, "bellwether", &options.target)?;
    let created = created(options.epoch);
    let hash: String = Sha256::digest(&program).iter().map(|byte| format!("{byte:02x}")).collect();
    let sbom = sbom::document(&packages, &options.library, &hash, &created).unwrap_or_default();
    let version = packages.first().map_or("", |package| package.version.as_str());
    let image = Image {
        name: &options.name,
        architecture,
        version,
        revision: options.revision.as_deref(),
        epoch: u64::from(options.epoch),
        created: &created,
        program: &program,
        sbom: sbom.as_bytes(),
    };
    let packed = image.pack().map_err(ImageError::Pack)?;

    fs::create_dir_all(&options.output).map_err(file(&options.output))?;
    let stem = format!("bellwether-operator-{}-linux-{architecture}", options.name.tag());
    let archive = write(&options.output.join(format!("{stem}.tar")), &packed.archive)?;
    let bill = write(&options.output.join(format!("{stem}.cdx.json")), sbom.as_bytes())?;
    let mebibytes = |bytes: usize| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    Ok(format!(
        "image    {} (linux/{architecture}, {} packed, {} on a node)\ndigest   {}\narchive  {archive}\nsbom     {bill} ({} components)",
        options.name,
        mebibytes(packed.archive.len()),
        mebibytes(program.len() + sbom.len()),
        packed.digest,
        packages.len() - 1 + options.library.len(),
    ))
}

fn created(epoch: u32) -> String {
    jiff::Timestamp::from_second(i64::from(epoch)).unwrap_or_default().to_string()
}

/// Writes a file that appears only when it is complete: a runtime may load it while the next one is being made.
fn write(path: &Path, content: &[u8]) -> Result<String, ImageError> {
    let draft = path.with_extension("part");
    fs::write(&draft, content).map_err(file(&draft))?;
    fs::rename(&draft, path).map_err(file(path))?;
    Ok(path.display().to_string())
}

fn file(path: &Path) -> impl Fn(std::io::Error) -> ImageError {
    move |why| ImageError::File { path: path.display().to_string(), why }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn options(directory: &Path, program: &[u8]) -> Options {
        let binary = directory.join("program");
        fs::write(&binary, program).expect("written");
        let name = "bellwether.dev/operator:9".parse().expect("a name");
        let library = "glibc=2=LGPL-2.1-or-later".parse().expect("a library");
        Options {
            binary,
            target: "x86_64-unknown-linux-gnu".to_owned(),
            name,
            revision: None,
            epoch: 1_000_000_000,
            library: vec![library],
            output: directory.join("out"),
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Options::command().debug_assert();
    }

    #[test]
    fn runs_in_two_directories_write_the_same_archive_and_sbom() {
        let run_in = |directory: &Path| {
            let options = options(directory, &binary::tests::elf(62, &[1]));
            let said = run(&options).expect("written");
            assert!(said.contains("digest   sha256:"), "{said}");
            ["tar", "cdx.json"].map(|kind| {
                fs::read(options.output.join(format!("bellwether-operator-9-linux-amd64.{kind}"))).expect("a file")
            })
        };
        let (one, other) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        assert!(run_in(one.path()) == run_in(other.path()), "the files differ");
    }

    #[test]
    fn a_program_that_cannot_run_in_an_empty_image_leaves_no_archive() {
        let directory = tempfile::tempdir().expect("a directory");
        let options = options(directory.path(), &binary::tests::elf(62, &[3]));
        let why = run(&options).expect_err("it is dynamic").to_string();
        assert!(why.contains("hack/build") && !options.output.exists(), "{why}");
    }

    #[test]
    fn times_are_written_as_images_write_them() {
        assert_eq!(created(0), "1970-01-01T00:00:00Z");
        assert_eq!(created(1_000_000_000), "2001-09-09T01:46:40Z");
    }
}
