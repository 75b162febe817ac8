//! How to get to a store: what the spec says of it, and what the files of a Secret say.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use bellwether_api::v1::BackupStore;
use bellwether_backup::Location;

/// The key of a Secret with the authority of the store's certificate.
pub(crate) const AUTHORITY: &str = "ca.crt";

/// Where a store is, in the words of its settings.
pub(crate) fn settings(store: &BackupStore) -> BTreeMap<String, String> {
    let name = Location::endpoint_setting(&store.url);
    let endpoint = store.endpoint.iter().map(|endpoint| (name.to_owned(), endpoint.clone()));
    // The others don't look for a bucket by its region, and know no such setting.
    let region = store.region.iter().filter(|_| store.url.starts_with("s3://"));
    let region = region.map(|region| ("AWS_REGION".to_owned(), region.clone()));
    endpoint.chain(region).collect()
}

/// The contents of a Secret that is mounted here, by key.
pub(crate) fn mounted(directory: &Path) -> io::Result<BTreeMap<String, String>> {
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
    fn each_kind_of_store_is_told_its_endpoint_in_its_own_words_and_a_region_where_it_asks_for_one() {
        let told = |url: &str| {
            let (endpoint, region) = (Some("https://store.svc".to_owned()), Some("eu-1".to_owned()));
            settings(&BackupStore { url: url.to_owned(), endpoint, region, credentials: None })
        };
        let pairs = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect::<BTreeMap<_, _>>()
        };
        let endpoint = |name| pairs(&[(name, "https://store.svc")]);
        assert_eq!(told("s3://b"), pairs(&[("AWS_ENDPOINT", "https://store.svc"), ("AWS_REGION", "eu-1")]));
        assert_eq!(told("gs://b"), endpoint("GOOGLE_BASE_URL"));
        assert_eq!(told("az://c"), endpoint("AZURE_STORAGE_ENDPOINT"));
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
