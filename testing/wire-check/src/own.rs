//! Captures that the devices write themselves.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use iwarp::Iwarp;
use rdma::Device;
use rdma_capture::{Capture, Limits, Origin, Reconstructed, Stopped};

use crate::columns::Direction;
use crate::error::Error;

/// A kind of capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The bytes that the server's device shows to its tap.
    Shown,
    /// The messages that the middleware on one side reconstructs.
    Reconstructed(Direction),
}

/// A complete capture.
pub(crate) struct File {
    kind: Kind,
    path: PathBuf,
}

impl File {
    /// Returns what the capture is called in the report.
    pub(crate) fn name(&self) -> &'static str {
        match self.kind {
            Kind::Shown => "the capture of the device",
            Kind::Reconstructed(Direction::Call) => "what the client's side reconstructs",
            Kind::Reconstructed(Direction::Reply) => "what the server's side reconstructs",
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn is_reconstructed(&self) -> bool {
        self.kind != Kind::Shown
    }
}

/// The captures of a scenario.
#[derive(Clone)]
pub(crate) struct Own(Arc<[(Kind, PathBuf, Capture); 3]>);

impl Own {
    /// Creates the files in `folder`, whose names begin with `scenario`.
    pub(crate) fn create(folder: &Path, scenario: &str) -> Result<Self, Error> {
        let create = |kind, name| {
            let path = folder.join(format!("{scenario}-{name}"));
            // A capture that stops is too short for the comparison, which says so.
            let on_stop = Box::new(|_: &Stopped| {});
            let capture = Capture::create(&path, Limits::default(), 0, on_stop);
            let capture = capture.map_err(Error::ours("a capture"))?;
            Ok::<_, Error>((kind, path, capture))
        };
        Ok(Self(Arc::new([
            create(Kind::Shown, "shown.pcapng")?,
            create(Kind::Reconstructed(Direction::Call), "client.pcapng")?,
            create(Kind::Reconstructed(Direction::Reply), "server.pcapng")?,
        ])))
    }

    /// Captures the traffic of the device on one side.
    pub(crate) fn capture(&self, side: Direction, mut device: Iwarp) -> impl Device + use<> {
        let [shown, client, server] = &*self.0;
        if side == Direction::Reply {
            device.set_tap(Box::new(shown.2.tap("iwarp", Origin::Stream)));
        }
        let (_, _, capture) = match side {
            Direction::Call => client,
            Direction::Reply => server,
        };
        let tap = capture.tap("iwarp", Origin::Reconstructed);
        Reconstructed::new(device, tap, None)
    }

    /// Completes the files.
    pub(crate) fn finish(&self) -> Result<Vec<File>, Error> {
        let complete = |(kind, path, capture): &(Kind, PathBuf, Capture)| {
            let file = File {
                kind: *kind,
                path: path.clone(),
            };
            let finished = capture.try_finish().then_some(file);
            finished.ok_or_else(|| Error::ours("a capture")("a device still uses it"))
        };
        self.0.iter().map(complete).collect()
    }
}
