//! An example of an RPC program of one's own: a store of values by key, with the calls PUT and GET.
//! A value has up to 64 KiB, and is a DDP-eligible item of the call or reply (RFC 8166, section 6.1): each
//! version places it in its own way, which a program does not see. A GET may wait for its value.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use onc_rpc::{AcceptStatus, Encoder, Message};
use rpc_transport::{
    Call, ErrorReply, Procedures, ProgramVersions, Reply, ReplyRoom, Request, Service,
    ServiceOutcome,
};
use rpcrdma_programs::workload::{Calls, Failed, Prepare, RpcClient as _, Server, Workload};

/// The number is from the range that needs no assignment (RFC 5531, section 8.3).
const PROGRAM: ProgramVersions = ProgramVersions::only(0x2000_00d0, 1);
const PUT: u32 = 1;
const GET: u32 = 2;
/// The maximum length of a value in bytes; keys have up to 256.
pub const MAX_VALUE: u32 = 64 << 10;
const MAX_KEY: u32 = 256;
/// The maximum number of values, for the memory that they take, and the maximum time of a GET.
const MAX_VALUES: usize = 1 << 14;
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Returns the call that stores a value. Its result is whether there was room.
pub fn put(key: &str, value: Bytes) -> Call {
    let mut args = Encoder::new();
    args.string(key).bulk(value);
    Call::new(PROGRAM, PUT, args.finish(), ReplyRoom::new(4, []))
}

/// Returns the call that gets a value of up to `most` bytes, for which the service waits as long as this.
/// Its results are whether there is one, and the value.
pub fn get(key: &str, most: u32, wait: Duration) -> Call {
    let mut args = Encoder::new();
    let millis = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX);
    args.string(key).u32(millis);
    Call::new(PROGRAM, GET, args.finish(), ReplyRoom::new(8, [most]))
}

/// The values, which the services of all threads of a server share.
#[derive(Debug, Default)]
struct Store {
    values: Mutex<HashMap<Bytes, Bytes>>,
    added: Condvar,
}

impl Store {
    /// Stores a value, if there is room. Returns the results of the call.
    fn put(&self, key: Bytes, value: Bytes) -> Message {
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = values.len() < MAX_VALUES || values.contains_key(&key);
        if has_room {
            values.insert(key, value);
            self.added.notify_all();
        }
        let mut results = Encoder::new();
        results.bool(has_room);
        results.finish()
    }

    /// Waits for the value of a key, on a worker if it takes time. Returns the results of the call.
    fn get(&self, key: &Bytes, wait: Duration) -> Message {
        let values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let lacks = |values: &mut HashMap<_, _>| !values.contains_key(key);
        let waited = self.added.wait_timeout_while(values, wait, lacks);
        let (values, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let mut results = Encoder::new();
        match values.get(key) {
            Some(value) => results.bool(true).bulk(value.clone()),
            None => results.bool(false),
        };
        results.finish()
    }

    fn execute(self: &Arc<Self>, request: &Request) -> Result<ServiceOutcome, ErrorReply> {
        let mut args = request.args();
        let results = match request.proc {
            PUT => {
                // Copied, so that what is stored takes no memory of the connection.
                let key = args.opaque(MAX_KEY)?.to_vec();
                let value = args.bulk(MAX_VALUE)?.pieces().concat();
                args.finish()?;
                self.put(key.into(), value.into())
            }
            GET => {
                let key = Bytes::copy_from_slice(&args.opaque(MAX_KEY)?);
                let wait = Duration::from_millis(args.u32()?.into()).min(MAX_WAIT);
                args.finish()?;
                if !wait.is_zero() {
                    let store = Arc::clone(self);
                    let job = move || Ok(store.get(&key, wait));
                    return Ok(ServiceOutcome::Later(Box::new(job)));
                }
                self.get(&key, wait)
            }
            _ => return Err(ErrorReply::Accepted(AcceptStatus::ProcUnavail)),
        };
        Ok(ServiceOutcome::Done(Ok(results)))
    }
}

/// Calls with values of one size: `kv-put`, `kv-get`, and `kv`, which are both by turns. Each client has a
/// key of its own.
#[derive(Clone, Debug, Default)]
pub struct Kv {
    name: &'static str,
    value: Bytes,
    key: String,
    store: Arc<Store>,
}

impl Kv {
    /// Returns the workloads. Their services share the values.
    pub fn all() -> [Self; 3] {
        let kv = Self::default().with(8 << 10);
        ["kv", "kv-put", "kv-get"].map(|name| Self { name, ..kv.clone() })
    }

    fn with(&self, size: u32) -> Self {
        let mut sized = self.clone();
        sized.value = vec![0x6b; size as usize].into();
        sized
    }

    fn is_put(&self, number: u64) -> bool {
        self.name == "kv-put" || self.name == "kv" && number.is_multiple_of(2)
    }
}

impl Workload for Kv {
    fn name(&self) -> &'static str {
        self.name
    }

    fn size(&self) -> Option<u32> {
        Some(self.value.len() as u32)
    }

    fn sized(&self, size: u32) -> Option<Arc<dyn Workload>> {
        (size <= MAX_VALUE).then(|| Arc::new(self.with(size)) as _)
    }

    fn service(&self) -> Option<Box<dyn Service>> {
        let store = Arc::clone(&self.store);
        let service = Procedures::new(PROGRAM, move |request| store.execute(request));
        // A PUT that is executed again would undo one that came in between.
        Some(Box::new(service.remembering(&[PUT])))
    }

    fn prepare<'a>(&'a self, server: Server<'a>) -> Prepare<'a> {
        let mut calls = self.clone();
        calls.key = format!("{}-{}-{}", self.name, self.value.len(), server.client());
        Box::pin(async move {
            let stored = server.call(put(&calls.key, calls.value.clone())).await;
            stored.map_err(|error| Failed::new(calls.name, error))?;
            Ok(Box::new(calls) as Box<dyn Calls>)
        })
    }
}

impl Calls for Kv {
    fn name(&self) -> &'static str {
        self.name
    }

    fn call(&self, number: u64) -> Call {
        match self.is_put(number) {
            true => put(&self.key, self.value.clone()),
            false => get(&self.key, self.value.len() as u32, Duration::ZERO),
        }
    }

    fn check(&self, number: u64, reply: &Reply) -> Result<(), Failed> {
        let mut results = reply.results();
        let done = results.bool();
        let len = match self.is_put(number) {
            true => Ok(self.value.len()),
            false => results.bulk(MAX_VALUE).map(|value| value.len()),
        };
        match done == Ok(true) && len == Ok(self.value.len()) {
            true => Ok(()),
            false => Err(Failed::new(self.name, "refused, or not the value")),
        }
    }
}
