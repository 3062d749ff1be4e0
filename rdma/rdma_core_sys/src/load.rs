//! `libibverbs` and `librdmacm`, loaded when they are first needed.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::cm::*;
use super::verbs::*;

/// File name of the verbs library for its stable ABI.
pub const LIBIBVERBS: &str = "libibverbs.so.1";
/// File name of the connection manager's library.
pub const LIBRDMACM: &str = "librdmacm.so.1";

/// The reason why the libraries cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A library does not exist or cannot be loaded.
    #[error(
        "cannot load {library}: {reason} (packages libibverbs1, ibverbs-providers, librdmacm1)"
    )]
    Library {
        /// File name of the library.
        library: &'static str,
        /// Error text of the dynamic linker.
        reason: String,
    },
    /// A library lacks a function because it is too old.
    #[error("{library} has no function {symbol}: it is too old")]
    Symbol {
        /// File name of the library.
        library: &'static str,
        /// Name of the function.
        symbol: &'static str,
    },
}

/// Declares a table of a library's functions, and the function that fills it.
macro_rules! functions {
    ($(#[$doc:meta])* $table:ident of $library:ident: $(
        fn $name:ident($($arg:ty),* $(,)?) $(-> $ret:ty)?;
    )*) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $table { $(pub $name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)* }

        impl $table {
            fn load(library: &Library) -> Result<Self, LoadError> {
                Ok(Self { $($name: {
                    // SAFETY: the type is the function's prototype in the library's header of
                    // the ABI version that the file name names, which never changes. The address
                    // stays valid because the library is never unloaded (`library`).
                    let found = unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) };
                    *found.map_err(|_| LoadError::Symbol {
                        library: $library,
                        symbol: stringify!($name),
                    })?
                },)* })
            }
        }
    };
}

functions! {
    /// Functions of `libibverbs` that are not inline in the header.
    Verbs of LIBIBVERBS:
    fn ibv_get_device_list(*mut c_int) -> *mut *mut ibv_device;
    fn ibv_free_device_list(*mut *mut ibv_device);
    fn ibv_open_device(*mut ibv_device) -> *mut ibv_context;
    fn ibv_close_device(*mut ibv_context) -> c_int;
    fn ibv_query_device(*mut ibv_context, *mut ibv_device_attr) -> c_int;
    fn ibv_query_port(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
    fn ibv_get_async_event(*mut ibv_context, *mut ibv_async_event) -> c_int;
    fn ibv_ack_async_event(*mut ibv_async_event);
    fn ibv_alloc_pd(*mut ibv_context) -> *mut ibv_pd;
    fn ibv_dealloc_pd(*mut ibv_pd) -> c_int;
    fn ibv_reg_mr(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
    fn ibv_dereg_mr(*mut ibv_mr) -> c_int;
    fn ibv_create_comp_channel(*mut ibv_context) -> *mut ibv_comp_channel;
    fn ibv_destroy_comp_channel(*mut ibv_comp_channel) -> c_int;
    fn ibv_create_cq(
        *mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int,
    ) -> *mut ibv_cq;
    fn ibv_destroy_cq(*mut ibv_cq) -> c_int;
    fn ibv_get_cq_event(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
    fn ibv_ack_cq_events(*mut ibv_cq, c_uint);
    fn ibv_create_srq(*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq;
    fn ibv_modify_srq(*mut ibv_srq, *mut ibv_srq_attr, c_int) -> c_int;
    fn ibv_destroy_srq(*mut ibv_srq) -> c_int;
    fn ibv_modify_qp(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
    fn ibv_destroy_qp(*mut ibv_qp) -> c_int;
    fn ibv_wc_status_str(c_int) -> *const c_char;
}

functions! {
    /// Functions of `librdmacm`.
    Cm of LIBRDMACM:
    fn rdma_get_devices(*mut c_int) -> *mut *mut ibv_context;
    fn rdma_free_devices(*mut *mut ibv_context);
    fn rdma_create_event_channel() -> *mut rdma_event_channel;
    fn rdma_destroy_event_channel(*mut rdma_event_channel);
    fn rdma_create_id(
        *mut rdma_event_channel, *mut *mut rdma_cm_id, *mut c_void, c_int,
    ) -> c_int;
    fn rdma_destroy_id(*mut rdma_cm_id) -> c_int;
    fn rdma_migrate_id(*mut rdma_cm_id, *mut rdma_event_channel) -> c_int;
    fn rdma_bind_addr(*mut rdma_cm_id, *const sockaddr_storage) -> c_int;
    fn rdma_resolve_addr(
        *mut rdma_cm_id, *const sockaddr_storage, *const sockaddr_storage, c_int,
    ) -> c_int;
    fn rdma_resolve_route(*mut rdma_cm_id, c_int) -> c_int;
    fn rdma_create_qp(*mut rdma_cm_id, *mut ibv_pd, *mut ibv_qp_init_attr) -> c_int;
    fn rdma_connect(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
    fn rdma_listen(*mut rdma_cm_id, c_int) -> c_int;
    fn rdma_accept(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
    fn rdma_reject(*mut rdma_cm_id, *const c_void, u8) -> c_int;
    fn rdma_notify(*mut rdma_cm_id, c_int) -> c_int;
    fn rdma_disconnect(*mut rdma_cm_id) -> c_int;
    fn rdma_get_cm_event(*mut rdma_event_channel, *mut *mut rdma_cm_event) -> c_int;
    fn rdma_ack_cm_event(*mut rdma_cm_event) -> c_int;
}

/// The function tables of both libraries.
#[derive(Clone, Copy)]
pub struct Libraries {
    /// `libibverbs`
    pub verbs: Verbs,
    /// `librdmacm`
    pub cm: Cm,
}

fn open(name: &'static str) -> Result<Library, LoadError> {
    // SAFETY: loading runs the library's initialisers, which also run in every program that is
    // linked with one of these two libraries.
    let opened = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL) };
    opened.map_err(|error| LoadError::Library {
        library: name,
        reason: error.to_string(),
    })
}

/// Returns the libraries, which are loaded at the first call and never unloaded, because providers
/// have threads and addresses of their own.
///
/// # Errors
/// [`LoadError`] if a library or one of its functions is missing.
pub fn library() -> Result<&'static Libraries, LoadError> {
    static LOADED: OnceLock<Result<Libraries, LoadError>> = OnceLock::new();
    let loaded = LOADED.get_or_init(|| {
        let (verbs, cm) = (open(LIBIBVERBS)?, open(LIBRDMACM)?);
        let tables = Libraries {
            verbs: Verbs::load(&verbs)?,
            cm: Cm::load(&cm)?,
        };
        std::mem::forget((verbs, cm));
        Ok(tables)
    });
    loaded.as_ref().map_err(Clone::clone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_named_with_its_packages() {
        let error = open("libno-such-thing.so.1")
            .err()
            .map(|error| error.to_string());
        let error = error.unwrap_or_default();
        assert!(error.contains("libno-such-thing.so.1"), "{error}");
        assert!(error.contains("librdmacm1"), "{error}");
    }

    #[test]
    fn an_old_library_is_reported_with_the_missing_function() {
        // The C library always exists, and has none of these functions.
        let library = open("libc.so.6").expect("the C library");
        let missing = Verbs::load(&library).err();
        let expected = LoadError::Symbol {
            library: LIBIBVERBS,
            symbol: "ibv_get_device_list",
        };
        assert_eq!(missing, Some(expected));
    }
}
