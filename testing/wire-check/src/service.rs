//! The service of the scenario's server.

use std::sync::Arc;

use nfs_binding::fs::MemoryFs;
use nfs_binding::server::{Export, ExportOptions, HandleKey, NfsServer};
use rpc_transport::Service;

use crate::error::Error;

/// The path that clients mount.
pub(crate) const EXPORT: &str = "/wire";
/// The size of the file system, bytes.
const LIMIT: u64 = 16 << 20;

/// Returns NFS with a memory file system.
pub(crate) fn nfs() -> Result<Box<dyn Service>, Error> {
    let backend = MemoryFs::new(LIMIT).map_err(Error::ours("a file system"))?;
    let export = Export {
        path: EXPORT.into(),
        backend: Arc::new(backend),
        options: ExportOptions::for_server(false),
    };
    let key = HandleKey::random().map_err(Error::ours("a key for file handles"))?;
    let server = NfsServer::new(vec![export], key).map_err(Error::ours("an NFS server"))?;
    Ok(Box::new(server))
}
