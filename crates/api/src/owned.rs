//! Which PostgreSQL settings Bellwether owns, why, and what to use instead.
//!
//! One table: the schema refuses these names, the writer of `postgresql.conf` trusts that no user setting is among them, and
//! `docs/reference/parameters.md` is made from it. Never: a setting here that users have no other way to influence and a
//! legitimate reason to; refusing can be taken back later, but a setting that users have come to rely on can't.

/// Settings that are owned for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topic {
    /// What they have in common.
    pub name: &'static str,
    /// Why a user's value would break something. Completes the sentence "… can't be set: ".
    pub why: &'static str,
    /// What to use instead.
    pub instead: &'static str,
    /// The settings by name.
    pub names: &'static [&'static str],
    /// Every setting that begins with one of these.
    pub prefixes: &'static [&'static str],
}

impl Topic {
    /// Whether the setting `name` belongs to this topic. PostgreSQL ignores case in names, so we do.
    pub fn covers(&self, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        self.names.contains(&name.as_str()) || self.prefixes.iter().any(|prefix| name.starts_with(prefix))
    }
}

/// The topic that owns the setting `name`, if any does.
pub fn owner_of(name: &str) -> Option<&'static Topic> {
    TOPICS.iter().find(|topic| topic.covers(name))
}

/// Every owned setting.
pub const TOPICS: [Topic; 10] = [
    Topic {
        name: "network",
        why: "clients, agents and Services find PostgreSQL at an address that Bellwether chooses",
        instead: "remove it and connect through the Services <cluster>-rw, -ro and -r",
        names: &[
            "listen_addresses",
            "port",
            "unix_socket_directories",
            "unix_socket_group",
            "unix_socket_permissions",
            "bonjour",
            "bonjour_name",
            // The agents must get in when applications have used up every connection.
            "superuser_reserved_connections",
        ],
        prefixes: &[],
    },
    Topic {
        name: "files",
        why: "Bellwether writes PostgreSQL's files and knows them by their place",
        instead: "remove it; write settings in spec.parameters and access rules in spec.pgHba",
        names: &[
            "data_directory",
            "config_file",
            "hba_file",
            "ident_file",
            "external_pid_file",
            // Directives of the file format rather than settings, but they would be read as such.
            "include",
            "include_dir",
            "include_if_exists",
            // ALTER SYSTEM would write beside us what the spec doesn't say.
            "allow_alter_system",
        ],
        prefixes: &[],
    },
    Topic {
        name: "authentication",
        why: "TLS is always on with certificates that Bellwether issues and renews, and passwords are SCRAM",
        instead: "remove it; the authority's certificate is in the Secret <cluster>-app, and who may log in is said in spec.pgHba",
        names: &["ssl", "password_encryption", "db_user_namespace", "gss_accept_delegation"],
        prefixes: &["ssl_", "krb_"],
    },
    Topic {
        name: "durability",
        why: "what an acknowledged commit is worth is promised by the cluster as a whole",
        instead: "set spec.durability.mode; a single transaction may still ask for less with SET LOCAL synchronous_commit",
        // synchronous_commit is among them although sessions may set it: as a cluster-wide value, `off` or `local` would
        // void `quorum` while status goes on promising it.
        names: &["synchronous_standby_names", "synchronous_commit"],
        prefixes: &[],
    },
    Topic {
        name: "data safety",
        why: "a crash would leave data that replication, rewinding and failover can't trust",
        instead: "remove it; for throwaway speed use spec.durability.mode: async",
        names: &[
            "fsync",
            "full_page_writes",
            "data_sync_retry",
            "zero_damaged_pages",
            "ignore_checksum_failure",
            "ignore_invalid_pages",
            "ignore_system_indexes",
            "restart_after_crash",
            "remove_temp_files_after_crash",
        ],
        prefixes: &["wal_consistency_", "allow_in_place_"],
    },
    Topic {
        name: "replication",
        why: "the agents decide who leads and who follows, and set this on each instance by its role",
        instead: "remove it; set spec.replicas for more standbys and spec.storage.wal.size for more room for WAL",
        names: &[
            "wal_level",
            "wal_log_hints",
            "hot_standby",
            "primary_conninfo",
            "primary_slot_name",
            "promote_trigger_file",
            "cluster_name",
            "max_wal_senders",
            "max_replication_slots",
            // Bounded by us from the volume: too much fills the disk, too little drops a standby.
            "max_slot_wal_keep_size",
            "idle_replication_slot_timeout",
            "synchronized_standby_slots",
            "sync_replication_slots",
            "wal_retrieve_retry_interval",
            "wal_sender_timeout",
            "wal_receiver_timeout",
            "wal_receiver_status_interval",
            "wal_receiver_create_temp_slot",
        ],
        prefixes: &[],
    },
    Topic {
        name: "archive and recovery",
        why: "Bellwether archives WAL and recovers from the archive itself",
        instead: "remove it and use spec.backup",
        names: &[
            "archive_mode",
            "archive_command",
            "archive_library",
            "archive_timeout",
            "archive_cleanup_command",
            "restore_command",
            "summarize_wal",
        ],
        prefixes: &["recovery_"],
    },
    Topic {
        name: "logging",
        why: "logs leave the container as JSON on its standard output",
        instead: "remove it and read the logs with kubectl logs; what is logged is yours to set (log_statement, log_min_duration_statement, …)",
        names: &[
            "log_destination",
            "logging_collector",
            "log_directory",
            "log_filename",
            "log_file_mode",
            "log_rotation_age",
            "log_rotation_size",
            "log_truncate_on_rotation",
            "event_source",
            // The agent reads each line back; these would change its language.
            "lc_messages",
            "log_line_prefix",
            "log_timezone",
        ],
        prefixes: &["syslog_"],
    },
    Topic {
        name: "Bellwether's own",
        why: "agents say there in which term an instance leads, and whoever checks a history believes it",
        instead: "choose another prefix for settings of your own",
        names: &[],
        prefixes: &["bellwether."],
    },
    Topic {
        name: "read-only",
        why: "PostgreSQL reports it or fixes it at initdb, and would refuse to start with it in its configuration",
        instead: "remove it; locale and checksums of a new cluster are set in spec.bootstrap.initdb",
        names: &[
            "block_size",
            "data_checksums",
            "data_directory_mode",
            "debug_assertions",
            "huge_pages_status",
            "in_hot_standby",
            "integer_datetimes",
            "is_superuser",
            "lc_collate",
            "lc_ctype",
            "max_function_args",
            "max_identifier_length",
            "max_index_keys",
            "num_os_semaphores",
            "role",
            "seed",
            "segment_size",
            "server_encoding",
            "server_version",
            "server_version_num",
            "session_authorization",
            "shared_memory_size",
            "shared_memory_size_in_huge_pages",
            "transaction_deferrable",
            "transaction_isolation",
            "transaction_read_only",
            "wal_block_size",
            "wal_segment_size",
        ],
        prefixes: &[],
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_setting_has_one_owner() {
        let mut seen = BTreeSet::new();
        for name in TOPICS.iter().flat_map(|topic| topic.names) {
            assert!(seen.insert(name), "{name} is listed twice");
            let owners = TOPICS.iter().filter(|topic| topic.covers(name)).count();
            assert_eq!(owners, 1, "{name} is covered by {owners} topics");
        }
    }

    #[test]
    fn a_prefix_covers_what_begins_with_it_and_case_does_not_matter() {
        assert_eq!(owner_of("ssl_min_protocol_version").map(|topic| topic.name), Some("authentication"));
        assert_eq!(owner_of("Recovery_Target_Time").map(|topic| topic.name), Some("archive and recovery"));
    }

    #[test]
    fn what_users_tune_every_day_is_theirs() {
        for name in ["work_mem", "shared_buffers", "max_connections", "log_statement", "shared_preload_libraries"] {
            assert_eq!(owner_of(name), None, "{name}");
        }
    }
}
