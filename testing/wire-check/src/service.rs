//! What is served.

use std::sync::Arc;

use nfs_binding::fs::MemoryFs;
use nfs_binding::server::{Export, ExportOptions, HandleKey, NfsServer};
use rpc_transport::Service;

use crate::error::Error;

/// What clients mount.
pub(crate) const EXPORT: &str = "/wire";
/// Bytes that the file system may hold.
const LIMIT: u64 = 16 << 20;

/// NFS over a file system in memory.
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
