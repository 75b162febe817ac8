//! The addresses of Services.

use std::net::Ipv4Addr;

/// Gives Services their cluster IP: called when a Service that wants one is created without one.
pub trait ClusterIps: Send {
    /// An address that is not `taken`, or none when the range is exhausted.
    fn allocate(&mut self, taken: &dyn Fn(&str) -> bool) -> Option<String>;
}

/// The addresses of a network, one after another; one that was given is not given again before all others were.
pub struct FirstFree {
    network: u32,
    hosts: u32,
    last: u32,
}

impl FirstFree {
    /// The addresses of `network/prefix`, but for its first and its last.
    pub fn new(network: Ipv4Addr, prefix: u8) -> Self {
        let bits = 32 - u32::from(prefix.clamp(1, 30));
        FirstFree { network: u32::from(network) >> bits << bits, hosts: (1 << bits) - 2, last: 0 }
    }
}

impl ClusterIps for FirstFree {
    fn allocate(&mut self, taken: &dyn Fn(&str) -> bool) -> Option<String> {
        for _ in 0..self.hosts {
            self.last = self.last % self.hosts + 1;
            let address = Ipv4Addr::from(self.network + self.last).to_string();
            if !taken(&address) {
                return Some(address);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_given_once_until_the_network_is_full() {
        let mut addresses = FirstFree::new([127, 9, 0, 0].into(), 30);
        assert_eq!(addresses.allocate(&|_| false).as_deref(), Some("127.9.0.1"));
        assert_eq!(addresses.allocate(&|one| one == "127.9.0.1").as_deref(), Some("127.9.0.2"));
        assert_eq!(addresses.allocate(&|one| one == "127.9.0.2").as_deref(), Some("127.9.0.1"));
        assert_eq!(addresses.allocate(&|_| true), None);
    }
}
