//! Tests that trees are unchanged after a copy to a server and back.

mod common;

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::Stdio;

use common::{BOTH, Proto, Running, Server, address, is_iwarp, options, rpcrdma, run, tree};

/// Export options for tests that copy a tree many times: the server syncs nothing. A busy machine takes its time over
/// each of thousands of syncs, and they do not depend on what these tests vary.
const UNSYNCED: &str = "no_root_squash,async";

/// Copies the tree `source` to `name` on the server and back to `back`.
#[track_caller]
fn there_and_back(server: &Server, proto: Proto, more: &str, source: &Path, back: &Path) {
    let text = |path: &Path| {
        path.to_str()
            .expect("the tests' own paths are text")
            .to_owned()
    };
    let name = text(back.file_name().expect("it has a name").as_ref());
    let url = server.url(proto, &format!("/data/{name}"));
    run([
        &["put".into(), "-r".into()],
        &options(proto, more)[..],
        &[text(source), url.clone()],
    ]
    .concat())
    .ok();
    run([
        &["get".into(), "-r".into()],
        &options(proto, more)[..],
        &[url, text(back)],
    ]
    .concat())
    .ok();
}

#[test]
fn trees_survive_both_transports_with_one_connection_with_four_and_with_two_threads() {
    let dir = tempfile::tempdir().unwrap();
    let (source, data) = (dir.path().join("source"), dir.path().join("data"));
    tree::make(&source);
    fs::create_dir(&data).unwrap();
    let server = Server::of(&data);
    for proto in BOTH {
        // Only TCP and the iwarp device can be driven by several threads.
        let threads = is_iwarp().then_some("nconnect=4,threads=2");
        let all = ["nconnect=1", "nconnect=4"].into_iter().chain(threads);
        for (index, more) in all.enumerate() {
            let back = dir.path().join(format!("{}-{index}", proto.name()));
            there_and_back(&server, proto, more, &source, &back);
            tree::assert_same(&source, &back);
            tree::assert_same(&source, &data.join(back.file_name().unwrap()));
            let (before, after) = (tree::disk_usage(&source), tree::disk_usage(&back));
            assert!(
                after <= before + before / 10,
                "holes were filled: {before} -> {after}"
            );
        }
    }
    assert!(server.terminate().success());
}

/// As with cp(1), a directory is copied into an existing one, and the content of `DIR/.` to the
/// target itself, which completes a copy under a new name.
#[test]
fn what_is_in_a_folder_goes_to_the_place_itself() {
    let dir = tempfile::tempdir().unwrap();
    let (source, data) = (dir.path().join("source"), dir.path().join("data"));
    tree::make(&source);
    if !rustix::process::geteuid().is_root() {
        // As with cp(1), `put` writes to an existing file, which its mode forbids here.
        let line = b"left out, for it needs root: copying over a file that nobody may write to\n";
        std::io::stderr().write_all(line).unwrap();
        fs::set_permissions(source.join("mode-444"), Permissions::from_mode(0o644)).unwrap();
    }
    fs::create_dir(&data).unwrap();
    let server = Server::of(&data);
    let url = server.url(Proto::Rdma, "/data/new");
    let put = |source: &Path| {
        let source = source.to_str().unwrap().to_owned();
        run([
            &["put".into(), "-r".into()],
            &options(Proto::Rdma, "nconnect=1")[..],
            &[source, url.clone()],
        ]
        .concat())
        .ok();
    };
    put(&source);
    for content in [".", "./"] {
        put(&source.join(content));
        tree::assert_same(&source, &data.join("new"));
    }
    put(&source);
    tree::assert_same(&source, &data.join("new/source"));
}

#[test]
fn two_clients_at_once_do_not_mix_up_their_trees() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    fs::create_dir(&data).unwrap();
    let server = Server::of(&data);
    let sources: Vec<_> = BOTH
        .into_iter()
        .map(|proto| {
            let source = dir.path().join(format!("source-{}", proto.name()));
            tree::make(&source);
            fs::write(source.join("mine"), proto.name()).unwrap();
            (proto, source)
        })
        .collect();
    for command in ["put", "get"] {
        let clients: Vec<_> = sources
            .iter()
            .map(|(proto, source)| {
                let url = server.url(*proto, &format!("/data/{}", proto.name()));
                let mut rpcrdma = rpcrdma();
                rpcrdma.args([command, "-r"]).args(options(*proto, ""));
                match command {
                    "put" => rpcrdma.arg(source).arg(url),
                    _ => rpcrdma
                        .arg(url)
                        .arg(dir.path().join(format!("back-{}", proto.name()))),
                };
                Running::start(&mut rpcrdma)
            })
            .collect();
        for client in clients {
            client.finish().ok();
        }
    }
    for (proto, source) in &sources {
        tree::assert_same(source, &dir.path().join(format!("back-{}", proto.name())));
    }
}

#[test]
fn a_tree_fits_through_a_memory_export() {
    let dir = tempfile::tempdir().unwrap();
    let (source, back) = (dir.path().join("source"), dir.path().join("back"));
    tree::make(&source);
    let server = Server::start(["--memory=1G:no_root_squash"]);
    let url = server.url(Proto::Rdma, "/memory/tree");
    let copy = |words: &[&str]| {
        let mut command = rpcrdma();
        command.args(words).args(options(Proto::Rdma, ""));
        Running::start(&mut command).finish().ok()
    };
    copy(&["put", "-r", source.to_str().unwrap(), &url]);
    copy(&["get", "-r", &url, back.to_str().unwrap()]);
    tree::assert_same(&source, &back);
}

/// Combinations of version 1 only with both versions, and a client with version 2 only.
#[test]
fn trees_survive_every_pairing_of_versions() {
    let dir = tempfile::tempdir().unwrap();
    let (source, data) = (dir.path().join("source"), dir.path().join("data"));
    tree::make_small(&source);
    fs::create_dir(&data).unwrap();
    let export = common::export("data", &data, UNSYNCED);
    for (serves, wants, spoken) in [
        ("1", "1", "version 1: as asked for"),
        ("1", "auto", "version 1: the server refused version 2"),
        ("1,2", "1", "version 1: as asked for"),
        ("1,2", "auto", "version 2: the server answered in it"),
        ("1,2", "2", "version 2: the server answered in it"),
        ("2wg", "2wg", "version 2wg: the server answered in it"),
        ("1,2,2wg", "2wg", "version 2wg: the server answered in it"),
        ("1,2,2wg", "2", "version 2: the server answered in it"),
        ("1,2,2wg", "1", "version 1: as asked for"),
        ("1,2,2wg", "auto", "version 2wg: the server answered in it"),
        ("1,2wg", "auto", "version 2wg: the server answered in it"),
        ("2", "auto", "version 2: the server answered in it"),
    ] {
        let server = Server::start(["--export", &export, "--rpcrdma", serves]);
        let choice = format!("rpcrdma={wants}");
        let back = dir.path().join(format!("{serves}-{wants}"));
        there_and_back(&server, Proto::Rdma, &choice, &source, &back);
        tree::assert_same(&source, &back);
        let address = server.url(Proto::Rdma, "");
        let address = address.trim_start_matches("nfs://").to_owned();
        let ping = ["ping", "-v", "-c", "5", &address].map(str::to_owned);
        let options = options(Proto::Rdma, &choice);
        let said = run([&ping[..], &options].concat()).ok().stdout;
        assert!(said.contains(spoken), "{serves} {wants}: {said}");
        // In version 2, there are receives for placed data by default.
        let receives: &[&str] = match spoken.starts_with("version 2") {
            true => &[
                "inline, to the peer: 66560 B",
                "bulk data placed by Sends, to the peer: yes",
                "bulk data placed by Sends, from the peer: yes",
            ],
            false => &["inline, to the peer: 4096 B"],
        };
        for text in receives {
            assert!(said.contains(text), "{serves} {wants}: {said}");
        }
    }
}

/// RFC 8797, section 4.2: in each direction the shorter of the sender's and the receiver's size applies.
#[test]
fn the_longest_messages_without_chunks_are_an_option_of_both_ends() {
    let dir = tempfile::tempdir().unwrap();
    let (source, data) = (dir.path().join("source"), dir.path().join("data"));
    tree::make_small(&source);
    fs::create_dir(&data).unwrap();
    let export = common::export("data", &data, UNSYNCED);
    for (serves, wants, to_peer, from_peer) in [
        (None, "256k", "4096 B", "4096 B"),
        (Some("256k"), "4k", "4096 B", "4096 B"),
        (Some("256k"), "256k", "262144 B", "262144 B"),
        (Some("128k:64k"), "32k:256k", "32768 B", "131072 B"),
        (Some("1k"), "64k", "1024 B", "1024 B"),
    ] {
        let option = serves.map_or(Vec::new(), |sizes| vec!["--inline", sizes]);
        let server = Server::start([&["--export", &export][..], &option].concat());
        let choice = format!("rpcrdma=1,inline={wants}");
        let back = dir
            .path()
            .join(format!("{serves:?}-{wants}").replace(':', "-"));
        there_and_back(&server, Proto::Rdma, &choice, &source, &back);
        tree::assert_same(&source, &back);
        let address = server.url(Proto::Rdma, "");
        let address = address.trim_start_matches("nfs://").to_owned();
        let ping = ["ping", "-v", "-c", "5", &address].map(str::to_owned);
        let said = run([&ping[..], &options(Proto::Rdma, &choice)].concat()).ok();
        for text in [
            format!("inline, to the peer: {to_peer}"),
            format!("inline, from the peer: {from_peer}"),
        ] {
            assert!(said.stdout.contains(&text), "{serves:?} {wants}: {said:#?}");
        }
    }
}

/// All combinations of features for fewer round trips, in both versions 2: 32 copies in each direction, with fewer
/// of the identical files, because emulation is slow.
#[test]
fn trees_survive_every_pairing_of_features() {
    let dir = tempfile::tempdir().unwrap();
    let (source, data) = (dir.path().join("source"), dir.path().join("data"));
    tree::make_small(&source);
    fs::create_dir(&data).unwrap();
    let export = common::export("data", &data, UNSYNCED);
    let each = ["none", "ddp", "cont", "ddp+cont"];
    for serves in each {
        let server = Server::start(["--export", &export, "--features", serves]);
        for wants in each {
            for version in ["2", "2wg"] {
                let choice = format!("rpcrdma={version},features={wants}");
                let back = dir.path().join(format!("{serves}-{version}-{wants}"));
                there_and_back(&server, Proto::Rdma, &choice, &source, &back);
                tree::assert_same(&source, &back);
            }
        }
    }
}

#[test]
fn a_server_without_the_version_that_is_wanted_is_told_of() {
    let pairs = [
        ("1", "2", "refused version 2 and speaks 1"),
        ("1", "2wg", "refused version 2 and speaks 1"),
        ("2", "1", "version 2 only"),
        ("2", "2wg", "answered in version 2"),
        ("2wg", "1", "version 2 only"),
        ("2wg", "2", "answered in version 2wg"),
    ];
    for (serves, wants, said) in pairs {
        let server = Server::start(["--memory", "--rpcrdma", serves]);
        let ls = ["ls".to_owned(), server.url(Proto::Rdma, "/memory")];
        let ping = ["ping", "-c", "1", &server.rdma.to_string()].map(str::to_owned);
        for command in [&ls[..], &ping[..]] {
            let chosen = options(Proto::Rdma, &format!("rpcrdma={wants}"));
            let advice = format!("leave out rpcrdma={wants}");
            let refused = run([command, &chosen[..]].concat());
            let refused = refused.fails_with(&["no version in common", said, &advice]);
            assert!(
                !refused.stderr.contains("is `rpcrdma serve` running"),
                "{refused:#?}"
            );
        }
        // The advice helps.
        for command in [&ls[..], &ping[..]] {
            run([command, &options(Proto::Rdma, "")[..]].concat()).ok();
        }
    }
}

/// A client asks for version 2 first to find out the version, which must not cause a warning.
#[test]
fn clients_that_negotiate_are_no_reason_for_a_warning() {
    let free = || {
        let listener = std::net::TcpListener::bind((address(), 0)).unwrap();
        listener.local_addr().unwrap().port().to_string()
    };
    let (port, tcp_port, listen) = (free(), free(), address().to_string());
    let mut serve = rpcrdma();
    serve.args(["serve", "--memory", "--rpcrdma", "1", "--listen", &listen]);
    serve.args(["--port", &port, "--tcp-port", &tcp_port]);
    serve.args(common::server_place());
    let server = Running::start(&mut serve);
    let ping = ["ping", "-v", "-c", "3", &format!("{listen}:{port}")].map(str::to_owned);
    let start = std::time::Instant::now();
    loop {
        let said = run([&ping[..], &options(Proto::Rdma, "")].concat());
        if said.status.success() {
            assert!(
                said.stdout
                    .contains("version 1: the server refused version 2"),
                "{said:#?}"
            );
            break;
        }
        assert!(start.elapsed() < common::patience(), "{said:#?}");
    }
    server.interrupt();
    let log = server.finish().stderr;
    assert!(!log.contains("WARN"), "{log}");
}

/// Runs a command of the shell, in which `rpcrdma` is the built command.
fn shell(script: &str, dir: &Path) -> common::Finished {
    let built = rpcrdma();
    let mut shell = std::process::Command::new("bash");
    shell.args(["-c", &format!("set -o pipefail; {script}")]);
    shell.env("RPCRDMA", built.get_program()).current_dir(dir);
    shell.stdin(Stdio::null());
    Running::start(&mut shell).finish()
}

#[test]
fn standard_input_and_output_are_files_called_minus() {
    let (exported, local) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = Server::of(exported.path());
    let bytes = tree::noise(40_000_003, 5);
    fs::write(local.path().join("long"), &bytes).unwrap();
    let here = |script: &str| shell(script, local.path());
    for proto in BOTH {
        let url = |name: &str| server.url(proto, &format!("/data/{name}"));
        let with = options(proto, "").join(" ");
        // Through pipes, whose length nobody knows.
        let put = here(&format!(
            "umask 027; cat long | $RPCRDMA put - {} {with}",
            url("copy")
        ))
        .ok();
        assert!(put.stdout.contains("copied 1 file, 38.1 MiB"), "{put:#?}");
        let copy = exported.path().join("copy");
        assert!(fs::read(&copy).unwrap() == bytes);
        assert_eq!(
            copy.metadata().unwrap().permissions().mode() & 0o7777,
            0o640
        );
        here(&format!(
            "$RPCRDMA get {} - {with} | cmp - long",
            url("copy")
        ))
        .ok();
        // What was there is replaced, and keeps its permissions.
        fs::set_permissions(&copy, Permissions::from_mode(0o604)).unwrap();
        here(&format!(
            "(echo a; sleep 0.1; echo b) | $RPCRDMA put - {} {with}",
            url("copy")
        ))
        .ok();
        assert_eq!(fs::read(&copy).unwrap(), b"a\nb\n");
        assert_eq!(
            copy.metadata().unwrap().permissions().mode() & 0o7777,
            0o604
        );
        let empty = here(&format!(
            "$RPCRDMA put - {} {with} && $RPCRDMA get {0} - {with}",
            url("empty")
        ));
        assert_eq!(empty.ok().stdout.lines().count(), 1);
        assert_eq!(exported.path().join("empty").metadata().unwrap().len(), 0);
        // Files of that name.
        fs::write(local.path().join("-"), "named").unwrap();
        here(&format!("$RPCRDMA put ./- {} {with}", url(""))).ok();
        assert_eq!(fs::read(exported.path().join("-")).unwrap(), b"named");
        here(&format!("rm ./-; $RPCRDMA get {} ./- {with}", url("-"))).ok();
        assert_eq!(fs::read(local.path().join("-")).unwrap(), b"named");
        // What cannot be.
        for (script, said) in [
            (
                format!("$RPCRDMA get {} - {with} >/dev/full", url("copy")),
                "No space left",
            ),
            (
                format!("$RPCRDMA put - {} {with}", url("nowhere/copy")),
                "no such file",
            ),
            (
                format!("$RPCRDMA put - {} {with} <.", url("dir")),
                "Is a directory",
            ),
            (format!("$RPCRDMA get {} - {with}", url("")), "directory"),
        ] {
            let failed = here(&script);
            assert_eq!(failed.status.code(), Some(1), "{script}: {failed:#?}");
            assert!(
                failed.stderr.to_lowercase().contains(&said.to_lowercase()),
                "{failed:#?}"
            );
        }
        for script in [
            format!("$RPCRDMA put -r - {} {with}", url("copy")),
            format!("$RPCRDMA get -r {} - {with}", url("copy")),
            format!("$RPCRDMA put - {} {with}", url("")),
        ] {
            let refused = here(&script);
            assert_eq!(refused.status.code(), Some(2), "{script}: {refused:#?}");
        }
        fs::remove_file(&copy).unwrap();
    }
}

/// Regression test: each file had a line.
#[test]
fn a_full_server_is_reported_in_one_line() {
    let server = Server::start(["--memory=64k"]);
    let local = tempfile::tempdir().unwrap();
    for n in 0..30 {
        fs::write(local.path().join(n.to_string()), [1; 8 << 10]).unwrap();
    }
    let mut put = rpcrdma();
    put.args(["put", "-r", "-o", "proto=tcp"])
        .arg(local.path())
        .arg(server.url(Proto::Tcp, "/memory/tree"));
    let failed = Running::start(&mut put).finish();
    assert_eq!(failed.status.code(), Some(1), "{failed:#?}");
    let lines = failed.stderr.lines();
    let full: Vec<_> = lines.filter(|line| line.contains("NOSPC")).collect();
    assert_eq!(full.len(), 1, "{failed:#?}");
    let more = full[0].split_once("(and ").unwrap().1;
    let more: usize = more
        .split_once(" more entries failed for the same reason)")
        .unwrap()
        .0
        .parse()
        .unwrap();
    assert!(more > 20, "{failed:#?}");
}

/// Regression test: what had failed was not told, and the status was 0.
#[test]
fn a_copy_that_fails_tells_it_also_if_nobody_reads_the_summary() {
    let server = Server::start(["--memory=64k"]);
    let local = tempfile::tempdir().unwrap();
    fs::write(local.path().join("small"), [1; 10]).unwrap();
    fs::write(local.path().join("large"), [1; 128 << 10]).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut put = rpcrdma();
    put.args(["put", "-r", "-o", "proto=tcp"])
        .arg(local.path())
        .arg(server.url(Proto::Tcp, "/memory/tree"))
        .stdout(writer);
    let failed = put.output().unwrap();
    let told = String::from_utf8_lossy(&failed.stderr);
    assert_eq!(failed.status.code(), Some(1), "{told}");
    assert!(told.contains("NOSPC") && told.contains("large"), "{told}");
}

/// Regression test: when a file became shorter, `cat` printed data that it had already read beyond the new
/// end, directly after the data before the gap, and exited with 0.
#[test]
fn a_file_that_becomes_shorter_fails_cat() {
    const LEN: usize = 64 << 20;
    const SHORT: usize = (32 << 20) + 10;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, vec![b'x'; LEN]).unwrap();
    let server = Server::of(dir.path());
    for proto in BOTH {
        fs::OpenOptions::new()
            .write(true)
            .open(&file)
            .unwrap()
            .set_len(LEN as u64)
            .unwrap();
        let mut cat = rpcrdma();
        cat.arg("cat")
            .args(options(proto, ""))
            .arg(server.url(proto, "/data/file"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut cat = cat.spawn().unwrap();
        let mut out = cat.stdout.take().unwrap();
        let mut read = vec![0; 4096];
        out.read_exact(&mut read).unwrap();
        // What has been read ahead is far from here.
        fs::OpenOptions::new()
            .write(true)
            .open(&file)
            .unwrap()
            .set_len(SHORT as u64)
            .unwrap();
        out.read_to_end(&mut read).unwrap();
        assert_eq!(read.len(), SHORT);
        let failed = cat.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&failed.stderr);
        assert_eq!(failed.status.code(), Some(1), "{told}");
        assert!(told.contains("became shorter"), "{told}");
    }
}

/// Returns the numbers in what a server with `--direct-io` prints at its end.
fn direct_io_bytes(said: &str) -> Vec<u64> {
    let (_, counts) = said.split_once("written directly: ").expect(said);
    let numbers = counts.split(|c: char| !c.is_ascii_digit());
    numbers.filter_map(|number| number.parse().ok()).collect()
}

#[test]
fn files_are_served_without_the_page_cache() {
    // 73 pages, and a part of one.
    const PAGES: u64 = 73 * 4096;
    let here = tempfile::tempdir().unwrap();
    let (data, back) = (
        tree::noise(PAGES as usize + 999, 7),
        here.path().join("back"),
    );
    fs::write(here.path().join("f"), &data).unwrap();
    for (proto, more) in [
        (Proto::Rdma, "rpcrdma=2"),
        (Proto::Rdma, "rpcrdma=2wg"),
        (Proto::Rdma, "rpcrdma=1"),
        // Up to 64 transmissions of 4 KiB; a longer WRITE would be fetched.
        (Proto::Rdma, "rpcrdma=2,features=cont,wsize=65536"),
        (Proto::Tcp, ""),
    ] {
        let there = tempfile::tempdir().unwrap();
        let said = here.path().join("said");
        let export = common::export("data", there.path(), "no_root_squash");
        let mut command = rpcrdma();
        command.stderr(fs::File::create(&said).unwrap());
        let server = Server::start_command(command, 0, 0, ["--direct-io", "--export", &export]);
        let url = server.url(proto, "/data/f");
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        for (name, from, to) in [
            ("put", text(&here.path().join("f")), url.clone()),
            ("get", url.clone(), text(&back)),
        ] {
            let args = [&[name.to_owned()], &options(proto, more)[..], &[from, to]];
            run(args.concat()).ok();
        }
        assert!(fs::read(&back).unwrap() == data, "{more}");
        assert!(fs::read(there.path().join("f")).unwrap() == data, "{more}");
        fs::remove_file(&back).unwrap();
        assert!(server.terminate().success());
        let said = fs::read_to_string(said).unwrap();
        let flags = rustix::fs::OFlags::DIRECT.bits().cast_signed();
        let mut direct = fs::File::options();
        let direct = direct.read(true).custom_flags(flags);
        if direct.open(there.path().join("f")).is_err() {
            assert!(said.contains("no direct I/O in the file system"), "{said}");
            continue;
        }
        let counts = direct_io_bytes(&said);
        let [in_place, copied, buffered, read, _] = counts[..] else {
            panic!("{said}");
        };
        assert_eq!(
            (in_place + copied, buffered),
            (PAGES, 999),
            "{more}: {said}"
        );
        assert_eq!(read, data.len() as u64, "{more}: {said}");
        // What arrives aligned: placed data, and what an RDMA Read fetches. Continued messages are
        // taken as long as there are credits.
        if is_iwarp() && proto == Proto::Rdma {
            let is_continued = more.contains("cont");
            assert_eq!(in_place < PAGES, is_continued, "{more}: {said}");
        }
    }
}
