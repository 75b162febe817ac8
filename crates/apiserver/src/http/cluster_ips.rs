//! Gives Services an address where nobody else does: from the range that clusters commonly use for them.
//!
//! Nothing listens on these addresses. Whoever makes Services reachable brings an allocator of its own to the store.

use std::net::Ipv4Addr;

use crate::store::ClusterIps;

/// 10.96.0.0/16, of which the first few are left for fixed addresses.
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);
const LAST: Ipv4Addr = Ipv4Addr::new(10, 96, 255, 254);

/// Takes addresses in turn, so that one just freed is not given again at once.
#[derive(Default)]
pub(super) struct InTurn {
    given: u32,
}

impl ClusterIps for InTurn {
    fn allocate(&mut self, taken: &dyn Fn(&str) -> bool) -> Option<String> {
        let size = LAST.to_bits() - FIRST.to_bits() + 1;
        for _ in 0..size {
            let address = Ipv4Addr::from_bits(FIRST.to_bits() + self.given % size).to_string();
            self.given = (self.given + 1) % size;
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
    fn an_address_is_given_once_and_not_while_it_is_taken() {
        let mut addresses = InTurn::default();
        assert_eq!(addresses.allocate(&|_| false).as_deref(), Some("10.96.0.10"));
        assert_eq!(addresses.allocate(&|address| address == "10.96.0.11").as_deref(), Some("10.96.0.12"));
        assert_eq!(addresses.allocate(&|_| true), None);
    }
}
