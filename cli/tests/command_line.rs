//! Tests that the commands read like the tools that people know: ping(8), cp(1), ls(1), mount(8).

mod common;

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use common::fuse::left_out;
use common::terminal::on_terminal;
use common::{
    BOTH, Finished, Proto, Running, Server, copy_program, export, options, rpcrdma,
    rpcrdma_limited, run, tree,
};

/// Runs the command with these words and the options for a transport.
#[track_caller]
fn with(proto: Proto, words: &[&str]) -> Finished {
    let words = words.iter().map(|&word| word.to_owned());
    run(words.chain(options(proto, "")))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

fn json(finished: Finished) -> Value {
    serde_json::from_str(&finished.ok().stdout).expect("JSON")
}

/// Regression test: a part of the file stayed, and the advice was to copy again.
#[test]
fn a_full_server_keeps_no_part_of_a_file_and_gets_no_useless_advice() {
    let local = tempfile::tempdir().unwrap();
    let large = local.path().join("large");
    fs::write(&large, tree::noise(4 << 20, 3)).unwrap();
    let server = Server::start(["--memory=1M"]);
    for proto in BOTH {
        let to = |name: &str| server.url(proto, &format!("/memory/{name}"));
        let by_name = with(proto, &["put", text(&large), &to("")]);
        let mut stream = rpcrdma();
        stream
            .args(["put", "-", &to("stream")])
            .args(options(proto, ""));
        let by_stream = Running::start(stream.stdin(fs::File::open(&large).unwrap())).finish();
        for failed in [by_name, by_stream] {
            let failed = failed.fails_with(&["NOSPC"]);
            assert!(!failed.stderr.contains("copying again"), "{failed:#?}");
            assert!(
                failed.stderr.contains("1 incomplete file was removed"),
                "{failed:#?}"
            );
        }
        assert_eq!(with(proto, &["ls", "-a", &to("")]).ok().stdout, "");
    }
    // A file longer than the server may write.
    let exported = tempfile::tempdir().unwrap();
    let exports = export("data", exported.path(), "no_root_squash");
    // Blocks of 512 or of 1024 bytes.
    let server = Server::start_command(rpcrdma_limited("-f 2048"), 0, 0, ["--export", &exports]);
    let url = server.url(Proto::Rdma, "/data");
    let failed = with(Proto::Rdma, &["put", text(&large), &url]).fails_with(&["FBIG"]);
    assert!(!failed.stderr.contains("copying again"), "{failed:#?}");
    assert!(!exported.path().join("large").exists());
}

/// Regression test: the earlier file was lost without a word, the bytes of what was removed counted, and the
/// small file failed because a large one was copied at the same time.
#[test]
fn a_full_server_loses_an_earlier_file_with_a_word() {
    let local = tempfile::tempdir().unwrap();
    let [small, large] = ["small", "large"].map(|name| local.path().join(name));
    fs::write(&small, "small").unwrap();
    fs::write(&large, tree::noise(4 << 20, 3)).unwrap();
    let server = Server::start(["--memory=1M"]);
    for proto in BOTH {
        let to = |name: &str| server.url(proto, &format!("/memory/{name}"));
        with(proto, &["put", text(&small), &to("large")]).ok();
        let failed = with(proto, &["put", text(&large), text(&small), &to("")]);
        let failed = failed.fails_with(&["NOSPC"]);
        let lost =
            "earlier content is lost, as it was overwritten in place (cp does the same): large";
        let removed = "1 incomplete file was removed";
        assert!(failed.stderr.contains(removed), "{failed:#?}");
        assert!(failed.stderr.contains(lost), "{failed:#?}");
        assert!(
            failed.stdout.starts_with("copied 1 file, 5 B in"),
            "{failed:#?}"
        );
        assert_eq!(with(proto, &["ls", &to("")]).ok().stdout, "small\n");
    }
}

#[test]
fn several_files_go_into_a_directory() {
    let local = tempfile::tempdir().unwrap();
    let names = ["a.c", "b.c", "c.c"];
    for name in names {
        fs::write(local.path().join(name), name).unwrap();
    }
    fs::create_dir(local.path().join("more")).unwrap();
    fs::write(local.path().join("more/a.c"), "other").unwrap();
    symlink("a.c", local.path().join("link.c")).unwrap();
    let files: Vec<_> = names.iter().map(|name| local.path().join(name)).collect();
    let [a, b, c] = &files[..] else {
        panic!("three files");
    };
    let [more, other, link] = ["more", "more/a.c", "link.c"].map(|name| local.path().join(name));
    let exported = tempfile::tempdir().unwrap();
    fs::write(exported.path().join("file"), "").unwrap();
    let server = Server::of(exported.path());
    for (proto, slash) in [(Proto::Rdma, "/"), (Proto::Tcp, "")] {
        let dir = exported.path().join(proto.name());
        fs::create_dir(&dir).unwrap();
        let url = server.url(proto, &format!("/data/{}{slash}", proto.name()));
        let put = |words: &[&str]| with(proto, &[&["put"], words, &[&url]].concat());
        let said = put(&[text(a), text(b), text(c), text(&link)]).ok().stdout;
        assert!(said.starts_with("copied 4 files, 12 B"), "{said}");
        assert_eq!(fs::read_to_string(dir.join("c.c")).unwrap(), "c.c");
        assert_eq!(fs::read_to_string(dir.join("link.c")).unwrap(), "a.c");
        put(&["-r", text(&more), text(a)]).ok();
        assert_eq!(fs::read_to_string(dir.join("more/a.c")).unwrap(), "other");
        // The others are copied all the same.
        fs::remove_file(dir.join("a.c")).unwrap();
        put(&[text(&more), text(a)]).fails_with(&["more is a directory", "-r"]);
        assert_eq!(fs::read_to_string(dir.join("a.c")).unwrap(), "a.c");
        for (wrong, said) in [
            (&["-", text(a)][..], "no name"),
            (&[text(a), text(&other)], "would have the same name"),
            (&["-r", text(a), &format!("{}/.", text(&more))], "alone"),
        ] {
            let refused = put(wrong);
            assert_eq!(refused.status.code(), Some(2), "{refused:#?}");
            assert!(refused.stderr.contains(said), "{refused:#?}");
        }
        // So is what follows a name that does not exist.
        fs::remove_file(dir.join("b.c")).unwrap();
        let absent = put(&[text(a), "no-such-file", "nor-this", text(b)]);
        let absent = absent.fails_with(&["cannot read no-such-file"]);
        let other = "cannot read nor-this";
        assert!(absent.stderr.contains(other), "{absent:#?}");
        assert!(absent.stdout.starts_with("copied 2 files"), "{absent:#?}");
        assert_eq!(fs::read_to_string(dir.join("b.c")).unwrap(), "b.c");
        let file = server.url(proto, "/data/file");
        with(proto, &["put", text(a), text(b), &file])
            .fails_with(&["is not a directory, and several"]);
        let none = server.url(proto, "/data/none/");
        with(proto, &["put", text(a), text(b), &none])
            .fails_with(&["no such directory, and several"]);
    }
}

/// Regression test: the progress of a single file did not say how much there was.
#[test]
fn the_progress_of_a_file_says_how_much_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let (file, back) = (dir.path().join("file"), dir.path().join("back"));
    fs::write(&file, tree::noise(20_000_000, 3)).unwrap();
    let server = Server::start(["--memory=64M", "--rate", "200m"]);
    let url = server.url(Proto::Tcp, "/memory/file");
    let limited = ["-o", "proto=tcp", "--rate", "200m"];
    for words in [["put", text(&file), &url], ["get", &url, text(&back)]] {
        let shown = on_terminal(&[], &[&words[..], &limited].concat());
        assert!(shown.contains(" % of 19.1 MiB ("), "{shown}");
        assert!(shown.contains(" s left"), "{shown}");
        let quiet = on_terminal(&[], &[&["-q"], &words[..], &limited].concat());
        assert_eq!(quiet, "", "{words:?}");
    }
}

#[test]
fn ping_prints_its_lines_as_they_come() {
    let server = Server::start(["--memory"]);
    let address = server.tcp.to_string();
    let ping = |words: &[&str]| with(Proto::Tcp, &[&["ping", &address], words].concat());
    let said = ping(&["-c", "3"]).ok().stdout;
    let lines: Vec<_> = said.lines().collect();
    for (line, number) in lines.iter().zip(1..=3) {
        let begin = format!("{address}: null seq={number} time=");
        assert!(line.starts_with(&begin) && line.ends_with(" µs"), "{said}");
    }
    assert_eq!(lines[3], format!("{address}: 3 x null"));
    assert!(!ping(&["-c", "3", "-q"]).ok().stdout.contains("seq="));
    // Apart, each has a line; otherwise, there is one in a second.
    for (words, end) in [(["-D", "1ms"], " µs"), (["-D", "0"], " µs so far")] {
        let mut endless = rpcrdma();
        endless
            .args(["ping", "-c", "100000000", &address])
            .args(words);
        endless.args(options(Proto::Tcp, "")).stdout(Stdio::piped());
        let mut endless = endless.spawn().unwrap();
        let mut first = String::new();
        let mut out = BufReader::new(endless.stdout.take().unwrap());
        out.read_line(&mut first).unwrap();
        assert!(
            first.contains(" seq=") && first.trim_end().ends_with(end),
            "{first}"
        );
        endless.kill().unwrap();
        endless.wait().unwrap();
    }
}

#[test]
fn what_get_cannot_copy_to_is_said() {
    for target in ["nfs://other/export/file", "other:/export/file"] {
        let refused = run(["get", "nfs://server/export/file", target]);
        assert_eq!(refused.status.code(), Some(2), "{refused:#?}");
        let said = "several URLs are not supported";
        assert!(refused.stderr.contains(said), "{refused:#?}");
    }
}

/// Regression test: what came to the working directory was told of as `./NAME`, and `get DIR/.` to a directory wrote
/// to `DIRECTORY/.`.
#[test]
fn what_comes_to_the_working_directory_is_told_of_by_its_name() {
    let (there, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::create_dir(there.path().join("tree")).unwrap();
    fs::write(there.path().join("tree/file"), "content").unwrap();
    let server = Server::of(there.path());
    let get = |source: &str, target: &str| {
        let url = server.url(Proto::Tcp, source);
        let words = ["get", "-r", "-o", "proto=tcp", &url, target];
        Running::start(rpcrdma().args(words).current_dir(here.path())).finish()
    };
    // Directories are in the way.
    fs::create_dir_all(here.path().join("tree/file/inside")).unwrap();
    fs::create_dir_all(here.path().join("file/inside")).unwrap();
    for (source, wanted) in [("/data/tree", "tree/file"), ("/data/tree/.", "file")] {
        for target in [".", "./"] {
            let failed = get(source, target).fails_with(&[&format!(" {wanted} exists")]);
            assert!(!failed.stderr.contains("./"), "{source}: {failed:#?}");
        }
    }
    fs::remove_dir_all(here.path().join("file")).unwrap();
    get("/data/tree/.", ".").ok();
    assert_eq!(fs::read(here.path().join("file")).unwrap(), b"content");
}

#[test]
fn an_address_of_ipv6_needs_no_brackets() {
    if TcpListener::bind("[::1]:0").is_err() {
        left_out("this machine has no IPv6");
        return;
    }
    let server = Server::start(["--memory", "--listen", "::1"]);
    let port = format!("port={},proto=tcp", server.tcp.port());
    let said = run(["ping", "-c", "1", "-o", &port, "::1"]).ok().stdout;
    assert!(said.contains("::1: 1 x null"), "{said}");
    let said = run(["exports", "-o", &port, "::1"]).ok().stdout;
    assert_eq!(said, "/memory  everyone\n");
}

#[test]
fn sources_and_options_are_written_as_for_mount_8() {
    let dir = tempfile::tempdir().unwrap();
    let (file, back) = (dir.path().join("file"), dir.path().join("back"));
    fs::write(&file, "content").unwrap();
    let server = Server::start(["--memory"]);
    let here = server.tcp.ip();
    let options = format!(
        "proto=tcp,port={},rsize=10M,wsize=64k,vers=3.0",
        server.tcp.port()
    );
    let at = |path: &str| format!("{here}:/memory{path}");
    let with = |words: &[&str]| run([words, &["-o", &options]].concat()).ok().stdout;
    with(&["mkdir", &at("/new")]);
    with(&["put", text(&file), &at("/new/")]);
    with(&["get", &at("/new/file"), text(&back)]);
    assert_eq!(fs::read_to_string(&back).unwrap(), "content");
    assert_eq!(with(&["cat", &at("/new/file")]), "content");
    assert_eq!(with(&["ls", &at("/new")]), "file\n");
    assert!(with(&["stat", &at("/new/file")]).contains("size: 7"));
    let options = format!("proto=tcp,port={}", server.tcp.port());
    let getattr = ["ping", "--op", "getattr", "-c", "1", &at("/new/file")];
    let getattr = run([&getattr[..], &["-o", &options]].concat()).ok();
    assert!(getattr.stdout.contains("1 x getattr"), "{getattr:#?}");
    with(&["rm", "-r", &at("/new")]);
    assert_eq!(with(&["ls", &at("")]), "");
}

#[test]
fn names_that_begin_with_a_dot_are_listed_if_wanted() {
    let dir = tempfile::tempdir().unwrap();
    for name in [".hidden", "file"] {
        fs::write(dir.path().join(name), "").unwrap();
    }
    let server = Server::of(dir.path());
    let url = server.url(Proto::Rdma, "/data");
    let ls = |words: &[&str]| {
        with(Proto::Rdma, &[&["ls", &url], words].concat())
            .ok()
            .stdout
    };
    assert_eq!(ls(&[]), "file\n");
    for all in ["-a", "-A", "--all"] {
        assert_eq!(ls(&[all]), ".hidden\nfile\n");
    }
    assert_eq!(ls(&["-la"]).lines().count(), 2);
}

#[test]
fn results_are_json_if_wanted() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "hello").unwrap();
    symlink("file", dir.path().join("link")).unwrap();
    fs::write(dir.path().join(OsStr::from_bytes(b"no\xfftext")), "").unwrap();
    let server = Server::of(dir.path());
    for proto in BOTH {
        let url = server.url(proto, "/data");
        let listed = json(with(proto, &["ls", "--json", &url]));
        assert_eq!(listed[0]["url"], *url);
        let entries = listed[0]["entries"].as_array().unwrap();
        let names: Vec<_> = entries.iter().map(|entry| &entry["name"]).collect();
        assert_eq!(
            (names[0], names[1], names.len()),
            (&"file".into(), &"link".into(), 3)
        );
        assert_eq!(entries[1]["type"], "symbolic link");
        assert_eq!(entries[1]["target"], "file");
        assert_eq!(entries[2]["url"], format!("{url}/no%FFtext"));
        let (file, missing) = (format!("{url}/file"), format!("{url}/missing"));
        let stat = json(with(proto, &["stat", "--json", &file]));
        assert_eq!(stat[0], entries[0]);
        assert_eq!(
            (&stat[0]["size"], &stat[0]["type"]),
            (&5.into(), &"regular file".into())
        );
        let modified = stat[0]["modify"].as_str().unwrap();
        assert!(
            modified.len() == 30 && modified.ends_with('Z'),
            "{modified}"
        );
        // What is missing does not hide the others.
        let failed = with(proto, &["stat", "--json", &missing, &file]).fails_with(&["missing"]);
        let others: Value = serde_json::from_str(&failed.stdout).unwrap();
        assert_eq!(others, stat);
        let address = url
            .strip_prefix("nfs://")
            .unwrap()
            .strip_suffix("/data")
            .unwrap();
        let exports = json(with(proto, &["exports", "--json", address]));
        assert_eq!(
            exports,
            serde_json::json!([{"path": "/data", "groups": []}])
        );
        let ping = json(with(proto, &["ping", "--json", "-c", "3", address]));
        assert_eq!((&ping["op"], &ping["count"]), (&"null".into(), &3.into()));
        // Version and features are keys, not prose.
        let connections = ping["connections"].as_array().unwrap();
        assert_eq!(
            connections.len(),
            usize::from(proto == Proto::Rdma),
            "{ping}"
        );
        for one in connections {
            assert_eq!(
                (&one["version"], &one["connections"]),
                (&"2wg".into(), &1.into())
            );
            let features = one["features"].as_array().unwrap();
            let inline = features
                .iter()
                .find(|it| it["name"] == "inline, to the peer");
            assert!(inline.unwrap()["value"].as_u64().unwrap() >= 1024, "{ping}");
            assert!(one["properties"]["segment_count"].is_u64(), "{ping}");
        }
        let time = |key: &str| ping[key].as_f64().unwrap();
        assert!(time("min_us") <= time("median_us") && time("median_us") <= time("max_us"));
        let counts = ping["histogram"].as_array().unwrap().iter();
        assert_eq!(
            counts.map(|it| it["count"].as_u64().unwrap()).sum::<u64>(),
            3
        );
    }
}

/// Regression test: the options of connections came first and took most of the screen.
#[test]
fn short_help_fits_a_screen_and_has_headings() {
    for (command, most) in [("ls", 42), ("get", 48), ("mount", 48), ("serve", 85)] {
        let short = run([command, "-h"]).ok().stdout;
        let lines = short.lines().count();
        assert!(lines <= most, "{command}: {lines} lines: {short}");
        let long = run([command, "--help"]).ok().stdout;
        for help in [&short, &long] {
            let headings = help
                .lines()
                .filter(|line| line.ends_with(':') && !line.starts_with(' '));
            let headings: Vec<_> = headings.collect();
            assert_eq!(
                headings.last(),
                Some(&"General options:"),
                "{command}: {headings:?}"
            );
        }
        assert!(
            long.contains("--set <NAME=VALUE>") && !short.contains("--set"),
            "{command}"
        );
    }
    let mount = run(["mount", "-h"]).ok().stdout;
    for option in ["actimeo=", "nocto", "allow_other", "sync"] {
        assert!(mount.contains(option), "{option}: {mount}");
    }
}

#[test]
fn what_is_typed_in_another_tools_way_is_answered_in_plain_words() {
    let url = "nfs://localhost/data";
    for (words, said) in [
        (
            &["get", url, "nfs://localhost/pub", "here"][..],
            "several URLs are not supported",
        ),
        (
            &["get", url, "here", "there"],
            "there: get copies one file or directory",
        ),
        (
            &["ls", "localhost"],
            "SERVER:/EXPORT/PATH; `rpcrdma exports localhost` lists",
        ),
        (
            &["mount", "localhost", "/mnt"],
            "SERVER:/EXPORT/PATH; `rpcrdma exports localhost` lists",
        ),
        // Regression test: the source was there twice.
        (
            &["mount", "localhost:data", "/mnt"],
            "rpcrdma: \"localhost:data\" is not a URL",
        ),
        (
            &["ls", "-o", "vers=4", url],
            "3, the only version of NFS that is supported,",
        ),
        (
            &["ls", "-o", "sec=none", url],
            "sec=none: sys (AUTH_SYS), the only flavor",
        ),
        (
            &["ping", "--set", "bogus=1", "localhost"],
            "no setting \"bogus\" (`--set help` lists all)",
        ),
        (
            &["compare", "--time", "20s"],
            "\"20s\" is out of range: it is at most 10s",
        ),
    ] {
        let refused = run(words);
        assert_eq!(refused.status.code(), Some(2), "{words:?}: {refused:#?}");
        assert!(refused.stderr.contains(said), "{words:?}: {refused:#?}");
    }
    if common::is_iwarp() {
        let same = [
            "serve",
            "--memory",
            "--port",
            "20999",
            "--tcp-port",
            "20999",
        ];
        let refused = run(same);
        assert_eq!(refused.status.code(), Some(2), "{refused:#?}");
        assert!(refused.stderr.contains("are both 20999"), "{refused:#?}");
    }
}

#[test]
fn a_listing_of_several_directories_has_a_line_between_them_as_with_ls() {
    let exported = tempfile::tempdir().unwrap();
    for name in ["one", "two"] {
        fs::create_dir(exported.path().join(name)).unwrap();
        fs::write(exported.path().join(name).join("file"), "").unwrap();
    }
    let server = Server::of(exported.path());
    let [one, two] = ["one", "two"].map(|name| server.url(Proto::Tcp, &format!("/data/{name}")));
    let listed = with(Proto::Tcp, &["ls", &one, &two]).ok().stdout;
    assert_eq!(listed, format!("{one}:\nfile\n\n{two}:\nfile\n"));
}

/// Regression test: nothing was said of the size of a file with holes alone.
#[test]
fn holes_are_told_of() {
    let local = tempfile::tempdir().unwrap();
    let sparse = local.path().join("sparse");
    fs::File::create(&sparse).unwrap().set_len(5 << 30).unwrap();
    let server = Server::start(["--memory=1M"]);
    let url = server.url(Proto::Tcp, "/memory/");
    let said = with(Proto::Tcp, &["put", text(&sparse), &url]).ok().stdout;
    assert!(
        said.starts_with("copied 1 file, 5.0 GiB of holes in "),
        "{said}"
    );
}

#[test]
fn quiet_commands_print_results_and_errors_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "content").unwrap();
    let server = Server::start(["--memory"]);
    let url = server.url(Proto::Tcp, "/memory/file");
    let with = |words: &[&str]| run([words, &["-o", "proto=tcp,rsize=4k,rsize=8k"]].concat());
    let loud = with(&["put", text(&file), &url]).ok();
    assert!(
        loud.stdout.contains("copied 1 file") && loud.stderr.contains("note: "),
        "{loud:#?}"
    );
    let quiet = with(&["put", "-q", text(&file), &url]).ok();
    assert_eq!((&*quiet.stdout, &*quiet.stderr), ("", ""));
    assert_eq!(with(&["--quiet", "cat", &url]).ok().stdout, "content");
    with(&["-q", "cat", &format!("{url}s")]).fails_with(&["no such file"]);
    assert_eq!(with(&["-q", "-v", "cat", &url]).status.code(), Some(2));
}

/// Regression test: each exported directory had a line.
#[test]
fn a_server_says_once_that_it_is_not_root() {
    const ANN: &str = "12345";
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("rpcrdma");
    copy_program(&program);
    let home = dir.path().join("home");
    fs::create_dir(&home).unwrap();
    for path in [dir.path(), &home] {
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    }
    let mut command = match rustix::process::geteuid().is_root() {
        true => {
            let mut command = Command::new("setpriv");
            command
                .args(["--reuid", ANN, "--regid", ANN, "--clear-groups"])
                .arg(&program);
            command
        }
        false => Command::new(&program),
    };
    let log = dir.path().join("log");
    command.env("XDG_STATE_HOME", &home).env_remove("RUST_LOG");
    command
        .stdin(Stdio::null())
        .stderr(fs::File::create(&log).unwrap());
    let exports = ["one", "two"].map(|name| export(name, dir.path(), ""));
    let server = Server::start_command(
        command,
        0,
        0,
        ["--export", &exports[0], "--export", &exports[1]],
    );
    assert!(server.terminate().success());
    let log = fs::read_to_string(log).unwrap();
    assert_eq!(log.matches("not the superuser").count(), 1, "{log}");
}

#[test]
fn the_version_says_which_commit_it_is_or_that_it_is_unknown() {
    let said = run(["--version"]).ok().stdout;
    let version = format!("rpcrdma {} (commit ", env!("CARGO_PKG_VERSION"));
    assert!(
        said.starts_with(&version) && said.ends_with(")\n"),
        "{said}"
    );
    // The build script where there is no repository.
    let dir = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("build.rs");
    let built = dir.path().join("build");
    let mut rustc = Command::new("rustc");
    rustc
        .args(["--edition", "2024", "-o"])
        .args([&built, &script]);
    Running::start(&mut rustc).finish().ok();
    let said_by_script = |commit: Option<&str>| {
        let mut build = Command::new(&built);
        build
            .env("CARGO_PKG_VERSION", "1.2.3")
            .env("CARGO_MANIFEST_DIR", dir.path());
        build
            .env("GIT_CEILING_DIRECTORIES", dir.path())
            .current_dir(dir.path());
        build
            .env_remove("RPCRDMA_COMMIT")
            .envs(commit.map(|it| ("RPCRDMA_COMMIT", it)));
        Running::start(&mut build).finish().ok().stdout
    };
    for (commit, shown) in [(None, "unknown"), (Some("abc"), "abc")] {
        let wanted = format!("=1.2.3 (commit {shown})\n");
        assert!(said_by_script(commit).contains(&wanted));
    }
    let noted = r#"{"git": {"sha1": "0123456789abcdef0123456789abcdef01234567"}}"#;
    fs::write(dir.path().join(".cargo_vcs_info.json"), noted).unwrap();
    assert!(said_by_script(None).contains("=1.2.3 (commit 0123456789ab)\n"));
}

#[test]
fn without_version_1_all_are_compared_with_the_first() {
    let sim = [
        "compare", "--device", "sim", "--ops", "write", "--sizes", "8k",
    ];
    for (via, first) in [
        ("v2,v2-ddp", "v2"),
        ("wg,wg-ddp", "wg"),
        ("v1-inv,v2-ddp", "v1-inv"),
    ] {
        let said = run(sim.iter().chain(&["--via", via])).ok().stdout;
        let heading = format!("  x {first}");
        let mut lines = said.lines().skip_while(|line| !line.ends_with(&heading));
        let rows = lines.by_ref().skip(1).take_while(|line| !line.is_empty());
        let ratios = rows.filter_map(|row| row.split_whitespace().last()?.parse::<f64>().ok());
        assert_eq!(ratios.count(), 2, "{said}");
    }
}

#[test]
fn equal_counts_of_round_trips_are_told_in_a_whole_sentence() {
    let sim = [
        "compare", "--device", "sim", "--ops", "read", "--sizes", "16k",
    ];
    let said = run(sim.iter().chain(&["--via", "v1-inv,v2"])).ok().stdout;
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let sentence = "Version 2 needs as many round trips as version 1 for 16 KiB READ.";
    assert!(said.contains(sentence), "{said}");
}
