//! How messages of the working group's version 2 are recognized, beside those of 2016 with the same
//! version number (version-two-07, section 4.3).

use rpcrdma_negotiation::{Beginning, Negotiable, Recognition, Version};
use rpcrdma_v2_wg::VERSION;

use super::super::v2::has_header_of_2016;
use super::VersionTwoWg;

/// RDMA2_ERR_INVAL_HTYPE, a number that 2016 does not have.
const INVALID_HEADER_TYPE: u32 = 4;

impl Negotiable for VersionTwoWg {
    fn version(&self) -> Version {
        Version::TWO_WG
    }

    /// A server that lacks the version of 2016 answers its messages like those of its own.
    fn recognize_first(&self, first: &Beginning<'_>) -> Recognition {
        match has_header_of_2016(first) {
            _ if first.fixed().version != VERSION || first.is_error() => Recognition::No,
            true => Recognition::Maybe,
            false => Recognition::Mine,
        }
    }

    fn is_asked_for(&self) -> bool {
        true
    }

    fn recognize_answer(&self, answer: &Beginning<'_>, to_question: bool) -> Recognition {
        let code = answer.error_code().filter(|_| to_question);
        match answer.is_error() {
            _ if answer.fixed().version != VERSION => Recognition::No,
            true if code == Some(INVALID_HEADER_TYPE) => Recognition::Mine,
            true => Recognition::Maybe,
            false if has_header_of_2016(answer) => Recognition::No,
            false => Recognition::Mine,
        }
    }
}
