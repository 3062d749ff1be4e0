//! The operations of COMPOUND and CB_COMPOUND: those of RFC 7530 (3 to 39), RFC 8881 (to 58), RFC
//! 7862 (to 71) and RFC 8276 (72 to 75).
//!
//! Results have a maximum length where the protocol gives one, or where all known servers keep to
//! one. The rest has none, in particular what RFC 8267 (section 6.2) lists.

use super::attributes::{MAX_OWNER, MAX_WORDS};
use super::fields::Field::{
    Attributes, AttributesAsked, Chain, Count, CountedList, Fixed, Item, LinkItem, List,
    ListOfCount, Opaque, Union, UpToCount, Words,
};
use super::fields::{ATTRIBUTES, Field, Fields, NO_LIMIT};

/// An operation of a COMPOUND.
pub(crate) struct Operation {
    /// The name, without the prefix.
    pub(crate) name: &'static str,
    /// The arguments.
    pub(crate) args: Fields,
    /// The results, which begin with the status.
    pub(crate) results: Fields,
}

/// A structure of an operation.
const fn operation(name: &'static str, args: Fields, results: Fields) -> Operation {
    Operation {
        name,
        args,
        results,
    }
}

/// Results that follow the status if it is NFS4_OK.
macro_rules! ok {
    ($($field:expr),* $(,)?) => { &[Union(&[(NFS4_OK, &[$($field),*])], &[])] };
}

const NFS4_OK: u32 = 0;
const NFS4ERR_TOOSMALL: u32 = 10_005;
const NFS4ERR_DENIED: u32 = 10_010;
const NFS4ERR_CLID_INUSE: u32 = 10_017;
const NFS4ERR_LAYOUTTRYLATER: u32 = 10_058;
const NFS4ERR_OFFLOAD_NO_REQS: u32 = 10_094;

/// The maximum length of a file handle, bytes (NFS4_FHSIZE).
const HANDLE: Field = Opaque(128);
/// A `stateid4`.
const STATE: Field = Fixed(16);
/// A `change_info4`.
const CHANGE: Field = Fixed(20);
/// An opaque or a string in arguments.
const ANY: Field = Opaque(NO_LIMIT);
/// An opaque in results of at most NFS4_OPAQUE_LIMIT bytes.
const LIMITED: Field = Opaque(1024);
/// A bitmap in results.
const BITMAP: Field = Words(MAX_WORDS);
/// A bitmap in arguments.
const ANY_BITMAP: Field = Words(NO_LIMIT);

/// The status alone.
const STATUS: Fields = &[Fixed(4)];
/// The six counts of a `channel_attrs4`.
const COUNTS: Field = Fixed(24);
/// The `ca_rdma_ird` of a `channel_attrs4`.
const READS: Field = Words(1);
/// A `callback_sec_parms4`: AUTH_SYS has a stamp, a machine name, user, group and groups;
/// RPCSEC_GSS has a service and two handles.
const CALLBACK_SECURITY: Fields = &[Union(
    &[
        (1, &[Fixed(4), ANY, Fixed(8), ANY_BITMAP]),
        (6, &[Fixed(4), ANY, ANY]),
    ],
    &[],
)];
/// An `nfsace4` in results, without the owner that follows it.
const ACE: Field = Fixed(12);
const OWNER: Field = Opaque(MAX_OWNER);
const READ_DELEGATION: Fields = &[STATE, Fixed(4), ACE, OWNER];
const WRITE_DELEGATION: Fields = &[STATE, Fixed(4), SPACE_LIMIT, ACE, OWNER];
/// An `nfs_space_limit4`: both arms have eight bytes.
const SPACE_LIMIT: Field = Fixed(12);
/// An `open_delegation4`. The last two arms are those of RFC 9754.
const DELEGATION: Field = Union(
    &[
        (1, READ_DELEGATION),
        (2, WRITE_DELEGATION),
        (3, &[Union(&[(1, &[Fixed(4)]), (2, &[Fixed(4)])], &[])]),
        (4, READ_DELEGATION),
        (5, WRITE_DELEGATION),
    ],
    &[],
);
/// A `createhow4`.
const CREATE_HOW: Fields = &[Union(
    &[
        (0, ATTRIBUTES),
        (1, ATTRIBUTES),
        (2, &[Fixed(8)]),
        (3, &[Fixed(8), ANY_BITMAP, ANY]),
    ],
    &[],
)];
/// An `open_claim4`.
const CLAIM: Field = Union(
    &[
        (0, &[ANY]),
        (1, &[Fixed(4)]),
        (2, &[STATE, ANY]),
        (3, &[ANY]),
        (5, &[STATE]),
    ],
    &[],
);
/// A `LOCK4denied`, whose last field is the owner of the other lock.
const DENIED: Fields = &[Fixed(20 + 8), LIMITED];
/// A `SECINFO4resok`. The protocol limits neither the number of flavors nor the length of an OID;
/// clients do not look at more.
const SECURITY: Field = List(32, &[Union(&[(6, &[Opaque(32), Fixed(8)])], &[])]);
/// A `netaddr4` or `clientaddr4`: a netid and a universal address.
const ADDRESS: Fields = &[Opaque(128), Opaque(128)];
/// A `netloc4` in arguments and results.
const LOCATION: Field = Union(&[(3, &[ANY, ANY])], &[ANY]);
/// A `state_protect_ops4`.
const PROTECTED_OPERATIONS: Fields = &[BITMAP, BITMAP];
/// A `write_response4`.
const WRITE_RESPONSE: Fields = &[CALLBACK_ID, WRITTEN];
const CALLBACK_ID: Field = List(1, &[STATE]);
const WRITTEN: Field = Fixed(20);
/// A `read_plus_content`: data, or a hole.
const CONTENT: Fields = &[Union(&[(0, &[Fixed(8), ANY]), (1, &[Fixed(16)])], &[])];

/// The room for a READ_PLUS result beyond its data and the same again. It has as many segments as
/// the server likes (nfs-ulb-v2-06, section 5.1.1). Each takes up to 24 bytes beside its data; this
/// is enough for any number of them that are longer than that on average.
const READ_PLUS_MORE: u32 = 64 * 24;

/// The first operation of a COMPOUND.
const FIRST: u32 = 3;

#[rustfmt::skip]
static OPERATIONS: [Operation; 73] = [
    operation("ACCESS", &[Fixed(4)], ok![Fixed(8)]),
    operation("CLOSE", &[Fixed(4), STATE], ok![STATE]),
    operation("COMMIT", &[Fixed(12)], ok![Fixed(8)]),
    operation(
        "CREATE",
        &[Union(&[(5, &[Item]), (3, &[Fixed(8)]), (4, &[Fixed(8)])], &[]), ANY, ANY_BITMAP, ANY],
        ok![CHANGE, BITMAP],
    ),
    operation("DELEGPURGE", &[Fixed(8)], STATUS),
    operation("DELEGRETURN", &[STATE], STATUS),
    operation("GETATTR", &[AttributesAsked], ok![Attributes]),
    operation("GETFH", &[], ok![HANDLE]),
    operation("LINK", &[ANY], ok![CHANGE]),
    operation(
        "LOCK",
        &[Fixed(8 + 16), Union(&[(0, &[Fixed(20)]), (1, &[Fixed(24 + 8), ANY])], &[])],
        &[Union(&[(NFS4_OK, &[STATE]), (NFS4ERR_DENIED, DENIED)], &[])],
    ),
    operation("LOCKT", &[Fixed(20 + 8), ANY], &[Union(&[(NFS4ERR_DENIED, DENIED)], &[])]),
    operation("LOCKU", &[Fixed(8), STATE, Fixed(16)], ok![STATE]),
    operation("LOOKUP", &[ANY], STATUS),
    operation("LOOKUPP", &[], STATUS),
    operation("NVERIFY", ATTRIBUTES, STATUS),
    operation(
        "OPEN",
        &[Fixed(12 + 8), ANY, Union(&[(1, CREATE_HOW)], &[]), CLAIM],
        ok![STATE, CHANGE, Fixed(4), BITMAP, DELEGATION],
    ),
    operation("OPENATTR", &[Fixed(4)], STATUS),
    operation("OPEN_CONFIRM", &[STATE, Fixed(4)], ok![STATE]),
    operation("OPEN_DOWNGRADE", &[STATE, Fixed(12)], ok![STATE]),
    operation("PUTFH", &[ANY], STATUS),
    operation("PUTPUBFH", &[], STATUS),
    operation("PUTROOTFH", &[], STATUS),
    operation("READ", &[STATE, Fixed(8), Count], ok![Fixed(4), Item]),
    operation(
        "READDIR",
        &[Fixed(20), Count, AttributesAsked],
        ok![UpToCount(16, 1, &[
            Fixed(8), Chain(&[Fixed(8), ANY, ANY_BITMAP, ANY]), Fixed(4),
        ])],
    ),
    operation("READLINK", &[], ok![LinkItem]),
    operation("REMOVE", &[ANY], ok![CHANGE]),
    operation("RENAME", &[ANY, ANY], ok![CHANGE, CHANGE]),
    operation("RENEW", &[Fixed(8)], STATUS),
    operation("RESTOREFH", &[], STATUS),
    operation("SAVEFH", &[], STATUS),
    operation("SECINFO", &[ANY], ok![SECURITY]),
    operation("SETATTR", &[STATE, ANY_BITMAP, ANY], &[Fixed(4), BITMAP]),
    operation(
        "SETCLIENTID",
        &[Fixed(8), ANY, Fixed(4), ANY, ANY, Fixed(4)],
        &[Union(&[(NFS4_OK, &[Fixed(16)]), (NFS4ERR_CLID_INUSE, ADDRESS)], &[])],
    ),
    operation("SETCLIENTID_CONFIRM", &[Fixed(16)], STATUS),
    operation("VERIFY", ATTRIBUTES, STATUS),
    operation("WRITE", &[STATE, Fixed(12), Item], ok![Fixed(16)]),
    operation("RELEASE_LOCKOWNER", &[Fixed(8), ANY], STATUS),
    // Version 4.1.
    operation("BACKCHANNEL_CTL", &[Count, List(NO_LIMIT, CALLBACK_SECURITY)], STATUS),
    operation("BIND_CONN_TO_SESSION", &[Fixed(24)], ok![Fixed(24)]),
    operation(
        "EXCHANGE_ID",
        &[
            Fixed(8), ANY, Fixed(4),
            Union(&[
                (1, &[ANY_BITMAP, ANY_BITMAP]),
                (2, &[
                    ANY_BITMAP, ANY_BITMAP, List(NO_LIMIT, &[ANY]), List(NO_LIMIT, &[ANY]),
                    Fixed(8),
                ]),
            ], &[]),
            List(1, &[ANY, ANY, Fixed(12)]),
        ],
        ok![
            Fixed(16),
            // The handles of SSV are as many as the client asked for, which nobody does.
            Union(&[
                (1, PROTECTED_OPERATIONS),
                (2, &[BITMAP, BITMAP, Fixed(16), List(8, &[Opaque(128)])]),
            ], &[]),
            Fixed(8), LIMITED, LIMITED,
            List(1, &[LIMITED, LIMITED, Fixed(12)]),
        ],
    ),
    operation(
        "CREATE_SESSION",
        &[
            Fixed(16), COUNTS, READS, COUNTS, READS, Count,
            List(NO_LIMIT, CALLBACK_SECURITY),
        ],
        ok![Fixed(24), COUNTS, READS, COUNTS, READS],
    ),
    operation("DESTROY_SESSION", &[Fixed(16)], STATUS),
    operation("FREE_STATEID", &[STATE], STATUS),
    operation(
        "GET_DIR_DELEGATION",
        &[Fixed(4), ANY_BITMAP, Fixed(24), ANY_BITMAP, ANY_BITMAP],
        ok![Union(&[(0, &[Fixed(8), STATE, BITMAP, BITMAP, BITMAP])], &[Fixed(4)])],
    ),
    operation(
        "GETDEVICEINFO",
        &[Fixed(20), Count, ANY_BITMAP],
        &[Union(
            &[
                (NFS4_OK, &[UpToCount(16, 1, &[Fixed(4), ANY]), BITMAP]),
                (NFS4ERR_TOOSMALL, &[Fixed(4)]),
            ],
            &[],
        )],
    ),
    operation(
        "GETDEVICELIST",
        &[Fixed(4), Count, Fixed(16)],
        ok![Fixed(16), ListOfCount(&[Fixed(16)]), Fixed(4)],
    ),
    operation(
        "LAYOUTCOMMIT",
        &[
            Fixed(20), STATE, Union(&[(1, &[Fixed(8)])], &[]), Union(&[(1, &[Fixed(12)])], &[]),
            Fixed(4), ANY,
        ],
        ok![Union(&[(1, &[Fixed(8)])], &[])],
    ),
    operation(
        "LAYOUTGET",
        &[Fixed(12 + 24), STATE, Count],
        &[Union(
            &[
                (NFS4_OK, &[
                    Fixed(4), STATE, UpToCount(64, 1, &[List(NO_LIMIT, &[Fixed(24), ANY])]),
                ]),
                (NFS4ERR_LAYOUTTRYLATER, &[Fixed(4)]),
            ],
            &[],
        )],
    ),
    operation(
        "LAYOUTRETURN",
        &[Fixed(12), Union(&[(1, &[Fixed(16), STATE, ANY])], &[])],
        ok![Union(&[(1, &[STATE])], &[])],
    ),
    operation("SECINFO_NO_NAME", &[Fixed(4)], ok![SECURITY]),
    operation("SEQUENCE", &[Fixed(16 + 16)], ok![Fixed(16 + 20)]),
    operation("SET_SSV", &[ANY, ANY], ok![Opaque(128)]),
    operation("TEST_STATEID", &[CountedList(&[STATE])], ok![ListOfCount(&[Fixed(4)])]),
    operation(
        "WANT_DELEGATION",
        &[Fixed(4), Union(&[(1, &[Fixed(4)])], &[])],
        ok![DELEGATION],
    ),
    operation("DESTROY_CLIENTID", &[Fixed(8)], STATUS),
    operation("RECLAIM_COMPLETE", &[Fixed(4)], STATUS),
    // Version 4.2.
    operation("ALLOCATE", &[STATE, Fixed(16)], STATUS),
    operation(
        "COPY",
        &[STATE, STATE, Fixed(24 + 8), List(NO_LIMIT, &[LOCATION])],
        &[Union(
            &[
                (NFS4_OK, &[CALLBACK_ID, WRITTEN, Fixed(8)]),
                (NFS4ERR_OFFLOAD_NO_REQS, &[Fixed(8)]),
            ],
            &[],
        )],
    ),
    operation(
        "COPY_NOTIFY",
        &[STATE, LOCATION],
        ok![Fixed(12), STATE, List(NO_LIMIT, &[LOCATION])],
    ),
    operation("DEALLOCATE", &[STATE, Fixed(16)], STATUS),
    operation("IO_ADVISE", &[STATE, Fixed(16), ANY_BITMAP], ok![BITMAP]),
    operation("LAYOUTERROR", &[Fixed(16), STATE, List(NO_LIMIT, &[Fixed(24)])], STATUS),
    operation("LAYOUTSTATS", &[Fixed(16), STATE, Fixed(32 + 16 + 4), ANY], STATUS),
    operation("OFFLOAD_CANCEL", &[STATE], STATUS),
    operation("OFFLOAD_STATUS", &[STATE], ok![Fixed(8), Words(1)]),
    // Nothing of it is DDP-eligible (nfs-ulb-v2-06, section 5.1.1).
    operation(
        "READ_PLUS",
        &[STATE, Fixed(8), Count],
        ok![UpToCount(READ_PLUS_MORE, 2, &[Fixed(4), List(NO_LIMIT, CONTENT)])],
    ),
    operation("SEEK", &[STATE, Fixed(12)], ok![Fixed(12)]),
    operation(
        "WRITE_SAME",
        &[STATE, Fixed(4 + 44), ANY],
        ok![CALLBACK_ID, WRITTEN],
    ),
    operation("CLONE", &[STATE, STATE, Fixed(24)], STATUS),
    // Extended attributes.
    operation("GETXATTR", &[ANY], ok![ANY]),
    operation("SETXATTR", &[Fixed(4), ANY, ANY], ok![CHANGE]),
    operation(
        "LISTXATTRS",
        &[Fixed(8), Count],
        ok![UpToCount(16, 1, &[Fixed(8), List(NO_LIMIT, &[ANY]), Fixed(4)])],
    ),
    operation("REMOVEXATTR", &[ANY], ok![CHANGE]),
];

/// An `open_delegation4` in arguments.
const PUSHED: Field = Union(
    &[
        (1, &[STATE, Fixed(4 + 12), ANY]),
        (2, &[STATE, Fixed(4 + 12 + 12), ANY]),
        (3, &[Union(&[(1, &[Fixed(4)]), (2, &[Fixed(4)])], &[])]),
        (4, &[STATE, Fixed(4 + 12), ANY]),
        (5, &[STATE, Fixed(4 + 12 + 12), ANY]),
    ],
    &[],
);
/// A counted array of `notify4`.
const NOTIFICATIONS: Field = List(NO_LIMIT, &[ANY_BITMAP, ANY]);

#[rustfmt::skip]
static CALLBACKS: [Operation; 13] = [
    operation("CB_GETATTR", &[ANY, AttributesAsked], ok![Attributes]),
    operation("CB_RECALL", &[STATE, Fixed(4), ANY], STATUS),
    operation(
        "CB_LAYOUTRECALL",
        &[Fixed(12), Union(&[(1, &[ANY, Fixed(16), STATE]), (2, &[Fixed(16)])], &[])],
        STATUS,
    ),
    operation("CB_NOTIFY", &[STATE, ANY, NOTIFICATIONS], STATUS),
    operation("CB_PUSH_DELEG", &[ANY, PUSHED], STATUS),
    operation("CB_RECALL_ANY", &[Fixed(4), ANY_BITMAP], STATUS),
    operation("CB_RECALLABLE_OBJ_AVAIL", &[Fixed(4), ANY_BITMAP], STATUS),
    operation("CB_RECALL_SLOT", &[Fixed(4)], STATUS),
    operation(
        "CB_SEQUENCE",
        &[Fixed(16 + 16), List(NO_LIMIT, &[Fixed(16), List(NO_LIMIT, &[Fixed(8)])])],
        ok![Fixed(16 + 16)],
    ),
    operation("CB_WANTS_CANCELLED", &[Fixed(8)], STATUS),
    operation("CB_NOTIFY_LOCK", &[ANY, Fixed(8), ANY], STATUS),
    operation("CB_NOTIFY_DEVICEID", &[NOTIFICATIONS], STATUS),
    operation(
        "CB_OFFLOAD",
        &[ANY, STATE, Union(&[(NFS4_OK, WRITE_RESPONSE)], &[Fixed(8)])],
        STATUS,
    ),
];

/// Returns an operation of COMPOUND.
pub(crate) fn forward(number: u32) -> Option<&'static Operation> {
    OPERATIONS.get(number.checked_sub(FIRST)? as usize)
}

/// Returns an operation of CB_COMPOUND.
pub(crate) fn callback(number: u32) -> Option<&'static Operation> {
    CALLBACKS.get(number.checked_sub(FIRST)? as usize)
}

/// The number that stands in results for an operation that the server does not know. Its results
/// are the status.
pub(crate) const ILLEGAL: u32 = 10_044;

/// Numbers of the operations that the binding looks into.
pub(crate) mod number {
    pub(crate) const READ: u32 = 25;
    pub(crate) const READLINK: u32 = 27;
    pub(crate) const BACKCHANNEL_CTL: u32 = 40;
    pub(crate) const CREATE_SESSION: u32 = 43;
    pub(crate) const DESTROY_SESSION: u32 = 44;
    pub(crate) const SEQUENCE: u32 = 53;
    pub(crate) const CB_SEQUENCE: u32 = 11;
}

/// Returns whether the results of an operation of COMPOUND have a DDP-eligible item.
pub(crate) fn has_item(number: u32) -> bool {
    matches!(number, number::READ | number::READLINK)
}

/// Returns whether executing an operation of version 4.0 twice has the same effect as executing it
/// once.
pub(crate) fn is_idempotent(number: u32) -> bool {
    // ACCESS, GETATTR, GETFH, LOCKT, LOOKUP, LOOKUPP, NVERIFY; PUTFH, PUTPUBFH, PUTROOTFH, READ,
    // READDIR, READLINK; RENEW, RESTOREFH, SAVEFH, SECINFO, VERIFY.
    matches!(number, 3 | 9 | 10 | 13 | 15..=17 | 22..=27 | 30..=33 | 37)
}
