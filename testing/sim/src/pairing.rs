//! Features of both sides of a connection.

use std::fmt;
use std::str::FromStr;

use rpc_transport::rdma::{RoundTripFeatures, UnknownFeature, Ways};

/// What either side does to spare round trips. Printed and read as `SERVER/CLIENT`, each as in
/// `-o features=`: `ddp+cont/none`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pairing {
    /// The server.
    pub server: RoundTripFeatures,
    /// Its clients.
    pub client: RoundTripFeatures,
}

impl Pairing {
    /// Pairings there are where each side has each feature or has it not.
    pub const COUNT: usize = 16;

    /// One of these, by its number. They repeat after [`Pairing::COUNT`].
    #[must_use]
    pub fn nth(number: u64) -> Self {
        Self {
            server: features(number / 4),
            client: features(number),
        }
    }

    /// Its number below [`Pairing::COUNT`]; nothing where a side has half of a feature, which it
    /// sends and does not take, or the other way round.
    #[must_use]
    pub fn number(&self) -> Option<usize> {
        (0..Self::COUNT).find(|&number| Self::nth(number as u64) == *self)
    }
}

/// Each feature as a bit of the number says.
fn features(number: u64) -> RoundTripFeatures {
    let ways = |bit: u64| match number & bit {
        0 => Ways::NONE,
        _ => Ways::BOTH,
    };
    RoundTripFeatures {
        ddp: ways(1),
        cont: ways(2),
    }
}

impl fmt::Display for Pairing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.server, self.client)
    }
}

/// What a [`Pairing`] cannot be read from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownPairing {
    /// There are not two sides.
    #[error("{0:?} names no two sides: write SERVER/CLIENT, for instance ddp+cont/none")]
    Sides(String),
    /// A side has features that are not known.
    #[error(transparent)]
    Feature(#[from] UnknownFeature),
}

impl FromStr for Pairing {
    type Err = UnknownPairing;

    fn from_str(text: &str) -> Result<Self, UnknownPairing> {
        let sides = text
            .split_once('/')
            .filter(|(_, client)| !client.contains('/'));
        let (server, client) = sides.ok_or_else(|| UnknownPairing::Sides(text.to_owned()))?;
        Ok(Self {
            server: server.parse()?,
            client: client.parse()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pairing_has_a_number_and_is_read_as_it_is_printed() {
        for number in 0..Pairing::COUNT {
            let pairing = Pairing::nth(number as u64);
            assert_eq!(pairing.number(), Some(number));
            assert_eq!(pairing.to_string().parse(), Ok(pairing));
        }
        assert_eq!(Pairing::nth(0).to_string(), "none/none");
        assert_eq!(Pairing::nth(7).to_string(), "ddp/ddp+cont");
        assert_eq!(Pairing::nth(23), Pairing::nth(7));
        let half: Pairing = "ddp:send/cont".parse().unwrap();
        assert_eq!(half.number(), None);
        for wrong in ["", "ddp", "ddp/", "ddp/cont/none", "ddp/tcp", "/"] {
            assert!(wrong.parse::<Pairing>().is_err(), "{wrong}");
        }
    }
}
