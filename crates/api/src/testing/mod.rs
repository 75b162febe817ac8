//! For tests, of this crate and of others: generators of specs that the schema accepts, and the table of those that it refuses
//! ([`refused`]).
//!
//! Only values that the CRD's rules let through are made, and every field is made, so that "every schema-valid spec
//! converges or names the bad field" is tested against what users can really store.

pub mod refused;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{LocalObjectReference, ResourceRequirements, SecretKeySelector, Toleration};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::sample::select;

use crate::v1::{
    AntiAffinity, Automation, AutomationGate, BackupPolicy, BackupStore, Bootstrap, Compression, Durability,
    DurabilityMode, Initdb, LocaleProvider, Monitoring, OnDelete, PostgresCluster, PostgresClusterSpec, Scheduling,
    SecretName, Storage, Verification, VerificationPolicy, VerificationQuery, WalStorage,
};
use crate::versions;

/// A cluster that the schema accepts, in the namespace `default`.
pub fn clusters() -> impl Strategy<Value = PostgresCluster> {
    ("[a-z]([a-z0-9-]{0,48}[a-z0-9])?", specs()).prop_map(|(name, spec)| {
        let mut cluster = PostgresCluster::new(&name, spec);
        cluster.metadata.namespace = Some("default".to_owned());
        cluster
    })
}

/// A spec that the schema accepts.
pub fn specs() -> impl Strategy<Value = PostgresClusterSpec> {
    let machine = (
        select(versions::SUPPORTED.map(|version| version.major.to_owned()).to_vec()),
        option::of("[a-z][a-z0-9.]{0,20}/[a-z]{1,10}:[0-9]{1,2}"),
        vec("[a-z]{1,12}".prop_map(|name| LocalObjectReference { name }), 0..3),
        1..=10_i32,
        storage(),
        option::of(resources()),
        scheduling(),
    );
    let policy =
        (parameters(), vec(hba_lines(), 0..3), option::of(modes()), backup(), any::<bool>(), gates(), initdb());
    (machine, policy).prop_map(|(machine, policy)| {
        let (version, image, image_pull_secrets, replicas, storage, resources, scheduling) = machine;
        let (parameters, pg_hba, mode, backup, enabled, updates, initdb) = policy;
        PostgresClusterSpec {
            version,
            image,
            image_pull_secrets,
            replicas,
            storage,
            resources,
            scheduling,
            parameters,
            pg_hba,
            // A quorum of one is the one combination that is refused.
            durability: Durability { mode: mode.filter(|mode| replicas > 1 || *mode != DurabilityMode::Quorum) },
            backup,
            monitoring: Monitoring { enabled },
            automation: Automation { updates },
            bootstrap: Bootstrap { initdb, recovery: None },
        }
    })
}

/// A cron expression that the schema accepts and that fires.
pub fn schedules() -> impl Strategy<Value = String> {
    let minute = prop_oneof![
        Just("*".to_owned()),
        (0..60_u8).prop_map(|n| n.to_string()),
        (1..60_u8).prop_map(|n| format!("*/{n}"))
    ];
    let hour = prop_oneof![Just("*".to_owned()), (0..24, 0..24).prop_map(|(a, b)| span(a, b))];
    let day = prop_oneof![Just("*".to_owned()), (1..29, 1..32).prop_map(|(a, b)| span(a, b))];
    let month =
        prop_oneof![Just("*".to_owned()), Just("JAN-MAR,oct".to_owned()), (1..13, 1..13).prop_map(|(a, b)| span(a, b))];
    let weekday = prop_oneof![Just("*".to_owned()), Just("MON-FRI".to_owned()), Just("7".to_owned())];
    (minute, hour, day, month, weekday).prop_map(|(m, h, d, mo, w)| format!("{m} {h} {d} {mo} {w}"))
}

fn span(a: i32, b: i32) -> String {
    format!("{}-{}", a.min(b), a.max(b))
}

fn quantities() -> impl Strategy<Value = Quantity> {
    (1..500_u32, select(vec!["Gi", "G", "Ti"])).prop_map(|(number, unit)| Quantity(format!("{number}{unit}")))
}

fn storage() -> impl Strategy<Value = Storage> {
    let wal =
        (quantities(), option::of("[a-z]{1,10}")).prop_map(|(size, storage_class)| WalStorage { size, storage_class });
    let on_delete = select(vec![OnDelete::Retain, OnDelete::Delete]);
    (quantities(), option::of("[a-z]{1,10}"), option::of(wal), on_delete)
        .prop_map(|(size, storage_class, wal, on_delete)| Storage { size, storage_class, wal, on_delete })
}

fn resources() -> impl Strategy<Value = ResourceRequirements> {
    (1..8_u32, 1..64_u32).prop_map(|(cpu, memory)| {
        let of = |cpu: String, memory: u32| {
            Some(BTreeMap::from([
                ("cpu".to_owned(), Quantity(cpu)),
                ("memory".to_owned(), Quantity(format!("{memory}Gi"))),
            ]))
        };
        ResourceRequirements {
            requests: of(format!("{}m", cpu * 500), memory),
            limits: of(cpu.to_string(), memory),
            ..ResourceRequirements::default()
        }
    })
}

fn scheduling() -> impl Strategy<Value = Scheduling> {
    let anti_affinity = select(vec![AntiAffinity::Preferred, AntiAffinity::Required, AntiAffinity::Off]);
    let toleration = "[a-z]{1,8}".prop_map(|key| Toleration {
        key: Some(key),
        operator: Some("Exists".to_owned()),
        ..Toleration::default()
    });
    (anti_affinity, btree_map("[a-z]{1,8}", "[a-z]{1,8}", 0..3), vec(toleration, 0..2), option::of("[a-z]{1,8}"))
        .prop_map(|(anti_affinity, node_selector, tolerations, priority_class_name)| Scheduling {
            anti_affinity,
            node_selector,
            tolerations,
            affinity: None,
            topology_spread_constraints: vec![],
            priority_class_name,
        })
}

fn parameters() -> impl Strategy<Value = BTreeMap<String, String>> {
    let names = vec!["work_mem", "max_connections", "log_statement", "auto_explain.log_analyze", "shared_buffers"];
    btree_map(select(names).prop_map(str::to_owned), "[a-zA-Z0-9' %_=\\\\]{0,12}", 0..4)
}

fn hba_lines() -> impl Strategy<Value = String> {
    (select(vec!["local", "host", "hostssl"]), "[a-z]{1,8}")
        .prop_map(|(kind, user)| format!("{kind} all {user} all scram-sha-256"))
}

fn modes() -> impl Strategy<Value = DurabilityMode> {
    select(vec![DurabilityMode::Quorum, DurabilityMode::Preferred, DurabilityMode::Async])
}

fn gates() -> impl Strategy<Value = AutomationGate> {
    select(vec![AutomationGate::Auto, AutomationGate::Approve, AutomationGate::Off])
}

fn backup() -> impl Strategy<Value = BackupPolicy> {
    let store =
        ("(s3|gs|az)://[a-z0-9]{3,10}(/[a-z0-9]{1,5}){0,2}", option::of("[a-z]{1,8}")).prop_map(|(url, secret)| {
            let credentials = secret.map(|name| SecretName { name });
            BackupStore { url, credentials, ..BackupStore::default() }
        });
    let retention = "[1-9][0-9]{0,3}[hdwmy]( and [1-9][0-9]{0,3} backups?)?|[1-9][0-9]{0,3} backups?";
    let time_zone = select(vec!["UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT+1"]);
    let compression = (1..=19, option::of(1..=64)).prop_map(|(level, workers)| Compression { level, workers });
    let max_rate = option::of((1..1024u32).prop_map(|mebibytes| Quantity(format!("{mebibytes}Mi"))));
    let when = (schedules(), time_zone);
    (when, retention, option::of(store), compression, max_rate, verification()).prop_map(
        |((schedule, time_zone), retention, store, compression, max_rate, verification)| {
            let time_zone = time_zone.to_owned();
            BackupPolicy { schedule, time_zone, retention, store, compression, max_rate, verification }
        },
    )
}

fn verification() -> impl Strategy<Value = Verification> {
    let policy = select(vec![VerificationPolicy::Scheduled, VerificationPolicy::Always, VerificationPolicy::Never]);
    let query = (option::of("[a-z]{1,8}"), "select [0-9]", vec(vec("[a-z0-9]{0,4}", 0..3), 0..3))
        .prop_map(|(database, sql, expected)| VerificationQuery { database, sql, expected });
    let (class, secret) = (option::of("[a-z]{1,8}"), option::of("[a-z]{1,8}"));
    (policy, vec(query, 0..3), class, secret).prop_map(|(policy, queries, storage_class, secret)| Verification {
        policy,
        queries,
        storage_class,
        resources: None,
        credentials: secret.map(|name| SecretName { name }),
    })
}

fn initdb() -> impl Strategy<Value = Initdb> {
    let identifier = || {
        "[a-z_][a-z0-9_-]{0,20}x"
            .prop_filter("reserved", |name| !name.starts_with("pg_") && !name.starts_with("bellwether"))
    };
    let locale = select(vec![
        (LocaleProvider::Libc, "C.UTF-8"),
        (LocaleProvider::Libc, "en_US.UTF-8"),
        (LocaleProvider::Icu, "de-DE"),
        (LocaleProvider::Icu, "und"),
    ]);
    let password = ("[a-z]{1,8}", "[a-z]{1,8}").prop_map(|(name, key)| SecretKeySelector { name, key, optional: None });
    (identifier(), identifier(), locale, any::<bool>(), vec("[ -~]{1,40}", 0..3), option::of(password)).prop_map(
        |(database, owner, (locale_provider, locale), data_checksums, post_init_sql, owner_password)| Initdb {
            database,
            owner,
            locale_provider,
            locale: locale.to_owned(),
            data_checksums,
            post_init_sql,
            owner_password,
        },
    )
}
