//! Tests that fsx detects typical errors of file systems.

use std::io;

use exercise::content;
use exercise::fsx::{self, Kind, Model, MountedFile, Order, Subject};

const ORDER: Order = Order {
    seed: 1,
    count: 3000,
    max_size: 100_000,
    max_len: 20_000,
    direct: false,
};

/// An error in the implementation of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// Bytes that were cut off reappear when the file is extended.
    OldBytesAfterTruncate,
    /// A write that extends the file does not change the size.
    SizeNotExtended,
    /// Data written since the last sync is lost when the file is reopened.
    LostAtReopen,
    /// The last byte of a page is not written.
    LastByteOfPage,
    /// A read beyond the end returns zeroes there.
    ReadsPastEnd,
    /// Reads through a mapping return the state at the last sync.
    StaleMapping,
}

struct Faulty {
    fault: Fault,
    model: Model,
    synced: Model,
    /// The bytes that have been beyond the end.
    beyond: Model,
}

impl Subject for Faulty {
    fn read(&mut self, kind: Kind, offset: usize, len: usize) -> io::Result<Vec<u8>> {
        if self.fault == Fault::StaleMapping && kind == Kind::MapRead {
            return Ok(self.synced.read(offset, len).to_vec());
        }
        let mut bytes = self.model.read(offset, len).to_vec();
        if self.fault == Fault::ReadsPastEnd {
            bytes.resize(len, 0);
        }
        Ok(bytes)
    }

    fn write(&mut self, _: Kind, offset: usize, bytes: &[u8]) -> io::Result<()> {
        let mut bytes = bytes.to_vec();
        if self.fault == Fault::LastByteOfPage && (offset + bytes.len()).is_multiple_of(4096) {
            bytes.pop();
        }
        if self.fault == Fault::SizeNotExtended && offset <= self.model.len() {
            bytes.truncate(self.model.len() - offset);
        }
        self.model.write(offset, &bytes);
        Ok(())
    }

    fn truncate(&mut self, len: usize) -> io::Result<()> {
        if self.model.len() > len {
            self.beyond = self.model.clone();
        }
        let before = self.model.len();
        self.model.truncate(len);
        if self.fault == Fault::OldBytesAfterTruncate && len > before {
            let old = self.beyond.read(before, len - before).to_vec();
            self.model.write(before, &old);
        }
        Ok(())
    }

    fn settle(&mut self, kind: Kind) -> io::Result<()> {
        if self.fault == Fault::LostAtReopen && kind == Kind::Reopen {
            self.model = self.synced.clone();
        }
        self.synced = self.model.clone();
        Ok(())
    }

    fn size(&mut self) -> io::Result<u64> {
        Ok(self.model.len() as u64)
    }
}

fn on(fault: Fault) -> Result<Model, exercise::Failure> {
    let mut faulty = Faulty {
        fault,
        model: Model::default(),
        synced: Model::default(),
        beyond: Model::default(),
    };
    fsx::run(&ORDER, &mut faulty)
}

#[test]
fn a_right_file_passes() {
    assert!(!on(Fault::None).unwrap().is_empty());
}

#[test]
fn every_fault_is_found_and_told_with_seed_and_operations() {
    for fault in [
        Fault::OldBytesAfterTruncate,
        Fault::SizeNotExtended,
        Fault::LostAtReopen,
        Fault::LastByteOfPage,
        Fault::ReadsPastEnd,
        Fault::StaleMapping,
    ] {
        let told = on(fault).expect_err(&format!("{fault:?}")).to_string();
        assert!(
            told.contains("seed 1") || told.contains("at the end"),
            "{fault:?}: {told}"
        );
    }
}

#[test]
fn a_local_file_passes_and_holds_what_the_model_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let mut file = MountedFile::create(&path, false).unwrap();
    let model = fsx::run(&ORDER, &mut file).unwrap();
    let sum = content::sum_of_file(&path).unwrap();
    assert_eq!(sum, content::sum(model.bytes()));
}

#[test]
fn a_seed_makes_the_same_again() {
    let one = on(Fault::None).unwrap();
    assert_eq!(one, on(Fault::None).unwrap());
    let order = Order { seed: 2, ..ORDER };
    let folder = tempfile::tempdir().unwrap();
    let mut file = MountedFile::create(&folder.path().join("file"), false).unwrap();
    assert_ne!(one, fsx::run(&order, &mut file).unwrap());
}
