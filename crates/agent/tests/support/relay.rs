//! The way to the API, which a test can cut: connections that are there end, and new ones are let in by nobody.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub struct Relay {
    pub address: SocketAddr,
    open: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Relay {
    /// A way to this address.
    pub async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("its address");
        let (open, is_open) = watch::channel(true);
        let task = tokio::spawn(async move {
            loop {
                let Ok((near, _)) = listener.accept().await else { return };
                if *is_open.borrow() {
                    tokio::spawn(pass(near, target, is_open.clone()));
                }
            }
        });
        Self { address, open, task }
    }

    pub fn cut(&self) {
        self.open.send_replace(false);
    }

    pub fn mend(&self) {
        self.open.send_replace(true);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(mut near: TcpStream, target: SocketAddr, mut is_open: watch::Receiver<bool>) {
    let Ok(mut far) = TcpStream::connect(target).await else { return };
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
        _ = is_open.wait_for(|open| !open) => {}
    }
}
