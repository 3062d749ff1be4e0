//! The names of the kernel modules in a guest.

/// The modules that lanes may load.
pub(super) const MODULES: [&str; 50] = [
    // The machine.
    "virtio_pci",
    "virtio_blk",
    "virtio_net",
    "virtio_rng",
    "ext4",
    "9p",
    "9pnet_virtio",
    // Networks and network faults.
    "af_packet",
    "veth",
    "dummy",
    "ifb",
    "sch_netem",
    "sch_tbf",
    "sch_ingress",
    "cls_u32",
    "act_mirred",
    "nf_tables",
    "nft_compat",
    // Lookup of the owner of a socket.
    "inet_diag",
    "tcp_diag",
    // Verbs.
    "ib_core",
    "ib_cm",
    "iw_cm",
    "ib_umad",
    "ib_uverbs",
    "rdma_cm",
    "rdma_ucm",
    "rdma_rxe",
    "siw",
    // NFS.
    "sunrpc",
    "auth_rpcgss",
    "rpcsec_gss_krb5",
    // An encryption type of Kerberos, which it requests by name.
    "cts",
    "rpcrdma",
    "grace",
    "lockd",
    "nfs_acl",
    "nfs",
    "nfsd",
    "nfsv3",
    "nfsv4",
    "fuse",
    "loop",
    "overlay",
    "quota_v2",
    "quota_tree",
    // Checksums, which rxe, siw and ext4 request by name.
    "crc32_generic",
    "crc32_pclmul",
    "crc32c_generic",
    "crc32c_intel",
];

/// The modules that are needed for mounting the root file system.
pub(super) const EARLY: [&str; 4] = ["virtio_pci", "virtio_blk", "crc32c_generic", "ext4"];
