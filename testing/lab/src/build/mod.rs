//! Builds a bootable guest from nothing.
//!
//! A [`Plan`] consists of ordered steps, each with a key that names everything the step is made
//! from. Only steps whose key changed are built. If there are none, apt is not asked: versions stay
//! the same until [`Order::refresh`].

mod extract;
mod host;
mod image;
mod kernel;
mod modules;
pub mod pins;
mod plan;
mod root;
mod siw;

use std::path::PathBuf;

use crate::apt::Apt;
use crate::cache::Cache;
use crate::error::Error;
use crate::log::Log;
use crate::stop::Stop;
use pins::Pins;
pub use plan::{Part, Plan, Scripts};

/// The parameters of a build.
#[derive(Debug)]
pub struct Order<'a> {
    /// The cache directory.
    pub cache: &'a Cache,
    /// The scripts that are part of the guest.
    pub scripts: Scripts,
    /// Whether to fetch the package lists again, and to use the versions in them.
    pub refresh: bool,
    /// The handle that can end the build early.
    pub stop: &'a Stop,
    /// The log of the progress.
    pub log: &'a Log,
}

/// The common parameters of all steps.
struct Site<'a> {
    cache: &'a Cache,
    apt: &'a Apt,
    pins: &'a Pins,
    scripts: &'a Scripts,
    stop: &'a Stop,
    log: &'a Log,
}

/// Builds what is not current. Returns the packages of the guest.
///
/// # Errors
/// The process does not run as root, apt fails, a tool fails or takes too long, or the lab is
/// interrupted.
pub fn build(order: &Order<'_>) -> Result<Pins, Error> {
    let pins = Pins::read(order.cache).filter(|_| !order.refresh);
    if let Some(pins) = &pins
        && Plan::new(pins, &order.scripts)
            .stale(order.cache)
            .is_empty()
    {
        return Ok(pins.clone());
    }
    if !rustix::process::geteuid().is_root() {
        return Err(Error::NotRoot);
    }
    host::install(order.stop, order.log)?;
    let apt = Apt::new(order.cache, order.stop)?;
    apt.update(order.refresh, order.log)?;
    let pins = match pins {
        Some(pins) => pins,
        None => {
            order.log.say("apt: resolving packages");
            let pins = Pins::resolve(&apt)?;
            pins.write(order.cache)?;
            pins
        }
    };
    let site = Site {
        cache: order.cache,
        apt: &apt,
        pins: &pins,
        scripts: &order.scripts,
        stop: order.stop,
        log: order.log,
    };
    let plan = Plan::new(&pins, &order.scripts);
    for part in plan.stale(order.cache) {
        let started = order.log.elapsed();
        order
            .cache
            .build(part.name(), plan.key(part), |to| match part {
                Part::Qemu => root::qemu(&site, to),
                Part::Siw => siw::build(&site, to),
                Part::Kernel => kernel::build(&site, to),
                Part::Root => root::guest(&site, to),
                Part::Image => image::disk(&site, to),
                Part::Initramfs => image::initramfs(&site, to),
            })?;
        let took = (order.log.elapsed() - started).as_secs_f64();
        order
            .log
            .say(format!("{}: built in {took:.1} s", part.name()));
    }
    apt.prune(pins.all())?;
    Ok(pins)
}

/// The files for starting a machine.
#[derive(Clone, Debug)]
pub struct Built {
    /// The directory of QEMU.
    pub qemu: PathBuf,
    /// The kernel.
    pub kernel: PathBuf,
    /// The initramfs.
    pub initramfs: PathBuf,
    /// The root file system; it is never written to.
    pub disk: PathBuf,
}

impl Built {
    /// Returns their paths in this cache directory.
    #[must_use]
    pub fn of(cache: &Cache) -> Self {
        Self {
            qemu: cache.step(Part::Qemu.name()),
            kernel: cache.step(Part::Kernel.name()).join("vmlinuz"),
            initramfs: cache.step(Part::Initramfs.name()).join("initramfs.cpio"),
            disk: cache.step(Part::Image.name()).join("root.ext4"),
        }
    }
}
