//! How to get to a store: what the spec says of it, and what the files of a Secret say.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use bellwether_api::v1::BackupStore;
use bellwether_backup::Location;

/// The key of a Secret with the authority of the store's certificate.
pub(super) const AUTHORITY: &str = "ca.crt";

/// Where a store is, in the words of its settings.
pub(super) fn settings(store: &BackupStore) -> BTreeMap<String, String> {
    let name = Location::endpoint_setting(&store.url);
    let endpoint = store.endpoint.iter().map(|endpoint| (name.to_owned(), endpoint.clone()));
    let region = store.region.iter().map(|region| ("AWS_REGION".to_owned(), region.clone()));
    endpoint.chain(region).collect()
}

/// The contents of a Secret that is mounted here, by key.
pub(super) fn mounted(directory: &Path) -> io::Result<BTreeMap<String, String>> {
    let mut contents = BTreeMap::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // A kubelet keeps editions of the files under such names.
        if !name.starts_with('.') {
            contents.insert(name, std::fs::read_to_string(entry.path())?);
        }
    }
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_store_is_told_its_endpoint_in_its_own_words() {
        for (url, expected) in
            [("s3://b", "AWS_ENDPOINT"), ("gs://b", "GOOGLE_BASE_URL"), ("az://c", "AZURE_STORAGE_ENDPOINT")]
        {
            let endpoint = Some("https://store.svc".to_owned());
            let told = settings(&BackupStore { url: url.to_owned(), endpoint, ..BackupStore::default() });
            assert_eq!(told, BTreeMap::from([(expected.to_owned(), "https://store.svc".to_owned())]));
        }
    }

    #[test]
    fn a_mounted_secret_is_read_as_kubelets_lay_it_out() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("..2026")).unwrap();
        std::fs::write(dir.path().join("..2026/AWS_ACCESS_KEY_ID"), "me").unwrap();
        std::os::unix::fs::symlink("..2026", dir.path().join("..data")).unwrap();
        std::os::unix::fs::symlink("..data/AWS_ACCESS_KEY_ID", dir.path().join("AWS_ACCESS_KEY_ID")).unwrap();
        let contents = mounted(dir.path()).unwrap();
        assert_eq!(contents, BTreeMap::from([("AWS_ACCESS_KEY_ID".to_owned(), "me".to_owned())]));
    }
}
