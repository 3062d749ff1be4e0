//! `rdma/rdma_cma.h`, as far as it is used: the same names, layouts and values.

use std::ffi::{c_int, c_void};

use super::verbs::{ibv_context, ibv_qp};

/// Room for any address, aligned as one: `struct sockaddr_storage`.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub struct sockaddr_storage {
    pub bytes: [u8; 128],
}

/// Both ends' addresses.
#[repr(C)]
pub struct rdma_addr {
    pub src: sockaddr_storage,
    pub dst: sockaddr_storage,
    /// `struct rdma_ib_addr`
    pub ib: [u16; 17],
}

/// An address and the ways between its ends.
#[repr(C)]
pub struct rdma_route {
    pub addr: rdma_addr,
    pub path_rec: *mut c_void,
    pub num_paths: c_int,
}

/// A source of events.
#[repr(C)]
pub struct rdma_event_channel {
    pub fd: c_int,
}

/// An identifier: a listener or a connection; more follows.
#[repr(C)]
pub struct rdma_cm_id {
    pub verbs: *mut ibv_context,
    pub channel: *mut rdma_event_channel,
    pub context: *mut c_void,
    pub qp: *mut ibv_qp,
    pub route: rdma_route,
    pub ps: c_int,
    pub port_num: u8,
}

/// How to connect or accept, and how the peer did.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rdma_conn_param {
    pub private_data: *const c_void,
    pub private_data_len: u8,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub flow_control: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    pub srq: u8,
    pub qp_num: u32,
}

/// An event. The union `param` is larger: its other member is for datagrams.
#[repr(C)]
pub struct rdma_cm_event {
    pub id: *mut rdma_cm_id,
    pub listen_id: *mut rdma_cm_id,
    pub event: c_int,
    pub status: c_int,
    pub conn: rdma_conn_param,
}

/// Constants, by the names of the header.
#[rustfmt::skip]
mod constants {
    use std::ffi::c_int;

    pub const RDMA_PS_TCP: c_int = 0x0106;
    pub const RDMA_CM_EVENT_ADDR_RESOLVED: c_int = 0;
    pub const RDMA_CM_EVENT_ADDR_ERROR: c_int = 1;
    pub const RDMA_CM_EVENT_ROUTE_RESOLVED: c_int = 2;
    pub const RDMA_CM_EVENT_ROUTE_ERROR: c_int = 3;
    pub const RDMA_CM_EVENT_CONNECT_REQUEST: c_int = 4;
    pub const RDMA_CM_EVENT_CONNECT_ERROR: c_int = 6;
    pub const RDMA_CM_EVENT_UNREACHABLE: c_int = 7;
    pub const RDMA_CM_EVENT_REJECTED: c_int = 8;
    pub const RDMA_CM_EVENT_ESTABLISHED: c_int = 9;
    pub const RDMA_CM_EVENT_DISCONNECTED: c_int = 10;
    pub const RDMA_CM_EVENT_DEVICE_REMOVAL: c_int = 11;
}
pub use constants::*;
