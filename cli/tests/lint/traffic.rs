//! Captures of this project's own traffic.

use std::fs;
use std::path::{Path, PathBuf};

use rpcrdma_reading::{Collected, Version, read};
use tempfile::TempDir;

use crate::common::{Proto, Server, options, run};

/// Mount options, with the version that they lead to.
pub(super) const WAYS: [(&str, Version); 6] = [
    ("rpcrdma=1", Version::One),
    ("rpcrdma=1,inline=64k", Version::One),
    ("rpcrdma=2,features=none", Version::Two),
    ("rpcrdma=2,features=ddp+cont", Version::Two),
    ("rpcrdma=2wg,features=cont", Version::TwoWg),
    ("rpcrdma=2wg,features=ddp+cont", Version::TwoWg),
];

pub(super) fn text(path: &Path) -> String {
    path.to_str().expect("a name in UTF-8").to_owned()
}

/// Captures of a client's traffic: WRITE, READDIRPLUS, READ and GETATTR in each way, long and short.
pub(super) struct Traffic {
    _folder: TempDir,
    pub(super) captures: Vec<(PathBuf, Version)>,
}

impl Traffic {
    /// Makes captures with these options.
    pub(super) fn new(ways: &[(&str, Version)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: String| folder.path().join(name);
        let (long, short, back) = (at("long".into()), at("short".into()), at("back".into()));
        fs::write(&long, vec![7; 300_000]).unwrap();
        fs::write(&short, vec![8; 8192]).unwrap();
        let mut captures = Vec::new();
        for (n, &(way, version)) in ways.iter().enumerate() {
            let name = |what| at(format!("{n}-{what}.pcapng"));
            let inline = if way.contains("inline") { "64k" } else { "4k" };
            let server = Server::start(["--memory", ":insecure", "--inline", inline]);
            let [o, with] = options(Proto::Rdma, way);
            let url = |path: &str| server.url(Proto::Rdma, path);
            let commands = [
                ("put", vec![text(&long), text(&short), url("/memory/")]),
                (
                    "ping",
                    ["-c", "20", "--op", "getattr"]
                        .map(str::to_owned)
                        .into_iter()
                        .chain([url("/memory")])
                        .collect(),
                ),
                ("get", vec!["-r".into(), url("/memory"), text(&back)]),
            ];
            for (command, words) in commands {
                let file = name(command);
                let to = ["--capture".to_owned(), text(&file)];
                let args = [
                    vec![command.to_owned(), o.clone(), with.clone()],
                    to.to_vec(),
                    words,
                ];
                run(args.concat()).ok();
                captures.push((file, version));
            }
            fs::remove_dir_all(&back).unwrap();
        }
        Self {
            _folder: folder,
            captures,
        }
    }

    pub(super) fn named<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Path> {
        let name = format!("{name}.pcapng");
        let captures = self.captures.iter().map(|(file, _)| file.as_path());
        captures.filter(move |file| text(file).ends_with(&name))
    }
}

pub(super) fn collect(bytes: &[u8]) -> Collected {
    let mut all = Collected::up_to(100_000);
    read(bytes, &mut all).unwrap();
    all
}
