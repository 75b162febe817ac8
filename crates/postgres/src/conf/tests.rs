//! What the writer of `postgresql.conf` promises.

use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;

use super::*;

fn installed(major: &str) -> Installation {
    Installation { major: major.into(), full_version: format!("{major}.1"), bin_dir: "/pg/bin".into() }
}

fn settings(run_dir: &Path) -> ServerSettings {
    ServerSettings {
        instance: "orders-1".into(),
        listen: vec!["127.0.0.1".parse().unwrap()],
        port: 5432,
        socket_dir: SocketDir::ensure(&run_dir.join("s"), 5432).unwrap(),
        tls: Some(ServerTls::in_dir(Path::new("/tls"))),
        upstream: Some(Upstream {
            conninfo: ConnInfo {
                host: "orders-2.orders-pods.shop.svc".into(),
                address: "127.0.0.2".parse().unwrap(),
                port: 5432,
                user: "bellwether_replication".into(),
                application_name: "it's \\ me".into(),
                tls: crate::conninfo::ClientTls::in_dir(Path::new("/tls")),
            },
            slot: SlotName::of_instance("orders-1").unwrap(),
        }),
        synchronous: Synchronous::Any { quorum: 1, voters: vec!["orders-2".into(), "orders-3".into()] },
        writes: Writes::Accepted,
        term: Some(7),
        wal_room: Some(WalRoom { slots: 1024, checkpoint: 256, recycled: 64, kept: 48 }),
        least: BTreeMap::new(),
        archive_command: Some("bellwether archive-wal /run/archive %f".into()),
    }
}

/// Every PostgreSQL here; there is always one, `make test` installs it.
fn all_installed() -> Vec<Installation> {
    let found = crate::installation::find_all();
    assert!(!found.is_empty(), "no PostgreSQL is installed: nothing would be tested");
    found
}

fn parameters(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn every_line_of_the_owned_part_is_in_the_table_of_owned_settings() {
    let dir = tempfile::tempdir().unwrap();
    for (name, _) in ours::owned(&installed("18"), &settings(dir.path())) {
        assert!(owned::owner_of(name).is_some(), "{name} is set by us, but a user could set it, too");
    }
    for (name, _) in ours::defaults(Some(WalRoom::on(0))) {
        assert!(owned::owner_of(name).is_none(), "{name} is a default that nobody can change");
    }
}

#[test]
fn an_owned_parameter_is_refused_with_name_value_and_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["listen_addresses", "Listen_Addresses", "wal_level", "log_line_prefix"] {
        let error = render(&installed("17"), &settings(dir.path()), &parameters(&[(name, "sly")])).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(&format!("spec.parameters.{name}")) && text.contains("sly"), "{text}");
        assert!(text.contains("remove it"), "{text}");
    }
}

#[test]
fn a_users_parameter_stands_after_our_default_and_before_what_is_owned() {
    let dir = tempfile::tempdir().unwrap();
    let text = render(&installed("17"), &settings(dir.path()), &parameters(&[("log_lock_waits", "off")])).unwrap();
    let at = |line: &str| text.find(line).unwrap_or_else(|| panic!("{line} in {text}"));
    assert!(at("log_lock_waits = 'on'") < at("log_lock_waits = 'off'"));
    assert!(at("log_lock_waits = 'off'") < at("listen_addresses = '127.0.0.1'"));
}

#[test]
fn the_log_is_bounded_by_the_volume_unless_the_user_says_otherwise() {
    for installation in all_installed() {
        let dir = tempfile::tempdir().unwrap();
        let read = |name: &str, parameters: &BTreeMap<String, String>| {
            install(dir.path(), &render(&installation, &settings(dir.path()), parameters).unwrap()).unwrap();
            std::fs::write(dir.path().join("PG_VERSION"), format!("{}\n", installation.major)).unwrap();
            effective(&installation, dir.path(), name).unwrap()
        };
        let none = BTreeMap::new();
        let sizes = ["max_wal_size", "min_wal_size", "wal_keep_size"].map(|name| read(name, &none));
        assert_eq!(sizes, ["256", "64", "48"].map(str::to_owned));
        assert_eq!(read("max_wal_size", &parameters(&[("max_wal_size", "2GB")])), "2048");
    }
}

#[test]
fn a_server_without_a_certificate_listens_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    let mut open = settings(dir.path());
    open.tls = None;
    assert!(matches!(render(&installed("17"), &open, &BTreeMap::new()), Err(ConfError::ListensWithoutTls { .. })));
    open.listen.clear();
    assert!(render(&installed("17"), &open, &BTreeMap::new()).unwrap().contains("listen_addresses = ''\n"));
}

#[test]
fn alter_system_is_refused_where_postgresql_can_and_undone_everywhere() {
    let dir = tempfile::tempdir().unwrap();
    let text = |major| render(&installed(major), &settings(dir.path()), &BTreeMap::new()).unwrap();
    assert!(text("17").contains("allow_alter_system = 'off'"));
    assert!(!text("16").contains("allow_alter_system"));

    std::fs::write(dir.path().join(AUTO), "# by hand\nfsync = 'off'\nwork_mem= '1GB'\n").unwrap();
    let first = install(dir.path(), &text("16")).unwrap();
    assert_eq!(first, Installed { written: Written::Changed, discarded: vec!["fsync".into(), "work_mem".into()] });
    let second = install(dir.path(), &text("16")).unwrap();
    assert_eq!(second, Installed { written: Written::Unchanged, discarded: vec![] });
}

/// What PostgreSQL reads is what was written, on every PostgreSQL that is installed here.
#[test]
fn postgresql_reads_back_what_was_written() {
    for installation in all_installed() {
        let dir = tempfile::tempdir().unwrap();
        let ours = settings(dir.path());
        install(dir.path(), &render(&installation, &ours, &BTreeMap::new()).unwrap()).unwrap();
        std::fs::write(dir.path().join("PG_VERSION"), format!("{}\n", installation.major)).unwrap();
        for (name, value) in ours::owned(&installation, &ours) {
            // `-C` shows numbers in their base units, and the mode in decimal.
            let value = match name {
                "wal_sender_timeout" | "wal_receiver_timeout" => "10000".to_owned(),
                "unix_socket_permissions" => 0o700.to_string(),
                "archive_timeout" => "300".to_owned(),
                "wal_retrieve_retry_interval" => "100".to_owned(),
                "wal_receiver_status_interval" => "1".to_owned(),
                "max_slot_wal_keep_size" => "1024".to_owned(),
                _ => value,
            };
            assert_eq!(effective(&installation, dir.path(), name).unwrap(), value, "{name}");
        }
    }
}

proptest! {
    // Each case starts a `postgres`; these many take a second.
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_value_of_one_line_survives(value in "([^\\x00\\n\\r]|['\\\\\"#=$]){0,40}") {
        for installation in all_installed() {
            let dir = tempfile::tempdir().unwrap();
            let parameters = parameters(&[("shop.first", &value), ("shop.second", "2")]);
            let ours = settings(dir.path());
            install(dir.path(), &render(&installation, &ours, &parameters).unwrap()).unwrap();
            std::fs::write(dir.path().join("PG_VERSION"), format!("{}\n", installation.major)).unwrap();
            prop_assert_eq!(effective(&installation, dir.path(), "shop.first").unwrap(), value.clone());
            prop_assert_eq!(effective(&installation, dir.path(), "shop.second").unwrap(), "2");
        }
    }
}

#[test]
fn a_standby_is_not_below_what_its_wal_was_written_with() {
    let dir = tempfile::tempdir().unwrap();
    let least = |name: &str, value| ServerSettings { least: [(name.to_owned(), value)].into(), ..settings(dir.path()) };
    let value = |settings: &ServerSettings, parameters: &BTreeMap<String, String>, name: &str| {
        let text = render(&installed("17"), settings, parameters).unwrap();
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(&format!("{name} = ")).map(str::to_owned));
        lines.next_back().unwrap()
    };
    let low = parameters(&[("max_connections", "50")]);
    assert_eq!(value(&settings(dir.path()), &low, "max_connections"), "'50'");
    assert_eq!(value(&least("max_connections", 80), &low, "max_connections"), "'80'");
    assert_eq!(value(&least("max_connections", 80), &BTreeMap::new(), "max_connections"), "'100'");
    assert_eq!(value(&least("max_worker_processes", 16), &BTreeMap::new(), "max_worker_processes"), "'16'");
    assert_eq!(above(&low, &[("max_connections".to_owned(), 80)].into()), ["max_connections"]);
    assert_eq!(above(&low, &[("max_connections".to_owned(), 50)].into()), [""; 0]);
    assert_eq!(
        above(&parameters(&[("max_connections", "0x32")]), &[("max_connections".to_owned(), 50)].into()),
        [""; 0]
    );
}

#[test]
fn a_primary_without_room_is_read_only_whatever_the_user_set() {
    let dir = tempfile::tempdir().unwrap();
    let user = [("default_transaction_read_only".to_owned(), "off".to_owned())].into();
    let full = ServerSettings { writes: Writes::Refused, ..settings(dir.path()) };
    let text = render(&installed("17"), &full, &user).unwrap();
    let last = text.lines().rfind(|line| line.starts_with("default_transaction_read_only")).unwrap();
    assert!(last.contains("on"), "{last}");
    let text = render(&installed("17"), &settings(dir.path()), &BTreeMap::new()).unwrap();
    assert!(!text.contains("default_transaction_read_only"));
}
