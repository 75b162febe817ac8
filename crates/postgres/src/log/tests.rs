//! What becomes of a server's stderr.

use proptest::prelude::*;

use super::*;

/// A line as PostgreSQL writes it with our prefix.
fn line(pid: i32, user: &str, database: &str, body: &str) -> String {
    let body = body.replace('\n', "\n\t");
    format!(
        "bw1|2026-11-15 23:38:37.123 UTC|{pid}|42P01|client backend|10.0.0.7(5000)|{user:63}|{database:63}|{:63}|{body}\n",
        "psql"
    )
}

fn parse(bytes: &[u8], chunk: usize) -> Vec<Record> {
    let mut parser = LineParser::default();
    let mut records = vec![];
    for part in bytes.chunks(chunk.max(1)) {
        records.extend(parser.push(part));
    }
    records.extend(parser.finish());
    records
}

#[test]
fn an_error_is_one_record_with_all_its_details() {
    let text = [
        line(7, "app", "shop", "ERROR:  relation \"x\" does not exist"),
        line(7, "app", "shop", "DETAIL:  first\nsecond"),
        line(7, "app", "shop", "HINT:  look elsewhere"),
        line(7, "app", "shop", "STATEMENT:  select\n\tfrom x"),
        line(8, "app", "shop", "LOG:  another"),
    ];
    let records = parse(text.concat().as_bytes(), 10);
    assert_eq!(records.len(), 2);
    assert_eq!(
        records[0],
        Record {
            timestamp: Some("2026-11-15T23:38:37.123Z".into()),
            level: Level::Error,
            pid: Some(7),
            backend: Some("client backend".into()),
            remote: Some("10.0.0.7(5000)".into()),
            user: Some("app".into()),
            database: Some("shop".into()),
            application_name: Some("psql".into()),
            sqlstate: Some("42P01".into()),
            message: "relation \"x\" does not exist".into(),
            detail: Some("first\nsecond".into()),
            hint: Some("look elsewhere".into()),
            statement: Some("select\n\tfrom x".into()),
            ..Record::default()
        }
    );
    assert_eq!(records[1].message, "another");
}

#[test]
fn a_user_name_can_not_forge_a_record() {
    let sly = "x\nbw1|2026-01-01 00:00:00.000 UTC|1|00000|a|b|";
    let records = parse(line(7, sly, "y|\nPANIC:  z", "FATAL:  no such role").as_bytes(), 1);
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].user.as_deref(), Some(sly));
    assert_eq!((records[0].level, records[0].message.as_str()), (Level::Fatal, "no such role"));
}

#[test]
fn a_statement_can_not_forge_a_record() {
    let sly = format!("ERROR:  x\n{}", line(1, "a", "b", "PANIC:  forged"));
    let records = parse(line(7, "app", "shop", sly.trim_end()).as_bytes(), 5);
    assert_eq!(records.len(), 1);
    assert!(records[0].message.contains("forged"));
}

#[test]
fn what_others_write_is_kept() {
    let text = format!("cp: no space left{}sh: oops\n\n", line(7, "app", "shop", "LOG:  archived"));
    let messages: Vec<_> = parse(text.as_bytes(), 3).into_iter().map(|record| record.message).collect();
    assert_eq!(messages, ["cp: no space left", "archived", "sh: oops"]);
}

#[test]
fn what_postgresql_says_before_it_has_read_our_prefix_has_its_level() {
    let records = parse(b"2026-11-15 23:38:37.123 UTC [42] FATAL:  data directory \"/x\" has wrong ownership\n", 64);
    assert_eq!((records[0].level, records[0].pid), (Level::Fatal, Some(42)));
    assert_eq!(records[0].message, "data directory \"/x\" has wrong ownership");
}

#[test]
fn a_huge_statement_comes_in_parts_and_nothing_is_lost() {
    let body = "SELECT 1 -- bw1|\n".repeat(100_000);
    let text = line(7, "app", "shop", &format!("LOG:  {body}end")) + &line(8, "app", "shop", "LOG:  next");
    let records = parse(text.as_bytes(), 16 * 1024);
    let (last, parts) = records.split_last().unwrap();
    assert!(parts.len() > 2 && parts.iter().skip(1).all(|part| part.continued && part.pid == Some(7)));
    let together: String = parts.iter().map(|part| part.message.as_str()).collect();
    assert_eq!(together.matches("SELECT 1").count() + together.matches("bw1|").count(), 200_000);
    assert_eq!((last.pid, last.message.as_str()), (Some(8), "next"));
}

#[test]
fn a_record_waits_for_its_details_but_not_for_ever() {
    let mut parser = LineParser::default();
    let text = line(7, "app", "shop", "LOG:  alone");
    assert_eq!(parser.push(text.as_bytes()), []);
    assert!(parser.is_pending());
    assert_eq!(parser.flush().len(), 1);
    assert!(!parser.is_pending());
    parser.push(b"half a li");
    assert_eq!(parser.flush(), []);
    assert_eq!(parser.push(b"ne\n")[0].message, "half a line");
}

#[tokio::test]
async fn a_quiet_server_is_heard_before_it_says_more() {
    use tokio::io::AsyncWriteExt as _;
    let (reader, mut writer) = tokio::io::duplex(4096);
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let pump = tokio::spawn(pump(reader, move |record| sender.send(record).unwrap()));
    writer.write_all(line(7, "app", "shop", "LOG:  ready").as_bytes()).await.unwrap();
    assert_eq!(receiver.recv().await.unwrap().message, "ready");
    drop(writer);
    pump.await.unwrap().unwrap();
}

/// Messages that look like records, labels, tabs and markers.
fn nasty() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ -~äß☃\\t]{0,30}",
        Just("bw1|".to_owned()),
        Just("\nbw1|2026-11-15 23:38:37.123 UTC|1|00000|x||".to_owned()),
        Just("\n\t".to_owned()),
        Just("DETAIL:  ".to_owned()),
        Just("\nERROR:  no".to_owned()),
    ]
}

proptest! {
    #[test]
    fn what_was_logged_is_what_is_read(
        messages in prop::collection::vec(prop::collection::vec(nasty(), 1..5), 1..6),
        user in "[a-z\n|\t]{0,20}x",
        chunk in 1usize..200,
    ) {
        let messages: Vec<String> = messages.iter().map(|parts| format!("a{}z", parts.concat())).collect();
        let text: String = messages.iter().map(|message| line(7, &user, "shop", &format!("LOG:  {message}"))).collect();
        let records = parse(text.as_bytes(), chunk);
        let read: Vec<String> = records.iter().map(|record| record.message.clone()).collect();
        prop_assert_eq!(read, messages);
        prop_assert!(records.iter().all(|record| record.user.as_deref() == Some(user.as_str())));
    }

    #[test]
    fn garbage_never_panics_and_chunks_don_t_matter(bytes in prop::collection::vec(any::<u8>(), 0..2000), chunk in 1usize..64) {
        prop_assert_eq!(parse(&bytes, chunk), parse(&bytes, usize::MAX));
    }
}
