use std::convert::Infallible;

use hyper::Response;
use hyper::body::Incoming;
use hyper::service::service_fn;
use kube::{Client, Config};
use tokio::net::TcpListener;

use super::*;

/// What a kubelet does with a connection.
#[derive(Clone, Copy)]
enum Pod {
    /// Sends back what it hears, in capitals.
    Echoes,
    /// Nobody listens on the port.
    Refuses,
}

/// An API server that forwards one port, or refuses to.
async fn api(answer: Result<Pod, u16>) -> Client {
    bellwether_runtime::client::install_crypto();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = service_fn(move |request| async move { Ok::<_, Infallible>(answered(request, answer)) });
            let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::spawn(connection.with_upgrades());
        }
    });
    bellwether_runtime::client::from_config(Config::new(uri)).unwrap()
}

fn answered(request: Request<Incoming>, answer: Result<Pod, u16>) -> Response<String> {
    assert_eq!(request.uri(), "/api/v1/namespaces/shop/pods/orders-1/portforward?ports=8008");
    let pod = match answer {
        Ok(pod) => pod,
        Err(code) => {
            let status =
                serde_json::json!({"kind": "Status", "message": "pods \"orders-1\" is forbidden", "code": code});
            return Response::builder().status(code).body(status.to_string()).unwrap();
        }
    };
    let key = request.headers()[SEC_WEBSOCKET_KEY].to_str().unwrap().to_owned();
    let hash = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{GUID}").as_bytes());
    tokio::spawn(async move {
        let stream = hyper::upgrade::on(request).await.unwrap();
        kubelet(TokioIo::new(stream), pod).await;
    });
    Response::builder()
        .status(101)
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header(SEC_WEBSOCKET_ACCEPT, BASE64.encode(hash))
        .header(SEC_WEBSOCKET_PROTOCOL, PROTOCOL)
        .body(String::new())
        .unwrap()
}

/// Short messages only, as a server sends them: without a mask.
async fn say(stream: &mut (impl AsyncWrite + Unpin), channel: u8, bytes: &[u8]) {
    let length = u8::try_from(bytes.len() + 1).unwrap();
    stream.write_all(&[&[0x82, length, channel], bytes].concat()).await.unwrap();
}

async fn kubelet(mut stream: impl AsyncRead + AsyncWrite + Unpin, pod: Pod) {
    let port = 8008u16.to_le_bytes();
    say(&mut stream, DATA, &port).await;
    say(&mut stream, ERROR, &port).await;
    if let Pod::Refuses = pod {
        say(&mut stream, ERROR, b"connection refused").await;
        return;
    }
    let mut header = [0; 6];
    // Until somebody closes it.
    while stream.read_exact(&mut header).await.is_ok() && header[0] == 0x82 {
        let mut heard = vec![0; usize::from(header[1] & 0x7f)];
        stream.read_exact(&mut heard).await.unwrap();
        let said: Vec<u8> = heard.iter().zip(header[2..].iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
        assert_eq!(said[0], DATA);
        say(&mut stream, DATA, &said[1..].to_ascii_uppercase()).await;
    }
}

#[tokio::test]
async fn bytes_go_there_and_come_back_without_what_the_protocol_adds() {
    let client = api(Ok(Pod::Echoes)).await;
    let mut stream = open(&client, "shop", "orders-1", 8008).await.unwrap();
    for (said, heard) in [(b"hello", b"HELLO"), (b"again", b"AGAIN")] {
        stream.write_all(said).await.unwrap();
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, heard);
    }
}

#[tokio::test]
async fn a_port_on_which_nobody_listens_ends_the_connection() {
    let client = api(Ok(Pod::Refuses)).await;
    let mut stream = open(&client, "shop", "orders-1", 8008).await.unwrap();
    let mut heard = vec![];
    stream.read_to_end(&mut heard).await.unwrap();
    assert!(heard.is_empty(), "{heard:?}");
}

#[tokio::test]
async fn who_may_not_is_told_so_in_the_api_servers_words() {
    let client = api(Err(403)).await;
    let error = open(&client, "shop", "orders-1", 8008).await.unwrap_err();
    assert!(matches!(error, ForwardError::Refused { code: 403, .. }), "{error:?}");
    assert!(error.to_string().contains("is forbidden"), "{error}");
}

#[test]
fn an_answer_to_another_question_is_none() {
    let mut headers = HeaderMap::new();
    headers.insert(UPGRADE, "websocket".parse().unwrap());
    // The example of RFC 6455.
    headers.insert(SEC_WEBSOCKET_ACCEPT, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=".parse().unwrap());
    assert!(understood(&headers, "dGhlIHNhbXBsZSBub25jZQ==").unwrap_err().contains(PROTOCOL));
    headers.insert(SEC_WEBSOCKET_PROTOCOL, PROTOCOL.parse().unwrap());
    assert_eq!(understood(&headers, "dGhlIHNhbXBsZSBub25jZQ=="), Ok(()));
    assert!(understood(&headers, "b3RoZXI=").is_err());
}
