//! A second opinion on credits: what the messages on the wire say (RFC 8166, section 3.3.1).

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use rpcrdma_v1::Header;
use verbs::sim::{End, Happening};
use verbs::{Event, SendWr, Success};

/// A requester's account, kept from what it sends and takes.
#[derive(Debug)]
struct Account {
    outstanding: u32,
    granted: u32,
}

/// The accounts of all requesters.
#[derive(Debug, Default)]
pub(crate) struct Credits {
    accounts: BTreeMap<End, Account>,
}

impl Credits {
    /// Enters what a requester's host did. Returns what it must not have done.
    pub(crate) fn requester(&mut self, what: &Happening<'_>) -> Option<String> {
        match what {
            Happening::Posted(end, SendWr::Send { gather, .. }) => self.called(*end, gather),
            Happening::Taken(end, Event::Established { .. }) => {
                // Until the first reply says otherwise, there is one credit (section 3.3.2).
                let account = Account {
                    outstanding: 0,
                    granted: 1,
                };
                self.accounts.insert(*end, account);
                None
            }
            Happening::Taken(end, Event::Disconnected { .. }) => {
                self.accounts.remove(end);
                None
            }
            Happening::Taken(end, Event::Completion(completion)) => {
                let Ok(Success::Receive { buf, .. }) = &completion.result else {
                    return None;
                };
                let header = Header::decode(&Bytes::copy_from_slice(buf));
                let account = self.accounts.get_mut(end)?;
                if let Ok((header, _)) = header {
                    account.granted = header.credits.max(1);
                    account.outstanding = account.outstanding.saturating_sub(1);
                }
                None
            }
            _ => None,
        }
    }

    fn called(&mut self, end: End, gather: &[Bytes]) -> Option<String> {
        let mut bytes = BytesMut::new();
        for piece in gather {
            bytes.extend_from_slice(piece);
        }
        if let Err(error) = Header::decode(&bytes.freeze()) {
            return Some(format!("{end} sends a header that cannot be read: {error}"));
        }
        let account = self.accounts.get_mut(&end)?;
        account.outstanding += 1;
        let Account {
            outstanding,
            granted,
        } = *account;
        (outstanding > granted)
            .then(|| format!("{end} has {outstanding} calls outstanding, {granted} were granted"))
    }
}
