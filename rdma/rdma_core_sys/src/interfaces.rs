//! The used part of `ifaddrs.h`, from the C library that every Rust program is linked with.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// An address of a network interface.
#[repr(C)]
pub struct ifaddrs {
    pub ifa_next: *mut ifaddrs,
    pub ifa_name: *const c_char,
    pub ifa_flags: c_uint,
    /// `struct sockaddr`
    pub ifa_addr: *const u8,
    pub ifa_netmask: *const c_void,
    pub ifa_ifu: *const c_void,
    pub ifa_data: *const c_void,
}

unsafe extern "C" {
    pub fn getifaddrs(list: *mut *mut ifaddrs) -> c_int;
    pub fn freeifaddrs(list: *mut ifaddrs);
}
