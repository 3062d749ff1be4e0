//! Compares the C declarations of `rdma_core_sys` with the installed headers: sizes, offsets,
//! values. A C program prints the values of the headers, and this program compares them.
//!
//! Needs a C compiler (`CC`, or `cc`), `libibverbs-dev` and `librdmacm-dev`, and is therefore not
//! part of the default tests: `cargo test -p rdma-core-dlopen-sys --features layout-check --test
//! layout`.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::process::Command;

use rdma_core_sys as sys;

/// C expressions, and their values according to the Rust declarations.
type Facts = Vec<(String, i64)>;

/// Adds the offsets of the fields of a structure that is declared up to its last used field.
macro_rules! fields {
    ($facts:ident, $c:literal, $rust:ident: $($field:ident $(= $c_field:literal)?),* $(,)?) => {
        $($facts.push((
            format!("offsetof({}, {})", $c, [$($c_field,)? stringify!($field)][0]),
            offset_of!(sys::$rust, $field) as i64,
        ));)*
    };
}

/// Adds the offsets of the fields and the size of a structure that is declared in full.
macro_rules! whole {
    ($facts:ident, $c:literal, $rust:ident: $($rest:tt)*) => {
        fields!($facts, $c, $rust: $($rest)*);
        $facts.push((format!("sizeof({})", $c), size_of::<sys::$rust>() as i64));
    };
}

macro_rules! values {
    ($facts:ident: $($name:ident),* $(,)?) => {
        $($facts.push((stringify!($name).to_owned(), i64::from(sys::$name)));)*
    };
}

fn verbs_facts() -> Facts {
    let mut facts = Facts::new();
    whole!(facts, "struct ibv_device", ibv_device:
        _ops, node_type, transport_type, name, dev_name, dev_path, ibdev_path);
    whole!(facts, "struct ibv_context_ops", ibv_context_ops:
        _compat_query_device, alloc_mw, bind_mw, dealloc_mw, poll_cq, req_notify_cq, post_srq_recv,
        post_send, post_recv, _compat_async_event);
    fields!(facts, "struct ibv_context", ibv_context:
        device, ops, cmd_fd, async_fd, num_comp_vectors);
    whole!(facts, "struct ibv_device_attr", ibv_device_attr:
        fw_ver, node_guid, max_mr_size, vendor_id, max_qp, max_qp_wr, device_cap_flags, max_sge,
        max_sge_rd, max_cq, max_cqe, max_mr, max_pd, max_qp_rd_atom, max_qp_init_rd_atom,
        atomic_cap, max_mw, max_srq, max_srq_wr, max_srq_sge, max_pkeys, phys_port_cnt);
    whole!(facts, "struct ibv_port_attr", ibv_port_attr:
        state, gid_tbl_len, port_cap_flags, max_msg_sz, pkey_tbl_len, lmc, phys_state, link_layer,
        flags, port_cap_flags2);
    fields!(facts, "struct ibv_pd", ibv_pd: context);
    whole!(facts, "struct ibv_mr", ibv_mr: context, pd, addr, length, handle, lkey, rkey);
    whole!(facts, "struct ibv_mw", ibv_mw: context, pd, rkey, handle, type_ = "type");
    whole!(facts, "struct ibv_comp_channel", ibv_comp_channel: context, fd, refcnt);
    fields!(facts, "struct ibv_cq", ibv_cq: context, channel, cq_context, handle, cqe);
    fields!(facts, "struct ibv_srq", ibv_srq: context, srq_context, pd, handle);
    whole!(facts, "struct ibv_srq_attr", ibv_srq_attr: max_wr, max_sge, srq_limit);
    whole!(facts, "struct ibv_srq_init_attr", ibv_srq_init_attr: srq_context, attr);
    fields!(facts, "struct ibv_qp", ibv_qp:
        context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num);
    whole!(facts, "struct ibv_qp_cap", ibv_qp_cap:
        max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data);
    whole!(facts, "struct ibv_qp_init_attr", ibv_qp_init_attr:
        qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all);
    whole!(facts, "struct ibv_qp_attr", ibv_qp_attr: qp_state, min_rnr_timer);
    whole!(facts, "struct ibv_sge", ibv_sge: addr, length, lkey);
    whole!(facts, "struct ibv_recv_wr", ibv_recv_wr: wr_id, next, sg_list, num_sge);
    whole!(facts, "struct ibv_mw_bind_info", ibv_mw_bind_info: mr, addr, length, mw_access_flags);
    whole!(facts, "struct ibv_send_wr", ibv_send_wr:
        wr_id, next, sg_list, num_sge, opcode, send_flags, invalidate_rkey, wr,
        remote_srqn = "qp_type.xrc.remote_srqn", bind_mw);
    let (wr, bind) = (
        offset_of!(sys::ibv_send_wr, wr),
        offset_of!(sys::ibv_send_wr, bind_mw),
    );
    for (field, at) in [
        (
            "wr.rdma.remote_addr",
            wr + offset_of!(sys::wr_rdma, remote_addr),
        ),
        ("wr.rdma.rkey", wr + offset_of!(sys::wr_rdma, rkey)),
        ("bind_mw.mw", bind + offset_of!(sys::wr_bind_mw, mw)),
        ("bind_mw.rkey", bind + offset_of!(sys::wr_bind_mw, rkey)),
        (
            "bind_mw.bind_info",
            bind + offset_of!(sys::wr_bind_mw, bind_info),
        ),
    ] {
        facts.push((format!("offsetof(struct ibv_send_wr, {field})"), at as i64));
    }
    whole!(facts, "struct ibv_wc", ibv_wc:
        wr_id, status, opcode, vendor_err, byte_len, invalidated_rkey, qp_num, src_qp, wc_flags,
        pkey_index, slid, sl, dlid_path_bits);
    whole!(facts, "struct ibv_async_event", ibv_async_event: element, event_type);
    values!(facts:
        IBV_TRANSPORT_IWARP, IBV_PORT_ACTIVE, IBV_DEVICE_MEM_MGT_EXTENSIONS,
        IBV_DEVICE_MEM_WINDOW_TYPE_2A, IBV_DEVICE_MEM_WINDOW_TYPE_2B, IBV_ACCESS_LOCAL_WRITE,
        IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_MW_BIND, IBV_MW_TYPE_2,
        IBV_QPT_RC, IBV_QP_STATE, IBV_QP_MIN_RNR_TIMER, IBV_SRQ_LIMIT, IBV_QPS_ERR,
        IBV_WR_RDMA_WRITE, IBV_WR_SEND, IBV_WR_RDMA_READ,
        IBV_WR_LOCAL_INV, IBV_WR_BIND_MW, IBV_WR_SEND_WITH_INV, IBV_SEND_SIGNALED,
        IBV_SEND_INLINE, IBV_WC_SUCCESS, IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_QP_OP_ERR,
        IBV_WC_LOC_PROT_ERR, IBV_WC_WR_FLUSH_ERR, IBV_WC_MW_BIND_ERR, IBV_WC_LOC_ACCESS_ERR,
        IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_OP_ERR, IBV_WC_IP_CSUM_OK,
        IBV_WC_WITH_INV, IBV_EVENT_CQ_ERR, IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR,
        IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_COMM_EST, IBV_EVENT_DEVICE_FATAL,
        IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR, IBV_EVENT_SRQ_ERR,
        IBV_EVENT_SRQ_LIMIT_REACHED, IBV_EVENT_QP_LAST_WQE_REACHED);
    facts.push(("IBV_SYSFS_NAME_MAX".to_owned(), sys::NAME_MAX as i64));
    facts.push(("IBV_SYSFS_PATH_MAX".to_owned(), sys::PATH_MAX as i64));
    facts
}

fn cm_facts() -> Facts {
    let mut facts = Facts::new();
    whole!(facts, "struct sockaddr_storage", sockaddr_storage:);
    whole!(facts, "struct rdma_addr", rdma_addr:
        src = "src_storage", dst = "dst_storage", ib = "addr.ibaddr");
    whole!(facts, "struct rdma_route", rdma_route: addr, path_rec, num_paths);
    whole!(facts, "struct rdma_event_channel", rdma_event_channel: fd);
    fields!(facts, "struct rdma_cm_id", rdma_cm_id:
        verbs, channel, context, qp, route, ps, port_num);
    whole!(facts, "struct rdma_conn_param", rdma_conn_param:
        private_data, private_data_len, responder_resources, initiator_depth, flow_control,
        retry_count, rnr_retry_count, srq, qp_num);
    fields!(facts, "struct rdma_cm_event", rdma_cm_event:
        id, listen_id, event, status, conn = "param.conn");
    whole!(facts, "struct ifaddrs", ifaddrs:
        ifa_next, ifa_name, ifa_flags, ifa_addr, ifa_netmask, ifa_ifu, ifa_data);
    values!(facts:
        RDMA_PS_TCP, RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ADDR_ERROR,
        RDMA_CM_EVENT_ROUTE_RESOLVED, RDMA_CM_EVENT_ROUTE_ERROR, RDMA_CM_EVENT_CONNECT_REQUEST,
        RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_UNREACHABLE, RDMA_CM_EVENT_REJECTED,
        RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_DEVICE_REMOVAL);
    facts
}

/// Evaluates the expressions with a C program.
fn ask_c(questions: impl Iterator<Item = String>) -> BTreeMap<String, i64> {
    let prints: String = questions
        .map(|question| format!("    printf(\"%lld {question}\\n\", (long long)({question}));\n"))
        .collect();
    let program = format!(
        "#include <ifaddrs.h>\n#include <stddef.h>\n#include <stdio.h>\n#include <sys/socket.h>\n\
         #include <rdma/rdma_cma.h>\n\nint main(void)\n{{\n{prints}    return 0;\n}}\n"
    );
    let folder = std::env::temp_dir().join(format!("layout-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, binary) = (folder.join("layout.c"), folder.join("layout"));
    std::fs::write(&source, program).unwrap();
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let compiled = Command::new(&compiler)
        .arg("-o")
        .args([&binary, &source])
        .status();
    assert!(compiled.unwrap().success(), "{compiler} failed");
    let output = Command::new(&binary).output().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let answer = |line: &str| {
        let (number, question) = line.split_once(' ').unwrap();
        (question.to_owned(), number.parse().unwrap())
    };
    text.lines().map(answer).collect()
}

#[test]
fn declarations_agree_with_the_headers() {
    let facts: Facts = verbs_facts().into_iter().chain(cm_facts()).collect();
    let answers = ask_c(facts.iter().map(|(question, _)| question.clone()));
    let wrong: Vec<String> = facts
        .iter()
        .filter(|(question, rust)| answers.get(question) != Some(rust))
        .map(|(question, rust)| format!("{question}: {rust}, C: {:?}", answers.get(question)))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(facts.len() > 150, "the list is {} long", facts.len());
}
