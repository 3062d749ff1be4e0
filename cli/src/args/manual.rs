//! Options of `completions` and `man`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use clap_complete::Shell;

/// Print a completion script for a shell.
///
/// Where shells look for them: bash in ~/.local/share/bash-completion/completions/rpcrdma, fish in
/// ~/.config/fish/completions/rpcrdma.fish, zsh in a file _rpcrdma in any folder of $fpath.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    pub(crate) shell: Shell,
}

/// Write the manual pages: one for each command, and rpcrdma-mount-options(7).
///
/// man(1) finds those in ~/.local/share/man by itself where ~/.local/bin is in the search path.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The folder, such as ~/.local/share/man; the pages are written to man1 and man7 below it
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) folder: PathBuf,
}
