//! An independent check of credits, from the messages on the wire (RFC 8166, section 3.3.1).

use std::collections::BTreeMap;

use rdma_sim::End;

/// The credit account of a requester, updated with the messages that it sends and takes.
#[derive(Debug)]
struct Account {
    /// The XIDs of outstanding calls, each with the number of transmissions that it was sent in.
    outstanding: Vec<(u32, u32)>,
    granted: u32,
    /// The grant when the last call was started. The further transmissions of a call are posted
    /// together with the first. If the send queue is full they wait there, so a grant that is
    /// lowered meanwhile comes too late for them.
    at_its_beginning: u32,
}

/// The accounts of all requesters: of clients, and of servers that call clients (RFC 8167, section
/// 4.1).
#[derive(Debug, Default)]
pub(crate) struct Credits {
    accounts: BTreeMap<End, Account>,
}

impl Credits {
    /// Records that a connection was established.
    pub(crate) fn opened(&mut self, end: End) {
        // Until the first reply, there is one credit (section 3.3.2).
        let account = Account {
            outstanding: Vec::new(),
            granted: 1,
            at_its_beginning: 1,
        };
        self.accounts.insert(end, account);
    }

    /// Records that a connection has ended.
    pub(crate) fn over(&mut self, end: End) {
        self.accounts.remove(&end);
    }

    /// Records that the requester sends or takes a message of an extension that is not known here. It may
    /// carry several calls or replies, so from now on nobody knows which calls are outstanding.
    pub(crate) fn unknown(&mut self, end: End) {
        self.accounts.remove(&end);
    }

    /// Records that a message with a grant of `credits` was taken. It answers the call with this
    /// XID, if there is one.
    pub(crate) fn answered(&mut self, end: End, xid: u32, credits: u32) {
        let Some(account) = self.accounts.get_mut(&end) else {
            return;
        };
        // A grant of 0 would be a deadlock, so it counts as 1.
        account.granted = credits.max(1);
        let mut calls = account.outstanding.iter();
        if let Some(at) = calls.position(|&(call, _)| call == xid) {
            account.outstanding.remove(at);
        }
    }

    /// Records that a call is sent. Returns a violation if the requester exceeds its grant.
    pub(crate) fn called(&mut self, end: End, xid: u32) -> Option<String> {
        let account = self.accounts.get_mut(&end)?;
        account.outstanding.push((xid, 1));
        account.at_its_beginning = account.granted;
        account.overdrawn(end)
    }

    /// Records that a further transmission of a call is sent. Returns a violation if the requester
    /// exceeds its grant.
    pub(crate) fn continued(&mut self, end: End, xid: u32) -> Option<String> {
        let account = self.accounts.get_mut(&end)?;
        match account.outstanding.last_mut() {
            Some((call, messages)) if *call == xid => *messages += 1,
            _ => {
                return Some(format!(
                    "{end} continues {xid:#x}, which is not the last call"
                ));
            }
        }
        account.overdrawn(end)
    }
}

impl Account {
    fn overdrawn(&self, end: End) -> Option<String> {
        let calls: u32 = self.outstanding.iter().map(|(_, messages)| messages).sum();
        let granted = self.granted.max(self.at_its_beginning);
        (calls > granted)
            .then(|| format!("{end} has {calls} calls outstanding, {granted} were granted"))
    }
}
