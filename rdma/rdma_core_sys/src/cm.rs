//! The used part of `rdma/rdma_cma.h`, with the same names, layouts and values.

use std::ffi::{c_int, c_void};

use super::verbs::{ibv_context, ibv_qp};

/// `struct sockaddr_storage`: room for an address of any family.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub struct sockaddr_storage {
    pub bytes: [u8; 128],
}

/// Addresses of both ends.
#[repr(C)]
pub struct rdma_addr {
    pub src: sockaddr_storage,
    pub dst: sockaddr_storage,
    /// `struct rdma_ib_addr`
    pub ib: [u16; 17],
}

/// Addresses and path records of a connection.
#[repr(C)]
pub struct rdma_route {
    pub addr: rdma_addr,
    pub path_rec: *mut c_void,
    pub num_paths: c_int,
}

/// An event channel.
#[repr(C)]
pub struct rdma_event_channel {
    pub fd: c_int,
}

/// An identifier of a listener or a connection. The C structure has further fields.
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

/// Parameters for connecting or accepting, and those of the peer.
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

/// A connection manager event. The union `param` is larger in C: its other member is for datagrams.
#[repr(C)]
pub struct rdma_cm_event {
    pub id: *mut rdma_cm_id,
    pub listen_id: *mut rdma_cm_id,
    pub event: c_int,
    pub status: c_int,
    pub conn: rdma_conn_param,
}

/// Constants with the names of the header.
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
