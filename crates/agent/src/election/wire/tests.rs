use bellwether_core::election::LeaseUid;
use proptest::prelude::*;
use rstest::rstest;

use super::*;

fn term() -> impl Strategy<Value = Term> {
    any::<u64>().prop_map(Term)
}

fn position() -> impl Strategy<Value = Position> {
    let parts = (term(), any::<u32>(), any::<u64>());
    parts.prop_map(|(term, timeline, lsn)| Position { term, timeline: Timeline(timeline), lsn: Lsn(lsn) })
}

fn message() -> impl Strategy<Value = Message> {
    let numbers = || (any::<u64>().prop_map(RequestId), any::<u64>().prop_map(Incarnation));
    prop_oneof![
        (numbers(), term(), any::<u64>()).prop_map(|((request, incarnation), term, promise)| {
            Message::Ask(Ask { request, term, incarnation, promise: Span(promise) })
        }),
        (numbers(), term(), any::<bool>()).prop_map(|((request, incarnation), term, streaming)| {
            Message::Grant(Grant { request, term, incarnation, streaming })
        }),
        proptest::option::of(term()).prop_map(Message::Refuse),
        (numbers(), any::<bool>(), proptest::option::of(term())).prop_map(|((request, incarnation), yields, term)| {
            let question = if yields { Question::Yield } else { Question::Position };
            Message::Poll(Poll { request, incarnation, question, term })
        }),
        (
            numbers(),
            proptest::option::of(term()),
            prop::collection::vec(any::<u128>(), 0..20),
            proptest::option::of(position()),
            space()
        )
            .prop_map(|((request, incarnation), term, members, position, space)| {
                let members = members.into_iter().map(MemberId).collect();
                Message::Answer(Answer { request, incarnation, term, members, position, space })
            }),
        (any::<u128>(), any::<u64>(), term(), position()).prop_map(|(uid, version, term, at_least)| {
            Message::Consent(Consent { uid: LeaseUid(uid), version: LeaseVersion(version), term, at_least })
        }),
        Just(Message::Knock),
    ]
}

fn space() -> impl Strategy<Value = Space> {
    prop_oneof![Just(Space::Full), Just(Space::Low), Just(Space::Ample)]
}

fn about() -> impl Strategy<Value = About> {
    let entry = (term(), any::<u32>()).prop_map(|(term, above)| WrittenBy { term, above: Timeline(above) });
    let fork = (any::<u32>(), any::<u64>()).prop_map(|(timeline, end)| (Timeline(timeline), Lsn(end)));
    let addresses = prop::collection::btree_map("[a-z]{1,8}", any::<IpAddr>(), 0..4);
    let slots = prop::collection::btree_map("bw_[a-z]{1,8}", any::<u64>().prop_map(Lsn), 0..4);
    (
        proptest::option::of(any::<u32>()),
        proptest::option::of(term()),
        proptest::option::of(any::<u64>().prop_map(Lsn)),
        prop::collection::vec(entry, 0..5),
        prop::collection::vec(fork, 0..5),
        slots,
        addresses,
        proptest::option::of(space()),
    )
        .prop_map(|(timeline, term, promoting, log, forks, slots, addresses, space)| About {
            written: promoting.map(|end: Lsn| Lsn(end.0 / 2)),
            told: Told { timeline: timeline.map(Timeline), term, promoting, forks, log },
            slots,
            addresses,
            space,
        })
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

proptest! {
    #[test]
    fn a_message_arrives_as_it_was_sent(message in prop::option::of(message()), about in about()) {
        let bytes = frame(&Letter::new(message.as_ref(), about.clone())).unwrap();
        let letter: Letter = block_on(read(&mut bytes.as_slice())).unwrap();
        prop_assert_eq!(letter.open(), (message, about));
    }

    #[test]
    fn garbage_is_an_error_and_never_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        prop_assert!(block_on(read::<Letter>(&mut bytes.as_slice())).is_err());
    }
}

fn on(timeline: u32) -> About {
    About { told: Told { timeline: Some(Timeline(timeline)), ..Told::default() }, ..About::default() }
}

#[test]
fn a_message_looks_like_this() {
    let ask = Ask { request: RequestId(7), term: Term(3), incarnation: Incarnation(9), promise: Span(4000) };
    let bytes = frame(&Letter::new(Some(&Message::Ask(ask)), on(2))).unwrap();
    let expected = r#"{"m":{"ask":{"request":7,"term":3,"incarnation":9,"promise":4000}},"timeline":2}"#;
    assert_eq!(std::str::from_utf8(&bytes[4..]).unwrap(), expected);
    assert_eq!(bytes[..4], [0, 0, 0, expected.len() as u8]);
}

#[test]
fn what_a_newer_agent_adds_is_passed_over() {
    let json = r#"{"m":"knock","timeline":null,"news":1}"#;
    let letter: Letter = serde_json::from_str(json).unwrap();
    assert_eq!(letter.open(), (Some(Message::Knock), About::default()));
}

#[test]
fn no_frame_is_longer_than_agreed() {
    let mut announced = ((LONGEST + 1) as u32).to_be_bytes().to_vec();
    announced.extend(vec![b' '; LONGEST + 1]);
    assert!(block_on(read::<Letter>(&mut announced.as_slice())).is_err());
    assert!(frame(&"x".repeat(LONGEST)).is_err());
}

#[rstest]
#[case::another_protocol(Hello { protocol: 2, ..hello("o-2", 2) }, "protocol 2")]
#[case::another_cluster(Hello { cluster: "bills".into(), ..hello("o-2", 2) }, "shop/bills")]
#[case::another_namespace(Hello { namespace: "test".into(), ..hello("o-2", 2) }, "test/orders")]
#[case::our_own_identity(hello("o-2", 1), "our own identity")]
fn a_greeting_of_somebody_else_is_refused(#[case] theirs: Hello, #[case] why: &str) {
    let objection = theirs.objection(&hello("o-1", 1)).unwrap();
    assert!(objection.contains(why), "{objection}");
}

#[test]
fn a_greeting_of_ours_is_accepted() {
    assert_eq!(hello("o-2", 2).objection(&hello("o-1", 1)), None);
}

fn hello(instance: &str, identity: u128) -> Hello {
    Hello {
        protocol: PROTOCOL,
        cluster: "orders".into(),
        namespace: "shop".into(),
        instance: instance.into(),
        identity: Uid(identity),
    }
}
