//! Values that accompany a message inside a process, and are not on the wire.

use std::any::Any;
use std::fmt;
use std::iter;
use std::sync::Arc;

/// Values of any types that accompany a [`Message`](crate::Message) from layer to layer, and that the
/// layers in between do not know. None is sent: an extension of the transport may put them into its own
/// header, and attach them to the message at the other end.
///
/// A message without such values allocates nothing for them. Clones share them.
///
/// ```
/// use onc_rpc::Message;
///
/// #[derive(Debug, PartialEq)]
/// struct Deadline(u32);
///
/// let mut call = Message::default();
/// call.extras_mut().insert(Deadline(7));
/// assert_eq!(call.extras().get(), Some(&Deadline(7)));
/// assert_eq!(call.extras().get::<u32>(), None);
/// ```
#[derive(Clone, Default)]
pub struct Extras(Option<Arc<Extra>>);

struct Extra {
    value: Box<dyn Any + Send + Sync>,
    others: Extras,
}

impl Extras {
    /// No values.
    pub const NONE: Self = Self(None);

    /// Returns whether there are no values.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the value of this type.
    #[must_use]
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.iter().find_map(|extra| extra.value.downcast_ref())
    }

    /// Attaches a value. It hides another one of its type, which is kept as long as this one. Earlier
    /// clones do not have it.
    ///
    /// Meant for a few values: [`Extras::get`] looks at one after the other, and they are dropped by
    /// recursion.
    pub fn insert<T: Any + Send + Sync>(&mut self, value: T) {
        let others = std::mem::take(self);
        let value = Box::new(value);
        self.0 = Some(Arc::new(Extra { value, others }));
    }

    fn iter(&self) -> impl Iterator<Item = &Extra> {
        iter::successors(self.0.as_deref(), |extra| extra.others.0.as_deref())
    }
}

impl fmt::Debug for Extras {
    /// Writes the number of values, whose types are not known here.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Extras({})", self.iter().count())
    }
}
