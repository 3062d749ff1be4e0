//! The use of placement and continuation on a connection, and the reasons for it.

use rpcrdma_ext_send_ddp::{ReceiveBufferStructure, RoundTripSupport};
use rpcrdma_ext_xchar::Characteristic;
use rpcrdma_extension::agreed::{
    CALL_TRANSMISSIONS, PLACED_HERE, PLACED_THERE, REPLY_TRANSMISSIONS, both,
};
use rpcrdma_extension::{AgreedFeatures, FeatureReason, FeatureValue};
use rpcrdma_v2::Side;

use crate::{RequestReceiveLimit, ResponseSendLimit, Transmit};

impl Transmit {
    pub(crate) fn list_agreed(&self, side: Side, agreed: &mut AgreedFeatures) {
        let (own, usable) = (self.config(), self.usable());
        let (ddp, cont) = (own.features.ddp, own.features.cont);
        let announced = |id: u32| match self.announced_ids.contains(&id) {
            true => FeatureReason::Peer,
            false => FeatureReason::NotAnnounced,
        };
        let up_to = |here: bool, limit: u32, id: u32| match here {
            true => (limit, announced(id)),
            false => (1, FeatureReason::Here),
        };
        let unknown = agreed.peer_unknown();
        let placed_there = both(
            ddp.send,
            usable.place,
            announced(ReceiveBufferStructure::ID),
        );
        let (placed_there, placed_here, calls, replies) = match (unknown, side) {
            (Some(why), _) => ((false, why), (false, why), (1, why), (1, why)),
            (None, Side::Client) => (
                placed_there,
                both(
                    ddp.receive,
                    usable.placed_replies,
                    announced(RoundTripSupport::ID),
                ),
                up_to(
                    cont.send,
                    usable.call_transmissions,
                    RequestReceiveLimit::ID,
                ),
                up_to(
                    cont.receive,
                    usable.reply_transmissions,
                    ResponseSendLimit::ID,
                ),
            ),
            // The client chooses the transfer mode of its calls and the limits of their replies.
            (None, Side::Server) => (
                placed_there,
                (ddp.receive, FeatureReason::Here),
                (own.max_call_transmissions(), FeatureReason::Here),
                (own.max_reply_transmissions(), FeatureReason::Here),
            ),
        };
        agreed.set(PLACED_THERE, placed_there);
        agreed.set(PLACED_HERE, placed_here);
        for (name, (most, why)) in [(CALL_TRANSMISSIONS, calls), (REPLY_TRANSMISSIONS, replies)] {
            agreed.set(name, (FeatureValue::UpTo(most), why));
        }
    }
}
