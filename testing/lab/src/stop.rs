//! SIGINT and SIGTERM, as a flag that everything which waits looks at.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::Error;

/// Whether the lab was told to end. Cheap to clone; all clones are one flag.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// A flag that nothing has raised.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A flag that SIGINT and SIGTERM raise instead of ending the process.
    ///
    /// # Errors
    /// [`Error::System`] when the handlers cannot be set.
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

    /// Whether it was raised.
    #[must_use]
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// [`Error::Interrupted`] when it was raised.
    ///
    /// # Errors
    /// See above.
    pub fn check(&self) -> Result<(), Error> {
        if self.is_raised() {
            return Err(Error::Interrupted);
        }
        Ok(())
    }
}
