//! What is restored is what was backed up, and what isn't a backup is never called one.

mod postgres;

use std::os::unix::fs::FileExt as _;
use std::path::Path;

use bellwether_backup::base::protocol::{Connection, Purpose};
use bellwether_backup::base::{needed_segments, seal};
use bellwether_backup::layout::{BackupId, COMMIT, WalFile};
use bellwether_backup::record::Commit;
use bellwether_backup::restore::verify::{Check, Looked, Phase, Query, VerifyError, verify};
use bellwether_backup::restore::{Configuration, MARKER, Options, RestoreError, unpack};
use bellwether_core::wal::Lsn;
use jiff::Timestamp;
use postgres::restored::{check, progress, verified};
use postgres::{Archive, PATIENCE, PORT, Server, eventually, installed, place};

/// A small database with a table of a few packs, backed up.
async fn backed_up() -> (Server, Archive, Commit) {
    let (server, archive) = (Server::new().await, Archive::new());
    server
        .sql("create table item as select n, md5(n::text) || md5((n + 1)::text) as text from generate_series(1, 60000) as n")
        .await;
    server.sql("create index on item (n)").await;
    // As a standby has it beside its data; a copy that minds it waits for more of the log without end.
    std::fs::write(server.data().join("standby.signal"), "").unwrap();
    let commit = server.backup(&archive.store).await;
    (server, archive, commit)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_good_backup_passes_every_check() {
    let (_server, archive, commit) = backed_up().await;
    let (installation, dir) = (installed(), place("bw-verify-"));
    let scratch = dir.path().join("scratch");
    let rows = vec![vec![Some("60000".to_owned())]];
    let query = Query { database: "postgres".to_owned(), sql: "select count(*) from item".to_owned(), expected: rows };
    let check = Check { queries: vec![query], ..check(&installation, &scratch) };
    let verification = verify(&commit, &archive.store, &check, &progress()).await.unwrap();
    assert!(verification.reached >= commit.stop);
    assert_eq!(verification.timeline, commit.timeline);
    assert_eq!((&verification.structure, &verification.pages), (&Looked::Good, &Looked::Good));
    assert_eq!(verification.queries, 1);
    let phases: Vec<_> = verification.phases.iter().map(|(phase, _)| *phase).collect();
    use Phase::{Log, Manifest, Pages, Queries, Recovery, Structure, Unpack};
    assert_eq!(phases, [Unpack, Log, Manifest, Recovery, Structure, Queries, Pages]);
    let record = verification.record(&commit, Timestamp::now(), "0.1.0");
    assert_eq!((record.id, record.queries, record.not_looked_at), (commit.id, 1, vec![]));
    assert_eq!(record.phases.iter().map(|took| took.phase.as_str()).collect::<Vec<_>>()[3], "recovery");
    assert!(!scratch.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_answers_something_else_fails_the_verification() {
    let (_server, archive, commit) = backed_up().await;
    let (installation, dir) = (installed(), place("bw-verify-"));
    let scratch = dir.path().join("scratch");
    let rows = vec![vec![Some("60001".to_owned())]];
    let query = Query { database: "postgres".to_owned(), sql: "select count(*) from item".to_owned(), expected: rows };
    let check = Check { queries: vec![query], ..check(&installation, &scratch) };
    let error = verify(&commit, &archive.store, &check, &progress()).await.unwrap_err();
    assert!(
        matches!(error, VerifyError::Query { ref found, .. } if found[0][0].as_deref() == Some("60000")),
        "{error}"
    );
    assert!(!scratch.exists());
}

/// The backup is refused, and the error begins with the object's name.
async fn refused(archive: &Archive, commit: &Commit, key: &str) -> String {
    let error = verified(&archive.store, commit).await.unwrap_err().to_string();
    assert!(error.contains(key), "{key}: {error}");
    error
}

#[tokio::test(flavor = "multi_thread")]
async fn one_changed_byte_in_any_object_is_found_and_the_object_named() {
    let (_server, archive, commit) = backed_up().await;
    let wal = WalFile::Segment(needed_segments(&commit)[0]).key();
    let packs =
        [&commit.packs[0], &commit.packs[commit.packs.len() - 1], &commit.manifest].map(|pack| pack.key.clone());
    for key in packs.iter().chain([&wal]) {
        let size = usize::try_from(archive.store.size(key).await.unwrap().unwrap()).unwrap();
        for at in [0, size / 2, size - 1] {
            archive.tamper(key, |body| body[at] ^= 0x10);
            refused(&archive, &commit, key).await;
            archive.tamper(key, |body| body[at] ^= 0x10);
        }
    }
    let key = commit.id.key(COMMIT);
    assert_eq!(seal::read(&archive.store, &commit.id).await.unwrap(), commit);
    archive.tamper(&key, |body| *body.iter_mut().rfind(|byte| byte.is_ascii_digit()).unwrap() ^= 1);
    let error = seal::read(&archive.store, &commit.id).await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("{key}: ")), "{error}");
    verified(&archive.store, &commit).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_is_short_or_gone_is_named() {
    let (_server, archive, commit) = backed_up().await;
    let wal = WalFile::Segment(needed_segments(&commit)[0]).key();
    let objects = [&commit.packs[1].key, &commit.manifest.key, &wal];
    for key in objects {
        let whole = archive.store.get(key).await.unwrap();
        archive.tamper(key, |body| body.truncate(body.len() / 2));
        refused(&archive, &commit, key).await;
        archive.tamper(key, Vec::clear);
        refused(&archive, &commit, key).await;
        archive.remove(key);
        let error = refused(&archive, &commit, key).await;
        assert!(error.ends_with("is not there"), "{error}");
        archive.store.put_new(key, whole).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_that_fails_leaves_nothing_that_looks_whole_and_is_not_repeated_over_it() {
    let (_server, archive, commit) = backed_up().await;
    let dir = place("bw-restore-");
    let target = dir.path().join("data");
    archive.tamper(&commit.packs[0].key, |body| body[0] ^= 1);
    let options = Options::default();
    let failed = unpack(&commit, &archive.store, &target, &options, &progress()).await;
    assert!(matches!(failed, Err(RestoreError::Damaged { .. })), "{failed:?}");
    assert!(target.join(MARKER).exists() && !target.join("global/pg_control").exists());
    let again = unpack(&commit, &archive.store, &target, &options, &progress()).await;
    assert!(matches!(again, Err(RestoreError::NotEmpty { half: true, .. })), "{again:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_there_already_is_not_touched() {
    let (_server, archive, commit) = backed_up().await;
    let dir = place("bw-restore-");
    std::fs::write(dir.path().join("precious"), "data").unwrap();
    let refused = unpack(&commit, &archive.store, dir.path(), &Options::default(), &progress()).await;
    assert!(matches!(refused, Err(RestoreError::NotEmpty { half: false, .. })), "{refused:?}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_goes_to_a_volume_of_its_own_when_there_is_one() {
    let (_server, archive, commit) = backed_up().await;
    let dir = place("bw-restore-");
    let wal = dir.path().join("wal");
    let options = Options { wal_dir: Some(wal.clone()), ..Options::default() };
    let target = dir.path().join("data");
    unpack(&commit, &archive.store, &target, &options, &progress()).await.unwrap();
    assert_eq!(std::fs::read_link(target.join("pg_wal")).unwrap(), wal);
    assert!(wal.join("archive_status").is_dir());
    assert!(!target.join(MARKER).exists() && target.join("backup_manifest").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn postgresql_does_not_start_on_a_copy_whose_configuration_is_aside_until_it_has_another() {
    let (server, archive, commit) = backed_up().await;
    let dir = place("bw-restore-");
    let options = Options { configuration: Configuration::Aside, ..Options::default() };
    let target = dir.path().join("data");
    unpack(&commit, &archive.store, &target, &options, &progress()).await.unwrap();
    let original = std::fs::read(server.data().join("postgresql.conf")).unwrap();
    assert_eq!(std::fs::read(target.join("postgresql.conf.original")).unwrap(), original);
    for name in ["postgresql.conf", "postgresql.auto.conf", "pg_hba.conf", "pg_ident.conf"] {
        assert!(!target.join(name).exists(), "{name}");
    }
    postgres::give_all_to_postgres(dir.path());
    let mut postgres = server.program("postgres");
    let refused = postgres.arg("-D").arg(&target).output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("could not access the server configuration file"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_a_standby_on_a_later_timeline_with_a_tablespace_passes_every_check() {
    let (mut primary, archive) = (Server::new().await, Archive::new());
    let mut standby = primary.standby().await;
    standby.configure(&format!("archive_mode = on\narchive_command = 'cp %p {}/%f'\n", standby.archive().display()));
    primary.stop();
    standby.stop();
    standby.start().await;
    standby.sql("select pg_promote()").await;
    eventually("it is promoted", || async { standby.value("select pg_is_in_recovery()").await == "f" }).await;
    let space = standby.dir().join("space");
    std::fs::create_dir(&space).unwrap();
    postgres::give_to_postgres(&space);
    standby.sql(&format!("create tablespace fast location '{}'", space.display())).await;
    standby.sql("create table far tablespace fast as select generate_series(1, 50000) as n").await;
    let commit = standby.backup(&archive.store).await;
    assert_eq!((commit.timeline.0, commit.tablespaces.len()), (2, 1));

    let (installation, dir) = (installed(), place("bw-verify-"));
    let scratch = dir.path().join("scratch");
    let queries = vec![
        query("select count(*) from far", "50000"),
        // It is apart from everything.
        query("show archive_mode", "off"),
        query("show primary_conninfo", ""),
        query("show listen_addresses", ""),
        query("show max_logical_replication_workers", "0"),
    ];
    let check = Check { queries, ..check(&installation, &scratch) };
    let verification = verify(&commit, &archive.store, &check, &progress()).await.unwrap();
    assert_eq!(verification.timeline, commit.timeline);
    let before: std::collections::BTreeSet<_> =
        std::fs::read_dir(standby.archive()).unwrap().map(|e| e.unwrap().path()).collect();
    assert!(before.iter().all(|path| !path.ends_with("00000003.history")), "nothing of the copy is archived");
}

fn query(sql: &str, expected: &str) -> Query {
    Query { database: "postgres".to_owned(), sql: sql.to_owned(), expected: vec![vec![Some(expected.to_owned())]] }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_broken_without_checksums_is_found_by_amcheck() {
    let (mut server, archive) = (Server::without_checksums().await, Archive::new());
    server.sql("create table item as select generate_series(1, 100000) as n").await;
    let file = server.file_of("item").await;
    server.stop();
    // A pointer to a row that ends where the page has ended already.
    let (offset, normal, length) = (8184u32, 1 << 15, 1000 << 17);
    write_at(&file, 3 * 8192 + 24, &(offset | normal | length).to_le_bytes());
    server.start().await;
    let commit = server.backup(&archive.store).await;
    let error = verified(&archive.store, &commit).await.unwrap_err();
    let VerifyError::Finding { program: "pg_amcheck", finding } = &error else { panic!("{error}") };
    assert!(finding.contains("item") && finding.contains("block 3"), "{finding}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_is_broken_where_only_its_checksum_says_so_is_found() {
    let (mut server, archive) = (Server::new().await, Archive::new());
    server.sql("create table item as select array[n] as tags from generate_series(1, 100000) as n").await;
    server.sql("create index item_tags on item using gin (tags)").await;
    let file = server.file_of("item_tags").await;
    server.stop();
    // While a backup is made, PostgreSQL passes over pages that say that they were written since it began.
    write_at(&file, 2 * 8192, &[0x7f, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    server.start().await;
    let commit = server.backup(&archive.store).await;
    let error = verified(&archive.store, &commit).await.unwrap_err();
    let VerifyError::Finding { program: "pg_checksums", finding } = &error else { panic!("{error}") };
    assert!(finding.contains(file.file_name().unwrap().to_str().unwrap()), "{finding}");
}

fn write_at(file: &Path, at: u64, bytes: &[u8]) {
    std::fs::OpenOptions::new().write(true).open(file).unwrap().write_all_at(bytes, at).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_does_not_go_far_enough_is_said() {
    let (server, archive, commit) = backed_up().await;
    server.sql("insert into item values (0, 'after the backup')").await;
    let further: Lsn = server.value("select pg_current_wal_lsn()").await.parse().unwrap();
    server.archive_into(&archive.store).await;
    let (installation, dir) = (installed(), place("bw-verify-"));
    let scratch = dir.path().join("scratch");
    let rows = vec![query("select count(*) from item", "60001")];
    let command = format!("cp {}/%f %p", server.archive().display());
    let reach = |lsn| Some((commit.timeline, lsn));
    let check = Check { restore_command: Some(command), queries: rows, ..check(&installation, &scratch) };
    let far = Check { reach: reach(further), ..check.clone() };
    assert!(verify(&commit, &archive.store, &far, &progress()).await.unwrap().reached >= further);

    let too_far = Check { reach: reach(Lsn(further.0 + (1 << 30))), ..check };
    let error = verify(&commit, &archive.store, &too_far, &progress()).await.unwrap_err();
    let VerifyError::NotRecovered { finding } = &error else { panic!("{error}") };
    assert!(finding.contains("recovery target"), "{finding}");
    assert!(!scratch.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn recovery_that_ends_before_the_backup_does_is_not_taken_for_a_success() {
    let (_server, archive, commit) = backed_up().await;
    let further = Commit { stop: Lsn(commit.stop.0 + 8), ..commit.clone() };
    let error = verified(&archive.store, &further).await.unwrap_err();
    let VerifyError::NotReached { reached, expected, .. } = error else { panic!("{error}") };
    assert_eq!((reached, expected), (commit.stop, further.stop));
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_not_those_of_the_manifest_are_found() {
    let (server, archive, commit) = backed_up().await;
    let next = || async { BackupId::at(Timestamp::now()) > commit.id };
    eventually("the next backup has another name", next).await;
    server.sql("update item set text = text || '!' where n < 100").await;
    server.sql("checkpoint").await;
    let later = server.backup(&archive.store).await;
    let mixed = Commit { manifest: later.manifest, ..commit };
    let error = verified(&archive.store, &mixed).await.unwrap_err();
    let VerifyError::Finding { program: "pg_verifybackup", finding } = &error else { panic!("{error}") };
    assert!(finding.contains("checksum mismatch"), "{finding}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verification_that_is_given_up_leaves_no_server_and_no_files() {
    let (_server, archive, commit) = backed_up().await;
    let (installation, dir) = (installed(), place("bw-verify-"));
    let scratch = dir.path().join("scratch");
    let check = Check { queries: vec![query("select pg_sleep(600)", "")], ..check(&installation, &scratch) };
    let (pidfile, socket_dir) = (scratch.join("data/postmaster.pid"), scratch.join("socket"));
    let sleeping = eventually("it runs", || async {
        let connect = Connection::open(&socket_dir, PORT, Purpose::Database("postgres"), PATIENCE);
        let Ok(mut session) = connect.await else { return false };
        let asked = session.query("look", "select 1 from pg_stat_activity where query = 'select pg_sleep(600)'").await;
        asked.is_ok_and(|rows| !rows.is_empty())
    });
    let progress = progress();
    let pid = tokio::select! {
        outcome = verify(&commit, &archive.store, &check, &progress) => panic!("{outcome:?}"),
        () = sleeping => std::fs::read_to_string(&pidfile).unwrap().lines().next().unwrap().to_owned(),
    };
    eventually("nothing is left", || async { !scratch.exists() && !Path::new("/proc").join(&pid).exists() }).await;
}
