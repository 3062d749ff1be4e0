//! From nothing to a guest that boots.
//!
//! What is to be built is a [`Plan`]: steps in order, each with a key that names all it is made
//! from. Only the steps whose key changed are built, and without such a step nothing is asked of
//! apt: versions stay what they were until [`Order::refresh`].

mod extract;
mod host;
mod image;
mod kernel;
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

/// What to build, and where.
#[derive(Debug)]
pub struct Order<'a> {
    /// Where everything goes.
    pub cache: &'a Cache,
    /// The scripts that go into the guest.
    pub scripts: Scripts,
    /// Fetch package lists again, and take the versions that they have.
    pub refresh: bool,
    /// What ends the build early.
    pub stop: &'a Stop,
    /// Who hears of it.
    pub log: &'a Log,
}

/// What every step gets.
struct Site<'a> {
    cache: &'a Cache,
    apt: &'a Apt,
    pins: &'a Pins,
    scripts: &'a Scripts,
    stop: &'a Stop,
    log: &'a Log,
}

/// Builds what is not current, and returns what the guest is made of.
///
/// # Errors
/// Root is missing, apt fails, a tool fails or takes too long, or the lab is interrupted.
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

/// The files that a machine is started from.
#[derive(Clone, Debug)]
pub struct Built {
    /// QEMU's tree.
    pub qemu: PathBuf,
    /// The kernel.
    pub kernel: PathBuf,
    /// What the kernel starts with.
    pub initramfs: PathBuf,
    /// The root file system; never written to.
    pub disk: PathBuf,
}

impl Built {
    /// Where they are in this cache folder.
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
