//! Helpers that several tests of `conform` share.

use std::fs;
use std::path::Path;

use super::{Finished, Proto, Server, run};

/// Runs `conform` with these words against the memory of a server.
#[track_caller]
pub fn judged(server: &Server, words: &[&str]) -> Finished {
    let url = server.url(Proto::Rdma, "/memory");
    run([&["conform", "--timeout", "10s"], words, &[&url]].concat())
}

/// Writes a file in a folder, and returns its path.
pub fn write(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}
