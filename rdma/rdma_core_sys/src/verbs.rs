//! The used part of `infiniband/verbs.h`, with the same names, layouts and values.
//!
//! Structures that the library allocates are declared up to their last field in use. `tests/layout`
//! compares everything here with the real header.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// `IBV_SYSFS_NAME_MAX`
pub const NAME_MAX: usize = 64;
/// `IBV_SYSFS_PATH_MAX`
pub const PATH_MAX: usize = 256;

/// An RDMA device that the library found.
#[repr(C)]
pub struct ibv_device {
    pub _ops: [Option<unsafe extern "C" fn()>; 2],
    pub node_type: c_int,
    pub transport_type: c_int,
    pub name: [c_char; NAME_MAX],
    pub dev_name: [c_char; NAME_MAX],
    pub dev_path: [c_char; PATH_MAX],
    pub ibdev_path: [c_char; PATH_MAX],
}

/// An entry of the table of operations that is not used here.
pub type Unused = Option<unsafe extern "C" fn()>;

/// Table of the operations that the header's inline functions call.
#[repr(C)]
pub struct ibv_context_ops {
    pub _compat_query_device: Unused,
    pub _compat_query_port: Unused,
    pub _compat_alloc_pd: Unused,
    pub _compat_dealloc_pd: Unused,
    pub _compat_reg_mr: Unused,
    pub _compat_rereg_mr: Unused,
    pub _compat_dereg_mr: Unused,
    pub alloc_mw: Option<unsafe extern "C" fn(*mut ibv_pd, c_int) -> *mut ibv_mw>,
    pub bind_mw: Unused,
    pub dealloc_mw: Option<unsafe extern "C" fn(*mut ibv_mw) -> c_int>,
    pub _compat_create_cq: Unused,
    pub poll_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int>,
    pub req_notify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int>,
    pub _compat_cq_event: Unused,
    pub _compat_resize_cq: Unused,
    pub _compat_destroy_cq: Unused,
    pub _compat_create_srq: Unused,
    pub _compat_modify_srq: Unused,
    pub _compat_query_srq: Unused,
    pub _compat_destroy_srq: Unused,
    pub post_srq_recv: Option<
        unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int,
    >,
    pub _compat_create_qp: Unused,
    pub _compat_query_qp: Unused,
    pub _compat_modify_qp: Unused,
    pub _compat_destroy_qp: Unused,
    pub post_send:
        Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int>,
    pub post_recv:
        Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int>,
    pub _compat_create_ah: Unused,
    pub _compat_destroy_ah: Unused,
    pub _compat_attach_mcast: Unused,
    pub _compat_detach_mcast: Unused,
    pub _compat_async_event: Unused,
}

/// An open device. The C structure has further fields.
#[repr(C)]
pub struct ibv_context {
    pub device: *mut ibv_device,
    pub ops: ibv_context_ops,
    pub cmd_fd: c_int,
    pub async_fd: c_int,
    pub num_comp_vectors: c_int,
}

/// Limits of a device.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_device_attr {
    pub fw_ver: [c_char; 64],
    pub node_guid: u64,
    pub sys_image_guid: u64,
    pub max_mr_size: u64,
    pub page_size_cap: u64,
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    pub hw_ver: u32,
    pub max_qp: c_int,
    pub max_qp_wr: c_int,
    pub device_cap_flags: c_uint,
    pub max_sge: c_int,
    pub max_sge_rd: c_int,
    pub max_cq: c_int,
    pub max_cqe: c_int,
    pub max_mr: c_int,
    pub max_pd: c_int,
    pub max_qp_rd_atom: c_int,
    pub max_ee_rd_atom: c_int,
    pub max_res_rd_atom: c_int,
    pub max_qp_init_rd_atom: c_int,
    pub max_ee_init_rd_atom: c_int,
    pub atomic_cap: c_int,
    pub max_ee: c_int,
    pub max_rdd: c_int,
    pub max_mw: c_int,
    pub max_raw_ipv6_qp: c_int,
    pub max_raw_ethy_qp: c_int,
    pub max_mcast_grp: c_int,
    pub max_mcast_qp_attach: c_int,
    pub max_total_mcast_qp_attach: c_int,
    pub max_ah: c_int,
    pub max_fmr: c_int,
    pub max_map_per_fmr: c_int,
    pub max_srq: c_int,
    pub max_srq_wr: c_int,
    pub max_srq_sge: c_int,
    pub max_pkeys: u16,
    pub local_ca_ack_delay: u8,
    pub phys_port_cnt: u8,
}

/// State of a port.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct ibv_port_attr {
    pub state: c_int,
    pub max_mtu: c_int,
    pub active_mtu: c_int,
    pub gid_tbl_len: c_int,
    pub port_cap_flags: u32,
    pub max_msg_sz: u32,
    pub bad_pkey_cntr: u32,
    pub qkey_viol_cntr: u32,
    pub pkey_tbl_len: u16,
    pub lid: u16,
    pub sm_lid: u16,
    pub lmc: u8,
    pub max_vl_num: u8,
    pub sm_sl: u8,
    pub subnet_timeout: u8,
    pub init_type_reply: u8,
    pub active_width: u8,
    pub active_speed: u8,
    pub phys_state: u8,
    pub link_layer: u8,
    pub flags: u8,
    pub port_cap_flags2: u16,
}

/// A protection domain. The C structure has further fields.
#[repr(C)]
pub struct ibv_pd {
    pub context: *mut ibv_context,
}

/// Registered memory.
#[repr(C)]
pub struct ibv_mr {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub addr: *mut c_void,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

/// A memory window.
#[repr(C)]
pub struct ibv_mw {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub rkey: u32,
    pub handle: u32,
    pub type_: c_int,
}

/// A completion channel.
#[repr(C)]
pub struct ibv_comp_channel {
    pub context: *mut ibv_context,
    pub fd: c_int,
    pub refcnt: c_int,
}

/// A completion queue. The C structure has further fields.
#[repr(C)]
pub struct ibv_cq {
    pub context: *mut ibv_context,
    pub channel: *mut ibv_comp_channel,
    pub cq_context: *mut c_void,
    pub handle: u32,
    pub cqe: c_int,
}

/// A shared receive queue. The C structure has further fields.
#[repr(C)]
pub struct ibv_srq {
    pub context: *mut ibv_context,
    pub srq_context: *mut c_void,
    pub pd: *mut ibv_pd,
    pub handle: u32,
}

/// Sizes of a shared receive queue, and the number of receives below which it generates an event.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_srq_attr {
    pub max_wr: u32,
    pub max_sge: u32,
    pub srq_limit: u32,
}

/// Parameters of a new shared receive queue.
#[repr(C)]
pub struct ibv_srq_init_attr {
    pub srq_context: *mut c_void,
    pub attr: ibv_srq_attr,
}

/// A queue pair. The C structure has further fields.
#[repr(C)]
pub struct ibv_qp {
    pub context: *mut ibv_context,
    pub qp_context: *mut c_void,
    pub pd: *mut ibv_pd,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub handle: u32,
    pub qp_num: u32,
}

/// Sizes of a queue pair.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_qp_cap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

/// Parameters of a new queue pair.
#[repr(C)]
pub struct ibv_qp_init_attr {
    pub qp_context: *mut c_void,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub cap: ibv_qp_cap,
    pub qp_type: c_int,
    pub sq_sig_all: c_int,
}

/// `struct ibv_qp_attr`. Only these fields are ever set here; the others are space that the library
/// may read.
#[repr(C, align(8))]
pub struct ibv_qp_attr {
    pub qp_state: c_int,
    pub _others: [u8; QP_ATTR_RNR_TIMER - size_of::<c_int>()],
    pub min_rnr_timer: u8,
    pub _rest: [u8; QP_ATTR_SIZE - QP_ATTR_RNR_TIMER - 1],
}

/// Size of `struct ibv_qp_attr`.
pub const QP_ATTR_SIZE: usize = 144;
/// Offset of `min_rnr_timer` in `struct ibv_qp_attr`.
pub const QP_ATTR_RNR_TIMER: usize = 128;

impl Default for ibv_qp_attr {
    fn default() -> Self {
        Self {
            qp_state: 0,
            _others: [0; _],
            min_rnr_timer: 0,
            _rest: [0; _],
        }
    }
}

/// An element of a gather or scatter list.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ibv_sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

/// A receive work request.
#[repr(C)]
pub struct ibv_recv_wr {
    pub wr_id: u64,
    pub next: *mut ibv_recv_wr,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
}

/// `wr.rdma`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct wr_rdma {
    pub remote_addr: u64,
    pub rkey: u32,
}

/// `wr`: as large as its largest member, `atomic`.
#[repr(C)]
pub union wr_union {
    pub rdma: wr_rdma,
    pub largest: [u64; 4],
}

/// Memory window binding.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_mw_bind_info {
    pub mr: *mut ibv_mr,
    pub addr: u64,
    pub length: u64,
    pub mw_access_flags: c_uint,
}

/// `bind_mw`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct wr_bind_mw {
    pub mw: *mut ibv_mw,
    pub rkey: u32,
    pub bind_info: ibv_mw_bind_info,
}

/// A send work request.
#[repr(C)]
pub struct ibv_send_wr {
    pub wr_id: u64,
    pub next: *mut ibv_send_wr,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
    pub opcode: c_int,
    pub send_flags: c_uint,
    /// A union with `imm_data` in C.
    pub invalidate_rkey: u32,
    pub wr: wr_union,
    /// `qp_type.xrc.remote_srqn`
    pub remote_srqn: u32,
    /// A union with `tso` in C, which is smaller.
    pub bind_mw: wr_bind_mw,
}

/// A work completion.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_wc {
    pub wr_id: u64,
    pub status: c_int,
    pub opcode: c_int,
    pub vendor_err: u32,
    pub byte_len: u32,
    /// A union with `imm_data` in C.
    pub invalidated_rkey: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: c_uint,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}

/// An asynchronous event.
#[repr(C)]
pub struct ibv_async_event {
    /// A union in C: a pointer to a CQ, QP or SRQ, or a port number of type `int`.
    pub element: *mut c_void,
    pub event_type: c_int,
}

/// Constants with the names of the header.
#[rustfmt::skip]
mod constants {
    use std::ffi::{c_int, c_uint};

    pub const IBV_TRANSPORT_IWARP: c_int = 1;
    pub const IBV_PORT_ACTIVE: c_int = 4;
    pub const IBV_DEVICE_MEM_MGT_EXTENSIONS: c_uint = 1 << 21;
    pub const IBV_DEVICE_MEM_WINDOW_TYPE_2A: c_uint = 1 << 23;
    pub const IBV_DEVICE_MEM_WINDOW_TYPE_2B: c_uint = 1 << 24;
    pub const IBV_ACCESS_LOCAL_WRITE: c_uint = 1;
    pub const IBV_ACCESS_REMOTE_WRITE: c_uint = 1 << 1;
    pub const IBV_ACCESS_REMOTE_READ: c_uint = 1 << 2;
    pub const IBV_ACCESS_MW_BIND: c_uint = 1 << 4;
    pub const IBV_MW_TYPE_2: c_int = 2;
    pub const IBV_QPT_RC: c_int = 2;
    pub const IBV_QP_STATE: c_int = 1;
    pub const IBV_QP_MIN_RNR_TIMER: c_int = 1 << 15;
    pub const IBV_SRQ_LIMIT: c_int = 1 << 1;
    pub const IBV_QPS_ERR: c_int = 6;
    pub const IBV_WR_RDMA_WRITE: c_int = 0;
    pub const IBV_WR_SEND: c_int = 2;
    pub const IBV_WR_RDMA_READ: c_int = 4;
    pub const IBV_WR_LOCAL_INV: c_int = 7;
    pub const IBV_WR_BIND_MW: c_int = 8;
    pub const IBV_WR_SEND_WITH_INV: c_int = 9;
    pub const IBV_SEND_SIGNALED: c_uint = 1 << 1;
    pub const IBV_SEND_INLINE: c_uint = 1 << 3;
    pub const IBV_WC_SUCCESS: c_int = 0;
    pub const IBV_WC_LOC_LEN_ERR: c_int = 1;
    pub const IBV_WC_LOC_QP_OP_ERR: c_int = 2;
    pub const IBV_WC_LOC_PROT_ERR: c_int = 4;
    pub const IBV_WC_WR_FLUSH_ERR: c_int = 5;
    pub const IBV_WC_MW_BIND_ERR: c_int = 6;
    pub const IBV_WC_LOC_ACCESS_ERR: c_int = 8;
    pub const IBV_WC_REM_INV_REQ_ERR: c_int = 9;
    pub const IBV_WC_REM_ACCESS_ERR: c_int = 10;
    pub const IBV_WC_REM_OP_ERR: c_int = 11;
    pub const IBV_WC_IP_CSUM_OK: c_uint = 1 << 2;
    pub const IBV_WC_WITH_INV: c_uint = 1 << 3;
    pub const IBV_EVENT_CQ_ERR: c_int = 0;
    pub const IBV_EVENT_QP_FATAL: c_int = 1;
    pub const IBV_EVENT_QP_REQ_ERR: c_int = 2;
    pub const IBV_EVENT_QP_ACCESS_ERR: c_int = 3;
    pub const IBV_EVENT_COMM_EST: c_int = 4;
    pub const IBV_EVENT_DEVICE_FATAL: c_int = 8;
    pub const IBV_EVENT_PORT_ACTIVE: c_int = 9;
    pub const IBV_EVENT_PORT_ERR: c_int = 10;
    pub const IBV_EVENT_SRQ_ERR: c_int = 14;
    pub const IBV_EVENT_SRQ_LIMIT_REACHED: c_int = 15;
    pub const IBV_EVENT_QP_LAST_WQE_REACHED: c_int = 16;
}
pub use constants::*;
