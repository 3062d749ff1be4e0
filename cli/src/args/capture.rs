//! Options about captures, of the commands that have them.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser};
use rdma_capture::{LEAST_SIZE, LEAST_SNAP, Limits, WHOLE};
use rpcrdma_setup::units;

/// Options for writing a capture file.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct CaptureArgs {
    /// Write what passes over RDMA to FILE, a new pcapng file that Wireshark and tshark show as
    /// iWARP over TCP; no privilege is needed (docs/wireshark.md)
    ///
    /// Every connection of this process's RDMA device is a TCP connection in it, which shows both
    /// directions. On the iwarp device, the bytes are those of the wire. Verbs devices do not show
    /// theirs: frames are reconstructed from work requests, completions and memory, and the file
    /// says so. NFS over TCP is not captured.
    #[arg(long, value_name = "FILE", value_parser = PathBufValueParser::new().try_map(file))]
    pub(crate) capture: Option<PathBuf>,

    /// Stop capturing when the file would become longer than this. Default: 1G
    #[arg(long, value_name = "SIZE", requires = "capture", value_parser = capture_size)]
    pub(crate) capture_size: Option<u64>,

    /// Keep only this many bytes of each captured frame. Default: all
    ///
    /// 256 bytes hold all headers, for programs that read bytes. Wireshark shows no more than TCP
    /// and MPA of an FPDU that is cut, so the reply to a call may seem to have none.
    #[arg(long, value_name = "SIZE", requires = "capture", value_parser = snap)]
    pub(crate) snap: Option<u64>,
}

impl CaptureArgs {
    /// Returns the limits of the file.
    pub(crate) fn limits(&self) -> Limits {
        let whole = Limits::default();
        Limits {
            size: self.capture_size.unwrap_or(whole.size),
            // Checked to be at most WHOLE.
            snap: self.snap.map_or(whole.snap, |snap| snap as usize),
        }
    }
}

fn file(path: PathBuf) -> Result<PathBuf, &'static str> {
    match path.as_os_str() == "-" {
        true => Err("a capture goes to a file; for one of that name, write ./-"),
        false => Ok(path),
    }
}

fn capture_size(text: &str) -> Result<u64, String> {
    match units::size(text)? {
        size if size < LEAST_SIZE => Err(format!(
            "no packet fits into that: at least {} are wanted",
            units::show_size(LEAST_SIZE)
        )),
        size => Ok(size),
    }
}

fn snap(text: &str) -> Result<u64, String> {
    let size = units::size(text)?;
    match (LEAST_SNAP as u64..=WHOLE as u64).contains(&size) {
        true => Ok(size),
        false => Err(format!(
            "frames can be cut to {LEAST_SNAP} bytes, which hold the headers, up to {}",
            units::show_size(WHOLE as u64)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_or_a_frame_without_room_for_headers_is_refused() {
        assert_eq!(capture_size("4k"), Ok(4096));
        assert!(capture_size("4095").unwrap_err().contains("4 KiB"));
        assert_eq!(snap("256"), Ok(256));
        assert_eq!(snap("256k"), Ok(256 << 10));
        for wrong in ["0", "97", "262145", "1G"] {
            assert!(snap(wrong).unwrap_err().contains("98 bytes"), "{wrong}");
        }
    }

    #[test]
    fn without_options_everything_is_kept() {
        assert_eq!(CaptureArgs::default().limits(), Limits::default());
    }
}
