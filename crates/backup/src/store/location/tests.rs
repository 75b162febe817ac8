//! What is taken for a location, what is refused, and that nothing secret is said of either.

use rstest::rstest;

use super::*;

const SECRET: &str = "wJalrXUtnFEMI/K7MDENG";

fn settings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn keys<'a>(more: &[(&'a str, &'a str)]) -> BTreeMap<String, String> {
    let mut all = settings(&[
        ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
        ("AWS_REGION", "eu-central-1"),
    ]);
    all.extend(settings(more));
    all
}

/// In a pod whose environment is this.
fn located(url: &str, given: BTreeMap<String, String>, pod: &[(&str, &str)]) -> Result<Location, LocationError> {
    Location::with(url, given, settings(pod), None)
}

#[rstest]
#[case("s3://backups/prod/eu", Place::S3 { bucket: "backups".to_owned(), prefix: Path::from("prod/eu") })]
#[case("s3://backups/", Place::S3 { bucket: "backups".to_owned(), prefix: Path::ROOT })]
#[case("gs://backups", Place::Google { bucket: "backups".to_owned(), prefix: Path::ROOT })]
#[case("az://container/prod", Place::Azure { container: "container".to_owned(), prefix: Path::from("prod") })]
#[case("file:///var/lib/backups", Place::Directory("/var/lib/backups".into()))]
fn an_address_says_what_kind_of_store_it_is_and_where(#[case] url: &str, #[case] expected: Place) {
    assert_eq!(place(url).unwrap(), expected);
}

#[rstest]
#[case("")]
#[case("/var/lib/backups")]
#[case("ftp://bucket")]
#[case("s3://")]
#[case("s3:///path")]
#[case("s3://bucket//path")]
#[case("s3://bucket/../other")]
#[case("s3://bucket/a?versionId=3")]
#[case("s3://buc ket")]
#[case("file://relative")]
#[case("file:///a/../b")]
fn what_is_no_address_is_refused_and_the_message_says_how_one_is_written(#[case] url: &str) {
    let message = place(url).unwrap_err().to_string();
    assert!(message.contains(':') && message.len() > 40, "{message}");
}

#[test]
fn credentials_in_an_address_are_refused_and_not_repeated() {
    let message = place(&format!("s3://AKID:{SECRET}@bucket/path")).unwrap_err().to_string();
    assert!(message.contains("no credentials") && !message.contains(SECRET), "{message}");
}

#[test]
fn the_keys_of_a_secret_are_taken_as_they_are() {
    let given = keys(&[("aws_endpoint", "https://minio.storage.svc:9000"), ("AWS_SESSION_TOKEN", "token\n")]);
    let location = located("s3://bucket", given, &[]).unwrap();
    assert_eq!(location.settings::<Aws>().unwrap().get(&Aws::Token), Some("token"), "without the line's end");
    located("az://c", settings(&[("AZURE_STORAGE_ACCOUNT_NAME", "acc"), ("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")]), &[])
        .unwrap();
}

#[rstest]
#[case::unknown("s3://b", &[("AWS_ACESS_KEY_ID", SECRET)], "AWS_ACESS_KEY_ID is not known here; of use are AWS_ACCESS_KEY_ID,")]
#[case::of_another_store("gs://b", &[("AWS_ACCESS_KEY_ID", SECRET)], "GOOGLE_SERVICE_ACCOUNT_KEY")]
#[case::half("s3://b", &[("AWS_ACCESS_KEY_ID", SECRET)], "AWS_SECRET_ACCESS_KEY is missing")]
#[case::other_half("s3://b", &[("AWS_SECRET_ACCESS_KEY", SECRET)], "AWS_ACCESS_KEY_ID is missing")]
#[case::no_region("s3://b", &[("AWS_ACCESS_KEY_ID", "x"), ("AWS_SECRET_ACCESS_KEY", SECRET)], "AWS_REGION is missing")]
#[case::empty("s3://b", &[("AWS_SECRET_ACCESS_KEY", "\n")], "AWS_SECRET_ACCESS_KEY is empty")]
#[case::twice("s3://b", &[("AWS_REGION", "x"), ("region", "y")], "says what another name says")]
#[case::bucket("s3://b", &[("AWS_BUCKET", "x")], "AWS_BUCKET is said by the address")]
#[case::without_effect("s3://b", &[("AWS_ALLOW_INVALID_CERTIFICATES", "true")], "has no effect here")]
#[case::endpoint("s3://b", &[("AWS_ENDPOINT", "minio:9000")], "write https://host:port")]
#[case::secret_in_endpoint("s3://b", &[("AWS_ENDPOINT", "https://u:wJalrXUtnFEMI@minio:9000")], "credentials under their own names")]
#[case::in_the_clear("gs://b", &[("GOOGLE_BASE_URL", "http://storage.googleapis.com")], "write https://")]
#[case::in_the_clear_too("az://c", &[("AZURE_STORAGE_ENDPOINT", "http://acc.blob.core.windows.net")], "write https://")]
#[case::in_the_clear_as_well("s3://b", &[("AWS_ENDPOINT", "http://s3.eu-central-1.amazonaws.com:80")], "write https://")]
#[case::an_emulator("az://c", &[("AZURE_STORAGE_ACCOUNT_NAME", "acc"), ("AZURE_STORAGE_USE_EMULATOR", "true")], "AZURE_STORAGE_ENDPOINT=http://127.0.0.1:10000/")]
#[case::half_an_identity("az://c", &[("AZURE_STORAGE_ACCOUNT_NAME", "acc"), ("AZURE_CLIENT_ID", "x"), ("AZURE_CLIENT_SECRET", SECRET)], "AZURE_TENANT_ID is missing")]
#[case::contents_for_a_file("gs://b", &[("GOOGLE_APPLICATION_CREDENTIALS", r#"{"private_key": "wJalrXUtnFEMI"}"#)], "name them GOOGLE_SERVICE_ACCOUNT_KEY")]
#[case::a_key_that_says_where_to("gs://b", &[("GOOGLE_SERVICE_ACCOUNT_KEY", r#"{"client_email": "a@b", "private_key": "wJalrXUtnFEMI", "private_key_id": "1", "gcs_base_url": "http://x"}"#)], "GOOGLE_BASE_URL")]
#[case::a_key_that_is_not_shown("gs://b", &[("GOOGLE_SERVICE_ACCOUNT_KEY", r#"{"client_email": "a@b", "private_key": "wJalrXUtnFEMI", "private_key_id": "1", "disable_oauth": true}"#)], "has a disable_oauth in it")]
#[case::no_account("az://c", &[("AZURE_STORAGE_ACCOUNT_KEY", SECRET)], "AZURE_STORAGE_ACCOUNT_NAME is missing")]
#[case::no_json("gs://b", &[("GOOGLE_SERVICE_ACCOUNT_KEY", SECRET)], "is not the JSON")]
#[case::half_a_json("gs://b", &[("GOOGLE_SERVICE_ACCOUNT_KEY", r#"{"client_email": "a@b", "private_key": 3}"#)], "it has no private_key")]
#[case::no_bool("s3://b", &[("AWS_REGION", "x"), ("AWS_UNSIGNED_PAYLOAD", "wJalrXUtnFEMI")], "s3://b: ")]
#[case::bad_key("az://c", &[("AZURE_STORAGE_ACCOUNT_NAME", "acc"), ("AZURE_STORAGE_ACCOUNT_KEY", "!wJalrXUtnFEMI!")], "az://c: ")]
#[case::for_a_directory("file:///x", &[("AWS_REGION", "x")], "leave it out")]
fn a_setting_that_can_not_be_used_is_named_without_its_value(
    #[case] url: &str,
    #[case] given: &[(&str, &str)],
    #[case] expected: &str,
) {
    let error = located(url, settings(given), &[]).unwrap_err();
    let message = format!("{error} {error:?}");
    assert!(message.contains(expected), "{message}");
    assert!(!message.contains(SECRET) && !message.contains("wJalrXUtnFEMI"), "{message}");
}

#[test]
fn a_location_and_its_store_show_no_secret() {
    let location = located("s3://bucket/prod", keys(&[("AWS_ENDPOINT", "http://127.0.0.1:1")]), &[]).unwrap();
    let store = crate::Store::open(&location).unwrap();
    let shown = format!("{location:?} {store:?} {store} {:?}", store.below("x"));
    assert!(shown.contains("AWS_SECRET_ACCESS_KEY") && shown.contains("s3://bucket/prod/x"), "{shown}");
    assert!(!shown.contains(SECRET) && !shown.contains("AKIDEXAMPLE"), "{shown}");
}

#[test]
fn plain_http_is_for_whoever_writes_it() {
    let plain = |given| located("s3://b", given, &[]).unwrap().settings::<Aws>().unwrap().plain();
    assert!(plain(keys(&[("AWS_ENDPOINT", "http://127.0.0.1:9000")])));
    assert!(!plain(keys(&[("AWS_ENDPOINT", "https://127.0.0.1:9000")])));
    assert!(!plain(keys(&[("AWS_ALLOW_HTTP", "true")])), "the address decides");
}

#[rstest]
#[case("s3://b", "AWS_ENDPOINT")]
#[case("gs://b/prod", "GOOGLE_BASE_URL")]
#[case("az://c/prod", "AZURE_STORAGE_ENDPOINT")]
fn an_endpoint_is_told_to_each_kind_of_store_by_its_own_name(#[case] url: &str, #[case] expected: &str) {
    assert_eq!(Location::endpoint_setting(url), expected);
    let mut given = match expected {
        "AZURE_STORAGE_ENDPOINT" => {
            settings(&[("AZURE_STORAGE_ACCOUNT_NAME", "acc"), ("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")])
        }
        _ => settings(&[]),
    };
    given.insert(expected.to_owned(), "http://127.0.0.1:10000/acc/".to_owned());
    let location = located(url, given, &[]).unwrap();
    assert!(location.is_plain(), "the address says so");
}

#[test]
fn a_slash_behind_an_endpoint_is_no_part_of_any_path() {
    let given = settings(&[("GOOGLE_BASE_URL", "https://gcs.storage.svc:4443/")]);
    let settings: Settings<Google> = located("gs://b", given, &[]).unwrap().settings().unwrap();
    assert_eq!(settings.get(&Google::BaseUrl), Some("https://gcs.storage.svc:4443"));
}

#[test]
fn without_keys_the_identity_of_the_pod_is_used_and_with_them_it_is_not() {
    let pod = [
        ("AWS_REGION", "eu-west-1"),
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/backup"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "/token"),
        ("AWS_SECRET_ACCESS_KEY", "of somebody else"),
        ("AWS_PAGER", "less"),
    ];
    let identity: Settings<Aws> = located("s3://b", settings(&[]), &pod).unwrap().settings().unwrap();
    assert_eq!(identity.get(&Aws::RoleArn), Some("arn:aws:iam::1:role/backup"));
    assert_eq!(identity.get(&Aws::Region), Some("eu-west-1"));
    assert!(!identity.has(&Aws::SecretAccessKey), "half of a key pair that was meant for another");
    let given: Settings<Aws> = located("s3://b", keys(&[]), &pod).unwrap().settings().unwrap();
    assert_eq!((given.get(&Aws::RoleArn), given.get(&Aws::Region)), (None, Some("eu-central-1")));
    let azure = [("AZURE_CLIENT_ID", "id"), ("AZURE_TENANT_ID", "tenant"), ("AZURE_FEDERATED_TOKEN_FILE", "/token")];
    let account = settings(&[("AZURE_STORAGE_ACCOUNT_NAME", "acc")]);
    let identity: Settings<Azure> = located("az://c", account, &azure).unwrap().settings().unwrap();
    assert_eq!(identity.get(&Azure::FederatedTokenFile), Some("/token"));
}

#[test]
fn a_person_s_environment_is_taken_and_what_others_need_of_it_is_left() {
    let environment = settings(&[
        ("AWS_ACCESS_KEY_ID", "AKID"),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
        ("AWS_REGION", "eu-central-1"),
        ("AWS_PAGER", "less"),
        ("AWS_BUCKET", "other"),
        ("AWS_ENDPOINT", ""),
        ("region", "mine"),
        ("HOME", "/root"),
    ]);
    let found = Settings::<Aws>::of_environment(&environment);
    assert_eq!(found.into_keys().collect::<Vec<_>>(), ["AWS_ACCESS_KEY_ID", "AWS_REGION", "AWS_SECRET_ACCESS_KEY"]);
}

#[test]
fn an_authority_is_a_certificate() {
    let issuer = rcgen::generate_simple_self_signed(["store".to_owned()]).unwrap();
    let with = |pem: &str| Location::new("s3://b", keys(&[]), Some(pem));
    assert!(with(&issuer.cert.pem()).is_ok());
    for pem in ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        assert!(matches!(with(pem), Err(LocationError::Authority { .. })), "{pem:?}");
    }
}

#[test]
fn a_directory_is_made_when_it_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let location = Location::directory(&dir.path().join("a/b"));
    crate::Store::open(&location).unwrap();
    assert!(dir.path().join("a/b").is_dir());
    std::fs::write(dir.path().join("file"), "").unwrap();
    let error = crate::Store::open(&Location::directory(&dir.path().join("file/b"))).unwrap_err();
    assert!(matches!(error, LocationError::Directory { .. }), "{error}");
}
