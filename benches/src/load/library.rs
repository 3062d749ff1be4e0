//! Connections by this project's client library, for RPC-over-RDMA.

use std::time::Instant;

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt};
use nfs_binding::client::Nfs3;
use nfs_binding::proto::{FileHandle, HandleArgs, ReadArgs, Stable, Status, WriteArgs};
use rpc_transport::{Client, Runtime};
use rpcrdma_setup::access::Mounted;
use rpcrdma_setup::mount_options::MAX_NCONNECT;
use rpcrdma_setup::{Context, Failure};

use super::PATIENCE;
use super::figures::Latency;
use super::op::Op;
use super::target::Target;

/// Connections of one thread to one server.
pub(super) struct LibraryConnections {
    runtime: Runtime,
    clients: Vec<Group>,
    file: FileHandle,
    in_flight: usize,
}

/// Connections that share a device. Calls go over each in turn, so that on average as many are in
/// flight on one as on another.
struct Group {
    nfs: Nfs3<Client>,
    connections: u32,
    /// The data of WRITEs, in memory that the device sends from without a copy.
    data: Bytes,
    /// Keeps the transport.
    _mounted: Mounted,
}

impl LibraryConnections {
    /// Connects `count` times to the server of `target`.
    pub(super) fn new(
        target: &Target,
        count: usize,
        in_flight: usize,
        file: FileHandle,
        data: &[u8],
    ) -> Result<Self, Failure> {
        let runtime = Runtime::new().context("cannot set up polling")?;
        let mut left = u32::try_from(count).context("--connections")?;
        let mut clients = Vec::new();
        while left > 0 {
            let connections = left.min(MAX_NCONNECT);
            left -= connections;
            let mounted = target.mount_with(&runtime, connections)?;
            let pool = mounted.reached.pool();
            let copied = pool.concat(&[Bytes::copy_from_slice(data)]);
            clients.push(Group {
                nfs: Nfs3::new(mounted.reached.client.clone()),
                connections,
                data: copied.context("no memory for the data of WRITE")?.freeze(),
                _mounted: mounted,
            });
        }
        Ok(Self {
            runtime,
            clients,
            file,
            in_flight,
        })
    }

    /// Makes calls of `op` until `until`, and waits for the last replies. Returns the number of
    /// calls.
    ///
    /// # Errors
    /// A call failed, or the server does not answer.
    pub(super) fn run(
        &self,
        op: Op,
        until: Instant,
        latency: &mut Latency,
    ) -> Result<u64, Failure> {
        let limit = until.saturating_duration_since(Instant::now()) + PATIENCE;
        let calls = async {
            let mut serial = 0;
            let mut flying = FuturesUnordered::new();
            let mut next = |client| {
                serial += 1;
                self.call(client, op, op.offset(serial), Instant::now())
            };
            for client in &self.clients {
                for _ in 0..client.connections as usize * self.in_flight {
                    flying.push(next(client));
                }
            }
            let mut calls = 0;
            while let Some((client, started, result)) = flying.next().await {
                result?;
                let now = Instant::now();
                latency.record(now - started);
                calls += 1;
                if now < until {
                    flying.push(next(client));
                }
            }
            Ok(calls)
        };
        let ended = self.runtime.block_on(self.runtime.timeout(limit, calls));
        ended.map_err(|_| {
            let text = format!("{}: no reply for {PATIENCE:?}", op.procedure());
            Failure::Work(text)
        })?
    }

    async fn call<'c>(
        &self,
        client: &'c Group,
        op: Op,
        offset: u64,
        started: Instant,
    ) -> (&'c Group, Instant, Result<(), Failure>) {
        let result = self.perform(client, op, offset).await;
        (client, started, result)
    }

    async fn perform(&self, client: &Group, op: Op, offset: u64) -> Result<(), Failure> {
        let Group { nfs, data, .. } = client;
        let (file, count) = (self.file, op.size());
        let refused = |status: Status| Failure::Work(format!("{}: {status}", op.procedure()));
        let moved = match op {
            Op::Getattr => {
                let called = nfs.getattr(&HandleArgs { object: file }).await;
                let result = called.context(op.procedure())?;
                result.map_err(|failed| refused(failed.status))?;
                0
            }
            Op::Read => {
                let args = ReadArgs {
                    file,
                    offset,
                    count,
                };
                let result = nfs.read(&args).await.context(op.procedure())?;
                let ok = result.map_err(|failed| refused(failed.status))?;
                ok.data.0.len() as u64
            }
            Op::Write => {
                let args = WriteArgs {
                    file,
                    offset,
                    count,
                    stable: Stable::Unstable,
                    data: data.clone().into(),
                };
                let result = nfs.write(&args).await.context(op.procedure())?;
                u64::from(result.map_err(|failed| refused(failed.status))?.count)
            }
        };
        match moved == u64::from(count) {
            true => Ok(()),
            false => {
                let text = format!("{}: {moved} bytes moved of {count}", op.procedure());
                Err(Failure::Work(text))
            }
        }
    }
}
