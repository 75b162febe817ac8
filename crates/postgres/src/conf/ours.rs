//! What we set, and why each value is what it is.
//!
//! Durability (`fsync`, `full_page_writes`, `synchronous_commit`) is not among it: PostgreSQL's defaults are right. What depends on
//! the machine (`shared_buffers`, …) is the user's.

use bellwether_core::instance::space::WalRoom;

use crate::installation::Installation;
use crate::log;

use super::{ServerSettings, Writes};

/// Connections for replication. At most ten instances: nine standbys with one each, or two while they are cloned (data and
/// WAL), backups, and room for the user's own. The same on every instance and never lowered: a standby whose value is below
/// its primary's refuses to start.
pub const MAX_WAL_SENDERS: u32 = 32;
/// Slots: nine standbys', and room for the user's own. The same everywhere, because any instance may become primary.
pub const MAX_SLOTS: u32 = 32;

type Line = (&'static str, String);

/// What a user may override.
pub(super) fn defaults(wal_room: Option<WalRoom>) -> Vec<Line> {
    let mut lines = vec![
        // Without these a log can't answer the first questions after an incident.
        ("log_checkpoints", "on".to_owned()),
        ("log_lock_waits", "on".to_owned()),
        ("log_temp_files", "10MB".to_owned()),
        // So that a standby which was away for a moment finds its WAL even where its slot had to give it up.
        ("wal_keep_size", format!("{}MB", wal_room.map_or(128, |room| room.kept))),
        // PostgreSQL's own defaults, written out: a standby may need more than these for a while, and a line that comes and goes would
        // ask for a restart though the value is the same.
        ("max_connections", "100".to_owned()),
        ("max_worker_processes", "8".to_owned()),
        ("max_prepared_transactions", "0".to_owned()),
        ("max_locks_per_transaction", "64".to_owned()),
    ];
    if let Some(room) = wal_room {
        lines.extend([
            ("max_wal_size", format!("{}MB", room.checkpoint)),
            ("min_wal_size", format!("{}MB", room.recycled)),
        ]);
    }
    lines
}

/// What nobody else may set.
pub(super) fn owned(installation: &Installation, settings: &ServerSettings) -> Vec<Line> {
    let mut lines = connections(settings);
    lines.extend(replication(settings));
    lines.extend(archive(settings.archive_command.as_deref()));
    lines.extend(logging());
    if installation.at_least(17) {
        // It would override this file. Earlier versions have no such switch; `install` undoes it there.
        lines.push(("allow_alter_system", "off".to_owned()));
    }
    lines
}

fn connections(settings: &ServerSettings) -> Vec<Line> {
    let addresses: Vec<_> = settings.listen.iter().map(ToString::to_string).collect();
    let mut lines = vec![
        ("cluster_name", settings.instance.clone()),
        ("listen_addresses", addresses.join(",")),
        ("port", settings.port.to_string()),
        ("unix_socket_directories", list_item(&settings.socket_dir.path().display().to_string())),
        // With the directory's 0700 this is what local access rests on: see `socket`.
        ("unix_socket_permissions", "0700".to_owned()),
        ("unix_socket_group", String::new()),
        ("password_encryption", "scram-sha-256".to_owned()),
        // The agent names its service to nobody; Kubernetes does.
        ("bonjour", "off".to_owned()),
    ];
    match &settings.tls {
        None => lines.push(("ssl", "off".to_owned())),
        Some(tls) => lines.extend([
            ("ssl", "on".to_owned()),
            ("ssl_cert_file", tls.cert.display().to_string()),
            ("ssl_key_file", tls.key.display().to_string()),
            ("ssl_ca_file", tls.ca.display().to_string()),
            // 1.0 and 1.1 are broken; old drivers that know nothing newer must be updated, not accommodated.
            ("ssl_min_protocol_version", "TLSv1.2".to_owned()),
        ]),
    }
    lines
}

/// An item of a list setting, in double quotes: a comma or space in a path would otherwise make two of it.
fn list_item(item: &str) -> String {
    format!("\"{}\"", item.replace('"', "\"\""))
}

fn replication(settings: &ServerSettings) -> Vec<Line> {
    let mut lines = vec![
        ("wal_level", "replica".to_owned()),
        ("max_wal_senders", MAX_WAL_SENDERS.to_string()),
        ("max_replication_slots", MAX_SLOTS.to_string()),
        ("hot_standby", "on".to_owned()),
        // What pg_rewind needs where data checksums are off; with them on it costs nothing more.
        ("wal_log_hints", "on".to_owned()),
        // After a crash everything on the volume is made durable before anything is replayed. File by file, which is PostgreSQL's default, that is
        // most of a recovery: six seconds of seven for an empty database on a busy disk. The volume is ours alone, so all of it at once.
        ("recovery_init_sync_method", "syncfs".to_owned()),
        // A promoted standby's history is followed, never left behind.
        ("recovery_target_timeline", "latest".to_owned()),
        // How often a standby tries again when it can't reach its primary. The default, 5 s, would be most of the time in
        // which writes wait for a standby after a failover; ten attempts a second on one socket are nothing.
        ("wal_retrieve_retry_interval", "100ms".to_owned()),
        // A dead peer is noticed in this time (the default is a minute): longer than any stall of a healthy disk that we
        // tolerate, short enough that nobody pages. The sender asks for a sign of life at half of it.
        ("wal_sender_timeout", "10s".to_owned()),
        ("wal_receiver_timeout", "10s".to_owned()),
        // How stale the primary's picture of an idle standby may be; it reports at once while it receives.
        ("wal_receiver_status_interval", "1s".to_owned()),
        ("synchronous_standby_names", settings.synchronous.names()),
    ];
    if settings.writes == Writes::Refused {
        // It reaches every session with its next transaction, drivers and poolers see it (`target_session_attrs`), and whoever makes room
        // can still say `SET TRANSACTION READ WRITE`.
        lines.push(("default_transaction_read_only", "on".to_owned()));
    }
    if let Some(term) = settings.term {
        // PostgreSQL takes any name with a dot. A client can ask with its write in which term it was made (docs/probe.md).
        lines.push(("bellwether.term", term.to_string()));
    }
    if let Some(room) = settings.wal_room {
        // A slot whose instance is gone holds WAL back for ever, until the volume is full and the primary stops.
        lines.push(("max_slot_wal_keep_size", format!("{}MB", room.slots)));
    }
    if let Some(upstream) = &settings.upstream {
        lines.push(("primary_conninfo", upstream.conninfo.to_string()));
        lines.push(("primary_slot_name", upstream.slot.to_string()));
    }
    lines
}

/// The log goes into the archive from standbys too: what a primary did not get there before it was lost, they keep until it is there.
fn archive(command: Option<&str>) -> Vec<Line> {
    match command {
        Some(command) => vec![
            ("archive_mode", "always".to_owned()),
            ("archive_command", command.to_owned()),
            // What is in a segment that is not full is in the archive after this time, if anything is in it.
            ("archive_timeout", "5min".to_owned()),
        ],
        // A server that still runs with an archive would keep every segment for a command that fails.
        None => vec![("archive_mode", "off".to_owned()), ("archive_command", "true".to_owned())],
    }
}

/// See [`log`] for why the log goes through stderr.
fn logging() -> Vec<Line> {
    vec![
        ("log_destination", "stderr".to_owned()),
        ("logging_collector", "off".to_owned()),
        ("log_line_prefix", log::LINE_PREFIX.to_owned()),
        // Severities and labels are parsed: a translated `FEHLER` would be no error to anybody who filters by level.
        ("lc_messages", "C".to_owned()),
        ("log_timezone", "UTC".to_owned()),
    ]
}
