//! Tests of where output is colored: `--color`, NO_COLOR, CLICOLOR and terminals.

mod common;

use common::terminal::{ended_on_terminal, on_terminal};
use common::{Running, Server, rpcrdma, run};

#[test]
fn colors_are_for_terminals_that_want_them() {
    let colored = |text: &str| text.contains("\x1b[");
    let help = |words: &[&str]| run([words, &["ls", "--help"]].concat()).ok().stdout;
    assert!(!colored(&help(&[])));
    assert!(colored(&help(&["--color", "always"])));
    assert!(!colored(&help(&["--color=never"])));
    let wrong = run(["--color=always", "frobnicate"]);
    assert!(colored(&wrong.stderr), "{wrong:#?}");
    let server = Server::start(["--memory"]);
    let address = server.tcp.to_string();
    let words = ["-v", "ping", "-c", "1", "-o", "proto=tcp", &address];
    let plain = [("NO_COLOR", "1")];
    assert!(colored(&on_terminal(&[], &words)));
    assert!(!colored(&on_terminal(&plain, &words)));
    assert!(!colored(&on_terminal(
        &[],
        &[&["--color", "never"], &words[..]].concat()
    )));
    assert!(!colored(&on_terminal(&plain, &["ls", "--help"])));
    assert!(colored(&on_terminal(
        &plain,
        &[&["--color", "always"], &words[..]].concat()
    )));
}

/// Regression test: errors in the arguments alone were colored, and others of this command were not.
#[test]
fn all_errors_are_colored_alike() {
    let red = "\x1b[1m\x1b[31m";
    // clap finds the first error and this command all others; the second is one of them.
    let errors = [&["ls", "--frobnicate"], &["ls", "localhost"]];
    let shown = |set: &[(&str, &str)], more: &[&str], error: &[&str]| {
        let shown = ended_on_terminal(set, &[error, more].concat());
        assert_eq!(shown.status.code(), Some(2), "{shown:#?}");
        shown.stdout
    };
    for error in errors {
        for (set, more, colored) in [
            (&[][..], &[][..], true),
            (&[("NO_COLOR", "1")], &[], false),
            (&[("CLICOLOR", "0")], &[], false),
            (&[("TERM", "dumb")], &[], false),
            (&[], &["--color=never"], false),
            (&[("NO_COLOR", "1")], &["--color=always"], true),
        ] {
            let shown = shown(set, more, error);
            let is_colored = shown.starts_with(red);
            assert_eq!(is_colored, colored, "{error:?} {set:?} {more:?}: {shown:?}");
            assert!(colored || !shown.contains('\x1b'), "{shown:?}");
        }
        let forced = |name: &str| {
            let mut command = rpcrdma();
            command.args(error).env_remove("NO_COLOR").env(name, "1");
            Running::start(&mut command).finish().stderr
        };
        assert!(!run(error).stderr.contains('\x1b'), "no terminal");
        assert!(forced("CLICOLOR_FORCE").starts_with(red), "{error:?}");
        let always = run([&error[..], &["--color", "always"]].concat()).stderr;
        assert!(always.starts_with(red), "{always:?}");
    }
    let noted = ["ls", "-o", "ro,rw", "localhost", "--color=always"];
    let noted = run(noted).stderr;
    assert!(noted.contains("rpcrdma: note:\x1b[0m "), "{noted:?}");
}
