//! Somebody between probe and server: one who sends each connection to another server, and one who says "committed" himself.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const PORT: u16 = 5432;

/// Sends connections to the servers in turn.
pub async fn alternating(servers: Vec<IpAddr>) -> SocketAddr {
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        for index in 0.. {
            let Ok((mut client, _)) = listener.accept().await else { return };
            let server = servers[index % servers.len()];
            tokio::spawn(async move {
                let Ok(mut server) = TcpStream::connect((server, PORT)).await else { return };
                let _over = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    address
}

/// How often it lies.
#[derive(Clone, Copy)]
pub enum Lying {
    Once,
    Always,
}

/// Answers COMMIT itself, and lets the server forget the row by ending its session.
pub async fn answering_commit_itself(server: IpAddr, lying: Lying) -> SocketAddr {
    let (listener, address) = listen().await;
    let told = Arc::new(AtomicUsize::new(0));
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let told = Arc::clone(&told);
            tokio::spawn(async move {
                let Ok(server) = TcpStream::connect((server, PORT)).await else { return };
                let _broken = between(client, server, lying, &told).await;
            });
        }
    });
    address
}

async fn between(
    mut client: TcpStream,
    mut server: TcpStream,
    lying: Lying,
    told: &AtomicUsize,
) -> std::io::Result<()> {
    let (mut from_client, mut from_server) = (vec![0; 8192], vec![0; 8192]);
    loop {
        tokio::select! {
            read = client.read(&mut from_client) => {
                let sent = &from_client[..read?];
                if sent.is_empty() {
                    return Ok(());
                }
                let lies = matches!(lying, Lying::Always) || told.load(Ordering::Relaxed) == 0;
                if lies && sent == b"Q\0\0\0\x0bcommit\0" {
                    told.fetch_add(1, Ordering::Relaxed);
                    client.write_all(b"C\0\0\0\x0bCOMMIT\0Z\0\0\0\x05I").await?;
                    return client.shutdown().await;
                }
                server.write_all(sent).await?;
            }
            read = server.read(&mut from_server) => {
                let said = &from_server[..read?];
                if said.is_empty() {
                    return Ok(());
                }
                client.write_all(said).await?;
            }
        }
    }
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((IpAddr::from([127, 0, 0, 1]), 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}
