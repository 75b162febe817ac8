//! Decides what the generated files contain, and whether those in the tree are still that.
//!
//! Everything here is made from the types and tables of `api` and `core`, so that a CRD, a role or a page of the reference
//! can't say anything else than the code does; the list of what is shown is made from the names of the tests that show it.

use std::fs;
use std::path::Path;

use bellwether_api::v1;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::{deploy, reference, yaml};

/// A generated file.
pub struct File {
    /// Where it is, from the root of the repository.
    pub path: &'static str,
    /// What it says.
    pub content: String,
}

/// Every generated file.
pub fn files() -> Result<Vec<File>, String> {
    let file = |path, content| File { path, content };
    let definition = |definition: CustomResourceDefinition| {
        let json = serde_json::to_value(definition).map_err(|why| format!("as JSON: {why}"))?;
        yaml::document(&json)
    };
    let mut files = vec![
        file("deploy/crds/postgresclusters.bellwether.dev.yaml", definition(v1::crd())?),
        file("deploy/crds/backups.bellwether.dev.yaml", definition(v1::backup_crd())?),
        file("docs/reference/postgrescluster.md", reference::cluster::page()),
        file("docs/reference/backup.md", reference::backup::page()),
        file("docs/reference/versions.md", reference::tables::versions()),
        file("docs/reference/parameters.md", reference::tables::parameters()),
        file("docs/reference/reasons.md", reference::tables::reasons()),
        file("docs/proof/field-notes.md", reference::notes::page(Path::new(env!("BELLWETHER_ROOT")))?),
    ];
    files.extend(deploy::files()?);
    Ok(files)
}

/// Writes what has changed.
pub fn write(root: &Path) -> Result<String, String> {
    let mut written = vec![];
    for file in files()?.iter().filter(|file| !is_current(root, file)) {
        let path = root.join(file.path);
        let directory = path.parent().expect("a file is in a directory");
        fs::create_dir_all(directory).map_err(|why| format!("{}: {why}", directory.display()))?;
        fs::write(&path, &file.content).map_err(|why| format!("{}: {why}", file.path))?;
        written.push(format!("wrote {}", file.path));
    }
    Ok(if written.is_empty() { "every generated file is current".to_owned() } else { written.join("\n") })
}

/// Fails when a file isn't what it would be written as.
pub fn check(root: &Path) -> Result<String, String> {
    let files = files()?;
    let stale: Vec<_> = files.iter().filter(|file| !is_current(root, file)).map(|file| describe(root, file)).collect();
    if stale.is_empty() {
        return Ok(format!("{} generated files are current", files.len()));
    }
    Err(format!("{}\nrun `make generate` and commit the result", stale.join("\n")))
}

fn is_current(root: &Path, file: &File) -> bool {
    fs::read_to_string(root.join(file.path)).is_ok_and(|there| there == file.content)
}

/// Where the first difference is, so that a failing check shows what drifted.
fn describe(root: &Path, file: &File) -> String {
    let Ok(there) = fs::read_to_string(root.join(file.path)) else {
        return format!("{} is missing", file.path);
    };
    let mut lines = there.lines().zip(file.content.lines()).enumerate();
    match lines.find(|(_, (there, wanted))| there != wanted) {
        Some((number, (there, wanted))) => {
            format!("{} differs from the types at line {}:\n- {there}\n+ {wanted}", file.path, number + 1)
        }
        None => format!("{} differs from the types in its length", file.path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The objects that are applied as they are: the chart's templates are Helm's to read.
    fn objects() -> Vec<(&'static str, serde_json::Value)> {
        let read = |file: &File| -> Vec<serde_json::Value> {
            serde_saphyr::from_multiple(&file.content).unwrap_or_else(|why| panic!("{}: {why}", file.path))
        };
        let files = files().expect("files");
        let manifests = files.iter().filter(|file| file.path.ends_with(".yaml") && !file.path.contains("/chart/"));
        manifests.flat_map(|file| read(file).into_iter().map(|object| (file.path, object))).collect()
    }

    #[test]
    fn the_yaml_reads_back_as_the_objects_and_every_definition_is_there() {
        let objects = objects();
        let typed = |value: &serde_json::Value| {
            serde_json::from_value::<CustomResourceDefinition>(value.clone()).expect("a definition")
        };
        let written: Vec<_> = objects
            .iter()
            .filter(|(path, _)| path.starts_with("deploy/crds"))
            .map(|(path, one)| (*path, typed(one)))
            .collect();
        let path = |definition: &CustomResourceDefinition| {
            format!("deploy/crds/{}.yaml", definition.metadata.name.clone().expect("it has a name"))
        };
        let wanted: Vec<_> = v1::crds().into_iter().map(|definition| (path(&definition), definition)).collect();
        assert_eq!(written.len(), wanted.len());
        for ((there, written), (path, wanted)) in written.iter().zip(&wanted) {
            assert_eq!((*there, written), (path.as_str(), wanted));
        }
    }

    #[test]
    fn every_object_says_what_it_is() {
        for (path, object) in objects() {
            assert!(object["apiVersion"].is_string() && object["kind"].is_string(), "{path}: {object}");
        }
    }

    #[test]
    fn drift_is_found_and_shown_and_writing_ends_it() {
        let root = std::env::temp_dir().join(format!("bellwether-generate-{}", std::process::id()));
        fs::create_dir_all(&root).expect("a directory");
        assert!(check(&root).is_err_and(|why| why.contains("is missing")));
        write(&root).expect("written");
        assert!(check(&root).is_ok());
        let page = root.join("docs/reference/versions.md");
        let text = fs::read_to_string(&page).expect("the page");
        fs::write(&page, text.replace("18", "19")).expect("changed");
        let why = check(&root).expect_err("it has drifted");
        assert!(why.contains("docs/reference/versions.md differs") && why.contains("make generate"), "{why}");
        fs::remove_dir_all(&root).expect("cleaned up");
    }

    #[test]
    fn links_of_the_reference_lead_somewhere() {
        let root = Path::new(env!("BELLWETHER_ROOT"));
        for file in files().expect("files").iter().filter(|file| file.path.ends_with(".md")) {
            let folder = root.join(file.path).parent().expect("a folder").to_owned();
            for link in file.content.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                let target = link.split('#').next().unwrap_or_default();
                assert!(target.is_empty() || folder.join(target).exists(), "{}: {link} leads nowhere", file.path);
            }
        }
    }
}
