//! The probe's table and its SQL.
//!
//! The table has no unique key: a row that is there twice must be seen, not prevented. The INSERT returns where it happened
//! (server, timeline, term), so that the record is of the write and not of a question asked before or after it.

use std::str::FromStr;

use bellwether_core::wal::{Term, Timeline};
use tokio_postgres::SimpleQueryRow;

use crate::history::{Server, WriterId};
use crate::session::Row;

/// Its name, in the first schema of the role's search path.
pub const NAME: &str = "bellwether_probe";

/// A row if the table is there.
pub fn look() -> String {
    format!("select 1 where to_regclass('{NAME}') is not null")
}

/// Creates the table. Harmless when it is there.
pub fn create() -> String {
    format!(
        "create table if not exists {NAME} (run text not null, writer bigint not null, seq bigint not null,
         written timestamptz not null default clock_timestamp())"
    )
}

/// Who a server is. Each of these functions may be called by any role, in recovery too.
const SELF: &str = "current_setting('cluster_name') as instance, host(inet_server_addr()) as address,
    inet_server_port() as port, (select system_identifier from pg_control_system()) as system,
    (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint as postmaster,
    current_setting('bellwether.term', true) as term";

/// Asks a server who it is. A standby has no timeline of its own.
pub fn who() -> String {
    format!(
        "select {SELF}, case when pg_is_in_recovery() then null else pg_walfile_name(pg_current_wal_lsn()) end as segment"
    )
}

/// Begins a transaction and inserts the row. Warnings must arrive, whatever role or database say about `client_min_messages`.
pub fn insert(row: &Row<'_>) -> String {
    let Row { run, writer: WriterId(writer), seq } = row;
    format!(
        "begin; set local client_min_messages = warning;
         insert into {NAME} (run, writer, seq) values ('{run}', {writer}, {seq})
         returning {SELF}, pg_walfile_name(pg_current_wal_lsn()) as segment"
    )
}

/// A server from [`who`] or [`insert`]; nothing when it did not say whose data it serves.
pub fn server(row: &SimpleQueryRow) -> Option<Server> {
    let text = |column: &str| row.try_get(column).ok().flatten().filter(|text| !text.is_empty());
    let address = text("address").zip(text("port")).map(|(address, port)| match address.contains(':') {
        true => format!("[{address}]:{port}"),
        false => format!("{address}:{port}"),
    });
    Some(Server {
        instance: text("instance").map(str::to_owned),
        address,
        postmaster: parsed(text("postmaster")),
        system: parsed(text("system"))?,
        timeline: text("segment").and_then(timeline_of),
        term: parsed(text("term")).map(Term),
    })
}

fn parsed<T: FromStr>(text: Option<&str>) -> Option<T> {
    text?.parse().ok()
}

/// The timeline is the first eight digits of a WAL file's name.
fn timeline_of(segment: &str) -> Option<Timeline> {
    u32::from_str_radix(segment.get(..8)?, 16).ok().filter(|timeline| *timeline > 0).map(Timeline)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeline_is_read_from_a_segments_name() {
        assert_eq!(timeline_of("0000001F000000000000002A"), Some(Timeline(31)));
        for none in ["", "00000000000000000000002A", "0000", "x000001F000000000000002A"] {
            assert_eq!(timeline_of(none), None, "{none}");
        }
    }
}
