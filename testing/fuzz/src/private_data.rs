//! The connection manager's private data (RFC 8797).

use rpcrdma_v1::{Agreed, DEFAULT_INLINE, MAX_INLINE, PRIVATE_DATA_LEN, PrivateData};

/// Checks private data. The first byte divides the rest into the client's and the server's.
pub fn check(data: &[u8]) {
    let Some((&first, rest)) = data.split_first() else {
        return;
    };
    let (client, server) = rest.split_at(rest.len().min(usize::from(first)));
    let (client, server) = (find(client), find(server));
    let agreed = Agreed::new(client, server);
    let sizes = DEFAULT_INLINE..=MAX_INLINE;
    assert!(sizes.contains(&agreed.call_inline) && sizes.contains(&agreed.reply_inline));
    // Nobody sends more than the other receives, and nobody invalidates what was not allowed.
    let (client, server) = (client.unwrap_or_default(), server.unwrap_or_default());
    assert!(agreed.call_inline <= client.send_size().min(server.receive_size()));
    assert!(agreed.reply_inline <= server.send_size().min(client.receive_size()));
    let both = client.remote_invalidation() && server.remote_invalidation();
    assert_eq!(agreed.remote_invalidation, both);
}

fn find(bytes: &[u8]) -> Option<PrivateData> {
    let found = crate::within(0, || PrivateData::find(bytes))?;
    assert!(bytes.len() >= PRIVATE_DATA_LEN);
    let encoded = found.encode();
    assert_eq!(PrivateData::find(&encoded), Some(found));
    // As it came, but for flags that have no meaning.
    let same = |window: &[u8]| window[..5] == encoded[..5] && window[6..] == encoded[6..];
    assert!(bytes.windows(PRIVATE_DATA_LEN).any(same));
    // What follows it changes nothing: some transports pad.
    let mut padded = bytes.to_vec();
    padded.extend_from_slice(&[0; 4]);
    assert_eq!(PrivateData::find(&padded), Some(found));
    let sizes = (found.send_size(), found.receive_size());
    let made = PrivateData::new(sizes.0, sizes.1, found.remote_invalidation());
    assert_eq!(made, found);
    Some(found)
}
