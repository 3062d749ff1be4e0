//! SIGINT and SIGTERM as a flag that all waiting code checks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::Error;

/// Whether the lab was interrupted. Clones share the flag.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Creates a flag that is not raised.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a flag that SIGINT and SIGTERM raise instead of ending the process.
    ///
    /// # Errors
    /// [`Error::System`] if the handlers cannot be installed.
    pub fn on_signals() -> Result<Self, Error> {
        let stop = Self::new();
        for signal in [
            signal_hook::consts::SIGINT,
            signal_hook::consts::SIGTERM,
            signal_hook::consts::SIGHUP,
        ] {
            signal_hook::flag::register(signal, Arc::clone(&stop.0))
                .map_err(Error::system("signal handlers"))?;
        }
        Ok(stop)
    }

    /// Raises the flag.
    pub fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns whether the flag was raised.
    #[must_use]
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Fails if the flag was raised.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    pub fn check(&self) -> Result<(), Error> {
        if self.is_raised() {
            return Err(Error::Interrupted);
        }
        Ok(())
    }
}
