//! Conversion of socket addresses to and from C, and the addresses of this machine's network
//! interfaces.

use std::ffi::CStr;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::path::Path;
use std::ptr;

use super::sysfs::{entries, line};
use rdma_core_sys::{self as sys, sockaddr_storage};

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
const NET: &str = "/sys/class/net";

/// Converts an address to the form that the kernel expects.
pub(super) fn to_storage(address: SocketAddr) -> sockaddr_storage {
    let mut bytes = [0; 128];
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    put(2, &address.port().to_be_bytes());
    match address {
        SocketAddr::V4(v4) => {
            put(0, &AF_INET.to_ne_bytes());
            put(4, &v4.ip().octets());
        }
        SocketAddr::V6(v6) => {
            put(0, &AF_INET6.to_ne_bytes());
            put(4, &v6.flowinfo().to_be_bytes());
            put(8, &v6.ip().octets());
            put(24, &v6.scope_id().to_ne_bytes());
        }
    }
    sockaddr_storage { bytes }
}

/// Converts an address from C. Returns `None` if it is not an IP address.
pub(super) fn from_storage(storage: &sockaddr_storage) -> Option<SocketAddr> {
    from_bytes(&storage.bytes)
}

fn from_bytes(bytes: &[u8]) -> Option<SocketAddr> {
    fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
        bytes.get(at..)?.first_chunk().copied()
    }
    let port = u16::from_be_bytes(field(bytes, 2)?);
    match u16::from_ne_bytes(field(bytes, 0)?) {
        AF_INET => {
            let ip = Ipv4Addr::from(field::<4>(bytes, 4)?);
            Some(SocketAddrV4::new(ip, port).into())
        }
        AF_INET6 => {
            let ip = Ipv6Addr::from(field::<16>(bytes, 8)?);
            let flow = u32::from_be_bytes(field(bytes, 4)?);
            let scope = u32::from_ne_bytes(field(bytes, 24)?);
            Some(SocketAddrV6::new(ip, port, flow, scope).into())
        }
        _ => None,
    }
}

/// An IP address of a network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) interface: String,
    pub(super) ip: IpAddr,
}

/// Returns all addresses of all interfaces.
pub(super) fn interfaces() -> Vec<Address> {
    let mut list = ptr::null_mut();
    // SAFETY: `list` is valid for the call.
    if unsafe { sys::getifaddrs(&mut list) } != 0 {
        return Vec::new();
    }
    let mut all = Vec::new();
    let mut next: *const sys::ifaddrs = list;
    // SAFETY: every link of the list is valid until it is freed, or null at its end.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        if entry.ifa_addr.is_null() {
            continue;
        }
        // SAFETY: an address is at least its family long ...
        let family = unsafe { entry.ifa_addr.cast::<u16>().read_unaligned() };
        let len = match family {
            AF_INET => 16,
            AF_INET6 => 28,
            _ => continue,
        };
        // SAFETY: ... and one of these families is as long as `sockaddr_in` or `sockaddr_in6`.
        let bytes = unsafe { std::slice::from_raw_parts(entry.ifa_addr, len) };
        // SAFETY: the name is a C string of the entry.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) };
        if let Some(address) = from_bytes(bytes) {
            all.push(Address {
                interface: name.to_string_lossy().into_owned(),
                ip: address.ip(),
            });
        }
    }
    // SAFETY: the list of above, which is not used any more.
    unsafe { sys::freeifaddrs(list) };
    all
}

/// Returns the network interface of a device. `device` is the device's folder in sysfs. The name
/// comes from the device's attributes; without them (siw), it is the interface whose hardware
/// address equals the device's first GID.
pub(super) fn interface_of(device: &Path) -> Option<String> {
    let port = device.join("ports/1");
    let said = line(&port.join("gid_attrs/ndevs/0"));
    if !said.is_empty() {
        return Some(said);
    }
    let gid: String = line(&port.join("gids/0")).split(':').collect();
    let is_its = |name: &String| {
        let text = line(&Path::new(NET).join(name).join("address"));
        let mac: String = text.split(':').collect();
        mac.len() == 12 && mac != "000000000000" && gid.starts_with(&mac)
    };
    let parent = fs::read_to_string(device.join("parent")).ok();
    let parent = parent.map(|name| name.trim().to_owned());
    parent.or_else(|| entries(Path::new(NET)).into_iter().find(is_its))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_conversion_to_c() {
        let addresses = ["10.8.0.1:20049", "[2001:db8::7]:65535", "0.0.0.0:0"];
        for address in addresses.map(|text| text.parse::<SocketAddr>().unwrap()) {
            assert_eq!(from_storage(&to_storage(address)), Some(address));
        }
        let scoped = SocketAddrV6::new("fe80::1".parse().unwrap(), 7, 9, 3).into();
        assert_eq!(from_storage(&to_storage(scoped)), Some(scoped));
        assert_eq!(from_storage(&sockaddr_storage { bytes: [0; 128] }), None);
    }

    #[test]
    fn every_machine_has_its_loopback_address() {
        let found = interfaces();
        let loopback = IpAddr::from([127, 0, 0, 1]);
        assert!(found.iter().any(|one| one.ip == loopback), "{found:?}");
    }
}
