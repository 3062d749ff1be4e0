//! Tests of completion scripts and manual pages: nothing that `--help` has is missing in them.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::fuse::left_out;
use common::{rpcrdma, run};

/// The shells that have a script.
const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

/// Returns the names of all commands, as `--help` lists them.
fn commands() -> Vec<String> {
    let help = run(["--help"]).ok().stdout;
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    // Lines that go on have more spaces.
    let names = lines.filter_map(|line| {
        line.strip_prefix("  ")?
            .split_whitespace()
            .next()
            .filter(|_| !line.starts_with("   "))
    });
    let names: Vec<String> = names.map(str::to_owned).collect();
    assert!(names.len() >= 19, "{names:?}");
    names
}

/// Returns the options that a command's `--help` explains, `-o` and `--options` each.
fn options(command: &str) -> BTreeSet<String> {
    let help = run([command, "--help"]).ok().stdout;
    let mut found = BTreeSet::new();
    for line in help.lines() {
        let words = line.trim_start();
        // An explanation can begin a line with an option as well, but further to the right.
        if !words.starts_with('-') || line.len() - words.len() > 6 {
            continue;
        }
        let head = words.split("  ").next().unwrap_or(words);
        for word in head.split([' ', ',', '=', '[']) {
            if word.starts_with('-') && word.len() > 1 {
                found.insert(word.trim_end_matches('.').to_owned());
            }
        }
    }
    assert!(found.contains("--help"), "{command}: {found:?}");
    found
}

fn page(folder: &Path, section: u8, name: &str) -> String {
    let file = folder.join(format!("man{section}/{name}.{section}"));
    let text = fs::read_to_string(&file);
    text.unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Returns the page without what its language adds to the text.
fn plain(page: &str) -> String {
    let page = page.replace("\\-", "-").replace("\\*(Aq", "'");
    page.replace("\\fB", "")
        .replace("\\fI", "")
        .replace("\\fR", "")
}

#[test]
fn each_command_has_a_page_with_each_of_its_options() {
    let dir = tempfile::tempdir().unwrap();
    run(["man", dir.path().to_str().unwrap()]).ok();
    let front = plain(&page(dir.path(), 1, "rpcrdma"));
    assert!(front.contains("\n.SH EXAMPLES\n"), "{front}");
    let mut pages = 1;
    for command in commands().iter().filter(|name| *name != "help") {
        let name = format!("rpcrdma-{command}");
        assert!(front.contains(&format!("{name}(1)")), "{name}: {front}");
        let page = plain(&page(dir.path(), 1, &name));
        for option in options(command) {
            let defined = |line: &str| line.split([' ', ',', '=', '[']).any(|word| word == option);
            let mut titles = page.lines().zip(page.lines().skip(1));
            assert!(
                titles.any(|(above, line)| above == ".TP" && defined(line)),
                "{name}: {option}\n{page}"
            );
        }
        pages += 1;
    }
    // There is none of what is hidden.
    let written = fs::read_dir(dir.path().join("man1")).unwrap();
    assert_eq!(written.count(), pages);
    assert!(!plain(&page(dir.path(), 1, "rpcrdma-mount")).contains("--background"));
}

#[test]
fn the_page_of_mount_options_has_each_that_the_parser_names() {
    let dir = tempfile::tempdir().unwrap();
    run(["man", dir.path().to_str().unwrap()]).ok();
    let page = plain(&page(dir.path(), 7, "rpcrdma-mount-options"));
    let wrong = run(["ls", "-o", "frobnicate", "nfs://localhost/data"]).stderr;
    let (_, known) = wrong.split_once("known are ").unwrap();
    let (known, _) = known
        .split_once(", and others of rpcrdma-mount-options(7)")
        .unwrap();
    let names: Vec<_> = known.split(", ").collect();
    assert!(names.len() >= 35, "{names:?}");
    for option in names {
        let name = option.split('=').next().unwrap();
        let title = |line: &str| line.split('=').next() == Some(name);
        let mut lines = page.lines().zip(page.lines().skip(1));
        assert!(
            lines.any(|(above, line)| above == ".TP" && title(line)),
            "{name}\n{page}"
        );
    }
    // Those of mounts alone, those without effect, and those that are errors.
    for name in [
        "actimeo",
        "lookupcache",
        "noatime",
        "xprtsec",
        "strictatime",
    ] {
        assert!(page.contains(name), "{name}\n{page}");
    }
}

#[test]
fn completion_scripts_know_each_option_of_each_command() {
    for shell in SHELLS {
        let script = run(["completions", shell]).ok().stdout;
        for hidden in ["internal-child", "--background", "-l background"] {
            assert!(!script.contains(hidden), "{shell}: {hidden}");
        }
        assert!(
            script.contains("rsize=") && script.contains("nordirplus"),
            "{shell}"
        );
        for command in commands().iter().filter(|name| *name != "help") {
            assert!(script.contains(command), "{shell}: {command}");
            for option in options(command) {
                let known = match (shell, option.strip_prefix("--")) {
                    ("fish", Some(long)) => script.contains(&format!("-l {long}")),
                    ("fish", None) => script.contains(&format!("-s {}", &option[1..])),
                    _ => script.contains(&option),
                };
                assert!(known, "{shell}: {command} {option}");
            }
        }
    }
}

#[test]
fn pages_that_cannot_be_written_are_an_error_with_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let said = run(["man", file.to_str().unwrap()]);
    said.fails_with(&["man1/rpcrdma.1", "not a directory"]);
}

/// Returns all files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder");
    let below = |entry: fs::DirEntry| match entry.path().is_dir() {
        true => files(&entry.path()),
        false => vec![entry.path()],
    };
    let entries = entries.map(|entry| entry.expect("an entry"));
    entries.flat_map(below).collect()
}

#[test]
fn the_install_script_installs_everything_and_removes_it() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/install");
    let has_bash = Command::new("bash").arg("-c").arg("exit").status();
    if !script.exists() || !has_bash.is_ok_and(|status| status.success()) {
        left_out("there is no clone here, or no bash");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let other = dir.path().join("share/man/man1/other.1");
    fs::create_dir_all(other.parent().unwrap()).unwrap();
    fs::write(&other, "").unwrap();
    let install = |words: &[&str]| {
        let mut bash = Command::new("bash");
        bash.arg(&script)
            .arg("--prefix")
            .arg(dir.path())
            .args(words);
        assert!(bash.status().unwrap().success(), "{bash:?}");
    };
    let built = rpcrdma().get_program().to_owned();
    install(&["--binary", built.to_str().unwrap()]);
    for file in [
        "bin/rpcrdma",
        "share/man/man1/rpcrdma-serve.1",
        "share/man/man7/rpcrdma-mount-options.7",
        "share/bash-completion/completions/rpcrdma",
        "share/zsh/site-functions/_rpcrdma",
        "share/fish/vendor_completions.d/rpcrdma.fish",
        "lib/wireshark/plugins/rpcrdma.lua",
        "lib/wireshark/plugins/rpcrdma/xdr.lua",
    ] {
        let length = fs::metadata(dir.path().join(file)).map(|it| it.len());
        assert!(length.is_ok_and(|length| length > 0), "{file}");
    }
    install(&["--remove"]);
    assert_eq!(files(dir.path()), [other]);
}
