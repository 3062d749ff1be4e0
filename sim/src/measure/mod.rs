//! Measures the cost of calls without faults: of a single one, counted along the causal path of its
//! reply ([`measure`]), and of many, with several in flight ([`load`]).

mod copies;
mod copying;
mod grants;
mod ladder;
mod load;
mod setting;
mod single;
mod stage;

pub use self::copies::{Cache, Copied, CopyCosts, CopyRate};
pub use self::grants::Grants;
pub use self::ladder::ladder;
pub use self::load::{Load, Loaded, MOST_CLIENTS, load};
pub use self::setting::Setting;
pub use self::single::{Measured, consider, measure};
pub use self::stage::CannotMeasure;
