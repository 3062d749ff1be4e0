//! The features of both sides of a connection.

use std::fmt;
use std::str::FromStr;

use rpcrdma_protocols::{Directions, RoundTripFeatures, UnknownFeature};

/// The features for fewer round trips of both sides. Formatted and parsed as `SERVER/CLIENT`, each
/// as in `-o features=`: `ddp+cont/none`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pairing {
    /// The server's features.
    pub server: RoundTripFeatures,
    /// The clients' features.
    pub client: RoundTripFeatures,
}

impl Pairing {
    /// The number of combinations in which each side has or does not have each feature.
    pub const COUNT: usize = 16;

    /// Returns a combination by its number. They repeat after [`Pairing::COUNT`].
    #[must_use]
    pub fn nth(number: u64) -> Self {
        Self {
            server: features(number / 4),
            client: features(number),
        }
    }

    /// Returns the number below [`Pairing::COUNT`], or `None` if a side has half of a feature: it
    /// only sends or only receives.
    #[must_use]
    pub fn number(&self) -> Option<usize> {
        (0..Self::COUNT).find(|&number| Self::nth(number as u64) == *self)
    }
}

/// Converts the bits of a number to features.
fn features(number: u64) -> RoundTripFeatures {
    let ways = |bit: u64| match number & bit {
        0 => Directions::NONE,
        _ => Directions::BOTH,
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

/// The reason why a text is not a [`Pairing`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownPairing {
    /// The text does not have two sides.
    #[error("{0:?} does not have two sides: write SERVER/CLIENT, for instance ddp+cont/none")]
    Sides(String),
    /// A side has unknown features.
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
