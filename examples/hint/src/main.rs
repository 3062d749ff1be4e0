//! The `rpcrdma` command with hints: `--features hint` at clients and servers, `--via wg+hint`,
//! `--ops queue`, `sim --with hint`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use hint::{Hint, Queue};
use rpcrdma::{Effect, Program, Setting, Unit};

static DEFAULT: Setting = Setting {
    name: "hint",
    unit: Unit::Number,
    bounds: (0, u32::MAX as u64),
    step: 1,
    help: "Hint of small calls whose caller gives none, with --features hint; 0 for none",
    effect: Effect::Own { default: 0 },
};

fn main() -> ExitCode {
    let help = "small calls carry the hint of their caller";
    Program::standard()
        .setting(&DEFAULT)
        .feature("hint", help, |protocols, settings| {
            hint::extend(protocols, Hint(settings.value(&DEFAULT) as u32))
        })
        .workload(Queue)
        .run(std::env::args_os())
}
