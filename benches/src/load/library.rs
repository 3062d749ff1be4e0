//! Connections by this project's client library, for RPC-over-RDMA.

use std::time::Instant;

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt};
use nfs_binding::client::Nfs3;
use nfs_binding::proto::{FileHandle, HandleArgs, ReadArgs, Stable, Status, WriteArgs};
use rpc_transport::{Client, Runtime};
use rpcrdma_setup::access::Mounted;
use rpcrdma_setup::{Context, Failure};

use super::figures::Latency;
use super::op::Op;
use super::target::Target;
use super::worker::PATIENCE;

/// Connections of one thread to one server.
pub(super) struct LibraryConnections {
    runtime: Runtime,
    connections: Vec<Connection>,
    file: FileHandle,
    in_flight: usize,
}

struct Connection {
    nfs: Nfs3<Client>,
    /// What WRITE writes, in memory that the connection's device sends from without a copy.
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
        let connections = (0..count).map(|_| {
            let mounted = target.mount_with(&runtime)?;
            let copied = mounted
                .reached
                .pool()
                .concat(&[Bytes::copy_from_slice(data)]);
            Ok(Connection {
                nfs: Nfs3::new(mounted.reached.client.clone()),
                data: copied.context("no memory for the data of WRITE")?.freeze(),
                _mounted: mounted,
            })
        });
        let connections = connections.collect::<Result<_, Failure>>()?;
        Ok(Self {
            runtime,
            connections,
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
            let mut next = |connection| {
                serial += 1;
                self.call(connection, op, op.offset(serial), Instant::now())
            };
            for connection in &self.connections {
                for _ in 0..self.in_flight {
                    flying.push(next(connection));
                }
            }
            let mut calls = 0;
            while let Some((connection, started, result)) = flying.next().await {
                result?;
                let now = Instant::now();
                latency.record(now - started);
                calls += 1;
                if now < until {
                    flying.push(next(connection));
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
        connection: &'c Connection,
        op: Op,
        offset: u64,
        started: Instant,
    ) -> (&'c Connection, Instant, Result<(), Failure>) {
        let result = self.perform(connection, op, offset).await;
        (connection, started, result)
    }

    async fn perform(&self, connection: &Connection, op: Op, offset: u64) -> Result<(), Failure> {
        let Connection { nfs, data, .. } = connection;
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
