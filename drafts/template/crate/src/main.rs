//! The `rpcrdma` command with this extension: `--features @name@`, `compare --via @via@+@name@`.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::Arc;

use rpcrdma::{Effect, Program, Setting, Unit, Version};
use rpcrdma_ext_@name@::{Factory, MOST, @Name@};

static COUNT: Setting = Setting {
    name: "@name@-count",
    unit: Unit::Number,
    bounds: (0, MOST as u64),
    step: 1,
    help: "Count of small calls whose caller gives none, with --features @name@; 0 for none",
    effect: Effect::Own { default: 1 },
};

fn main() -> ExitCode {
    Program::standard()
        .setting(&COUNT)
        .feature("@name@", "small calls behind a count", |protocols, settings| {
            let default = @Name@::new(settings.value(&COUNT) as u32);
            protocols.with(Version::@VERSION@, Arc::new(Factory { default }))
        })
        .run(std::env::args_os())
}
