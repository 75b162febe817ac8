//! Three agents in one process, each on a loopback address of its own, with real TLS.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};

use bellwether_core::contract::{REPLICATION_USER, key};
use bellwether_core::election::{Answer, Incarnation, RequestId};
use bellwether_core::instance::space::Space;
use bellwether_core::wal::Lsn;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::ServerName;
use tempfile::TempDir;
use tokio::time::{Instant, timeout};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::*;
use crate::election::wire;

const PATIENCE: Duration = Duration::from_secs(30);
const NAMESPACE: &str = "shop";
const PORT: u16 = bellwether_core::contract::PEER_PORT;

/// An authority, and the certificates that it has issued.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    dir: TempDir,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self { issuer, dir: tempfile::tempdir().unwrap() }
    }

    fn issue(&self, dir: &Path, common_name: &str, hosts: &[String]) {
        let mut params = CertificateParams::new(hosts.to_vec()).unwrap();
        params.distinguished_name.push(DnType::CommonName, common_name);
        let own = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&own, &self.issuer).unwrap().pem();
        std::fs::create_dir_all(dir).unwrap();
        for (name, text) in
            [(key::CA_CRT, self.issuer.pem()), (key::TLS_CRT, certificate), (key::TLS_KEY, own.serialize_pem())]
        {
            std::fs::write(dir.join(name), text).unwrap();
        }
    }

    /// As an agent has it; the client's certificate has this common name.
    fn tls(&self, client: &str) -> Arc<PeerTls> {
        let (server, replication) = (self.dir.path().join("server"), self.dir.path().join(client));
        self.issue(&server, "postgresql", &[format!("*.orders-pods.{NAMESPACE}.svc")]);
        self.issue(&replication, client, &[]);
        Arc::new(PeerTls::read(&server, &replication).unwrap())
    }
}

/// Addresses that nobody else has.
fn network() -> impl Fn(u8) -> IpAddr {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    let pid = std::process::id();
    let third = (pid / 100) as u8 ^ NEXT.fetch_add(1, Ordering::Relaxed);
    move |host| Ipv4Addr::new(127, 20 + (pid % 100) as u8, third, host).into()
}

fn instance(n: u8) -> String {
    format!("orders-{n}")
}

struct Cluster {
    addresses: BTreeMap<String, IpAddr>,
    tls: watch::Sender<Arc<PeerTls>>,
    authority: Authority,
}

impl Cluster {
    fn new() -> Self {
        let (authority, address) = (Authority::new(), network());
        let tls = watch::Sender::new(authority.tls(REPLICATION_USER));
        Self { addresses: (1..=3).map(|n| (instance(n), address(n))).collect(), tls, authority }
    }

    fn me(&self, n: u8, identity: u128) -> Me {
        Me {
            names: Names::of("orders"),
            namespace: NAMESPACE.into(),
            instance: instance(n),
            identity: MemberId(identity),
            address: self.addresses[&instance(n)],
            port: PORT,
        }
    }

    async fn start(&self, n: u8) -> (Peers, mpsc::Receiver<Incoming>) {
        self.start_as(self.me(n, n.into())).await
    }

    async fn start_as(&self, me: Me) -> (Peers, mpsc::Receiver<Incoming>) {
        let (peers, incoming) = Peers::start(me, self.tls.subscribe()).await.unwrap();
        peers.set_addresses(self.addresses.clone());
        peers.set_instances(&self.addresses.keys().cloned().collect::<Vec<_>>());
        (peers, incoming)
    }

    fn address(&self, n: u8) -> IpAddr {
        self.addresses[&instance(n)]
    }

    /// Connects to `n` as somebody else would, and greets; what it answers.
    async fn call(&self, n: u8, tls: Arc<rustls::ClientConfig>, hello: &Hello) -> std::io::Result<Hello> {
        let stream = TcpStream::connect((self.address(n), PORT)).await?;
        let name = ServerName::try_from(format!("{}.orders-pods.{NAMESPACE}.svc", instance(n))).unwrap();
        let mut stream = TlsConnector::from(tls).connect(name, stream).await?;
        wire::write(&mut stream, &frame(hello)?).await?;
        let them = wire::read(&mut stream).await?;
        // It must also go on listening.
        let mut byte = [0];
        match timeout(Duration::from_millis(300), tokio::io::AsyncReadExt::read(&mut stream, &mut byte)).await {
            Err(_) => Ok(them),
            Ok(closed) => Err(std::io::Error::other(format!("closed after its greeting: {closed:?}"))),
        }
    }
}

fn hello(n: u8) -> Hello {
    Hello {
        protocol: PROTOCOL,
        cluster: "orders".into(),
        namespace: NAMESPACE.into(),
        instance: instance(n),
        identity: Uid(n.into()),
    }
}

fn knows(peers: &Peers, identities: &[u128]) -> bool {
    let who: Vec<u128> = peers.who().iter().map(|(identity, ..)| identity.0).collect();
    who == identities
}

async fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn next(incoming: &mut mpsc::Receiver<Incoming>) -> Incoming {
    timeout(PATIENCE, incoming.recv()).await.expect("a message in time").expect("a message")
}

fn numbered(n: u64) -> Message {
    Message::Answer(Answer {
        request: RequestId(n),
        incarnation: Incarnation(1),
        term: None,
        members: Default::default(),
        position: None,
        space: Space::Ample,
    })
}

fn about(n: u64) -> About {
    About { slots: [("orders_1".to_owned(), Lsn(n))].into(), ..About::default() }
}

#[tokio::test]
async fn everybody_hears_everybody_in_order() {
    let cluster = Cluster::new();
    let mut agents = [cluster.start(1).await, cluster.start(2).await, cluster.start(3).await];
    for (agent, others) in agents.iter().zip([[2, 3], [1, 3], [1, 2]]) {
        eventually("all are connected", || knows(&agent.0, &others)).await;
    }
    for round in 0..20 {
        for (n, (peers, _)) in agents.iter().enumerate() {
            for to in 0..3 {
                let about = about(n as u64);
                peers.send(MemberId(to as u128 + 1), &numbered(round), about);
            }
        }
        for (n, (_, incoming)) in agents.iter_mut().enumerate() {
            let mut heard = [next(incoming).await, next(incoming).await];
            heard.sort_by_key(|incoming| incoming.from);
            let others = (0..3u8).filter(|other| *other as usize != n);
            for (heard, other) in heard.into_iter().zip(others) {
                let expected = Incoming {
                    from: MemberId(u128::from(other) + 1),
                    instance: instance(other + 1),
                    address: cluster.address(other + 1),
                    message: Some(numbered(round)),
                    about: about(other.into()),
                };
                assert_eq!(heard, expected);
            }
        }
    }
    assert_eq!(agents[0].0.who()[1], (MemberId(3), instance(3), cluster.address(3)));
}

#[tokio::test]
async fn a_burst_arrives_in_order() {
    let cluster = Cluster::new();
    let (one, _incoming) = cluster.start(1).await;
    let (_two, mut incoming) = cluster.start(2).await;
    eventually("they are connected", || knows(&one, &[2])).await;
    for n in 0..8 {
        one.send(MemberId(2), &numbered(n), About::default());
    }
    for n in 0..8 {
        assert_eq!(next(&mut incoming).await.message, Some(numbered(n)));
    }
}

#[tokio::test]
async fn only_the_certificate_for_replication_opens() {
    let cluster = Cluster::new();
    let (one, mut incoming) = cluster.start(1).await;
    let ours = cluster.tls.borrow().clone();
    assert_eq!(cluster.call(1, Arc::clone(&ours.client), &hello(2)).await.unwrap(), hello(1));

    let another_name = cluster.authority.tls("app").client.clone();
    cluster.call(1, another_name, &hello(2)).await.unwrap_err();

    // Another CA's certificate, shown by somebody who would believe our server.
    let roots = |authority: &Authority| {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(authority.issuer.der().clone()).unwrap();
        roots
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = || {
        let builder = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider));
        builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots(&cluster.authority))
    };
    let stranger = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.distinguished_name.push(DnType::CommonName, REPLICATION_USER);
    let certificate = params.signed_by(&stranger, &Authority::new().issuer).unwrap();
    let private = rustls::pki_types::PrivateKeyDer::try_from(stranger.serialize_der()).unwrap();
    let of_another_ca = builder().with_client_auth_cert(vec![certificate.der().clone()], private).unwrap();
    cluster.call(1, Arc::new(of_another_ca), &hello(2)).await.unwrap_err();

    let without = builder().with_no_client_auth();
    cluster.call(1, Arc::new(without), &hello(2)).await.unwrap_err();

    let bills = Hello { cluster: "bills".into(), ..hello(2) };
    cluster.call(1, Arc::clone(&ours.client), &bills).await.unwrap_err();
    let later = Hello { protocol: 2, ..hello(2) };
    cluster.call(1, Arc::clone(&ours.client), &later).await.unwrap_err();
    assert!(incoming.try_recv().is_err());
    drop(one);
}

#[tokio::test]
async fn a_server_of_another_authority_is_not_talked_to() {
    let cluster = Cluster::new();
    let (one, _incoming) = cluster.start(1).await;
    let foreign = watch::Sender::new(Authority::new().tls(REPLICATION_USER));
    let (two, mut heard) = Peers::start(cluster.me(2, 2), foreign.subscribe()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    one.send(MemberId(2), &Message::Knock, About::default());
    assert!(one.who().is_empty());
    assert!(heard.try_recv().is_err());
    drop(two);
}

#[tokio::test]
async fn one_that_comes_back_is_reached_again_soon() {
    let cluster = Cluster::new();
    let (one, _incoming) = cluster.start(1).await;
    let two = cluster.start(2).await;
    eventually("they are connected", || knows(&one, &[2])).await;
    drop(two);
    eventually("it is gone", || knows(&one, &[])).await;
    // Long enough for the waits between attempts to have grown.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (_two, mut incoming) = cluster.start(2).await;
    let back = Instant::now();
    while incoming.try_recv().is_err() {
        one.send(MemberId(2), &Message::Knock, About::default());
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(back.elapsed() < Duration::from_secs(2), "not reached within 2 s");
    }
}

#[tokio::test]
async fn one_that_comes_back_with_another_volume_gets_nothing_that_was_for_the_first() {
    let cluster = Cluster::new();
    let (one, _incoming) = cluster.start(1).await;
    let two = cluster.start(2).await;
    eventually("they are connected", || knows(&one, &[2])).await;
    drop(two);
    eventually("it is gone", || knows(&one, &[])).await;
    one.send(MemberId(2), &numbered(2), About::default());
    let (_two, mut incoming) = cluster.start_as(cluster.me(2, 22)).await;
    eventually("it is there as another", || knows(&one, &[22])).await;
    one.send(MemberId(2), &numbered(3), About::default());
    one.send(MemberId(22), &numbered(4), About::default());
    assert_eq!(next(&mut incoming).await.message, Some(numbered(4)));
}

#[tokio::test]
async fn an_identity_claimed_twice_goes_to_the_newer_connection() {
    let cluster = Cluster::new();
    let (one, mut incoming) = cluster.start(1).await;
    let (two, _) = cluster.start_as(cluster.me(2, 7)).await;
    eventually("the first is there", || knows(&one, &[7])).await;
    let (three, _heard) = cluster.start_as(cluster.me(3, 7)).await;
    eventually("the second is there", || one.who().iter().any(|(_, instance, _)| instance == "orders-3")).await;
    assert_eq!(one.who().len(), 1, "one place for one identity");
    drop(two);
    eventually("it is reached", || knows(&three, &[1])).await;
    three.send(MemberId(1), &Message::Knock, About::default());
    assert_eq!(next(&mut incoming).await.instance, "orders-3");
}

#[tokio::test]
async fn nothing_blocks_when_the_other_end_does_not_read() {
    let cluster = Cluster::new();
    let listener = TcpListener::bind((cluster.address(2), PORT)).await.unwrap();
    let acceptor = TlsAcceptor::from(Arc::clone(&cluster.tls.borrow().server));
    let accepted = Arc::new(AtomicU8::new(0));
    let count = Arc::clone(&accepted);
    let deaf = tokio::spawn(async move {
        let mut kept = vec![];
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let _: Hello = wire::read(&mut stream).await.unwrap();
            wire::write(&mut stream, &frame(&hello(2)).unwrap()).await.unwrap();
            count.fetch_add(1, Ordering::Relaxed);
            kept.push(stream);
        }
    });
    let (one, _incoming) = cluster.start(1).await;
    eventually("it is connected", || knows(&one, &[2])).await;
    let large = Message::Answer(Answer {
        request: RequestId(1),
        incarnation: Incarnation(1),
        term: None,
        members: (0..300).map(MemberId).collect(),
        position: None,
        space: Space::Ample,
    });
    let began = Instant::now();
    while accepted.load(Ordering::Relaxed) < 2 {
        let sending = Instant::now();
        one.send(MemberId(2), &large, About::default());
        assert!(sending.elapsed() < Duration::from_millis(500), "a send takes {:?}", sending.elapsed());
        tokio::task::yield_now().await;
        assert!(began.elapsed() < PATIENCE, "a connection that can't be written to is kept");
    }
    deaf.abort();
}

#[tokio::test]
async fn certificates_are_taken_up_when_they_are_staged_anew() {
    let cluster = Cluster::new();
    let (one, _incoming) = cluster.start(1).await;
    let newer = Authority::new();
    let (two, mut incoming) = {
        let tls = watch::Sender::new(newer.tls(REPLICATION_USER));
        Peers::start(cluster.me(2, 2), tls.subscribe()).await.unwrap()
    };
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(one.who().is_empty());
    cluster.tls.send_replace(newer.tls(REPLICATION_USER));
    eventually("the new certificates are used", || knows(&one, &[2])).await;
    one.send(MemberId(2), &Message::Knock, About::default());
    assert_eq!(next(&mut incoming).await.message, Some(Message::Knock));
    drop(two);
}

#[tokio::test]
async fn who_is_no_longer_of_the_cluster_is_no_longer_connected_to() {
    let cluster = Cluster::new();
    let (one, _incoming) = cluster.start(1).await;
    let _two = cluster.start(2).await;
    eventually("they are connected", || knows(&one, &[2])).await;
    one.set_instances(&[instance(1), instance(3)]);
    assert!(one.who().is_empty());
}
