//! Set-id bits, which the server takes away from a file that is written.

use super::*;

/// A client of an ordinary user, who has a file with these bits that the kernel was told of, open.
fn with_set_id() -> (Fixture, u64, u64) {
    let mut fixture = fixture();
    fixture.user = fixture.core.user(Requester {
        uid: 1000,
        gid: 1000,
        pid: 0,
    });
    let (ino, file) = fixture.create(b"f");
    let mode = SetAttributes {
        mode: Some(0o4755),
        ..SetAttributes::default()
    };
    let setting = fixture.core.setattr(&fixture.user, ino, None, mode);
    let stat = fixture.run(setting).unwrap();
    assert_eq!(stat.attributes.mode, 0o4755);
    assert_eq!(fixture.told.2.borrow()[..], [0; 0]);
    (fixture, ino, file)
}

impl Fixture {
    /// Checks that a request ends only when the kernel has forgotten the attributes of a file, and
    /// whether it has to.
    fn forgets<T>(&self, ino: u64, request: impl Future<Output = Result<T, Errno>>) {
        self.told.3.borrow_mut().insert(ino);
        self.run(async {
            let mut request = Box::pin(request);
            while self.told.2.borrow().is_empty() {
                assert!(poll!(&mut request).is_pending());
                turn().await;
            }
            for _ in 0..50 {
                assert!(poll!(&mut request).is_pending());
                turn().await;
            }
            assert_eq!(self.told.2.borrow()[..], [ino]);
            self.told.3.borrow_mut().clear();
            self.core.invalidated.wake();
            assert!(request.await.is_ok());
        });
    }
}

/// The kernel executes a file with the mode that it was told, and would give the program the
/// owner's rights.
#[test]
fn a_write_that_takes_set_id_bits_away_ends_only_when_the_kernel_has_forgotten_them() {
    let (fixture, ino, file) = with_set_id();
    let through = WriteMode {
        through: true,
        ..WriteMode::default()
    };
    let write = || fixture.core.write(file, 0, Bytes::from("data"), through);
    fixture.forgets(ino, write());
    // Nothing more is known to be wrong.
    fixture.run(write()).unwrap();
    assert_eq!(fixture.told.2.borrow().len(), 1);
    let stat = fixture.run(fixture.core.getattr(&fixture.user, ino));
    assert_eq!(stat.unwrap().attributes.mode, 0o755);
    fixture.run(write()).unwrap();
    assert_eq!(fixture.told.2.borrow().len(), 1);
}

/// The server takes them away when the data is sent.
#[test]
fn a_close_or_fsync_ends_only_when_the_kernel_has_forgotten_set_id_bits() {
    for closes in [true, false] {
        let (fixture, ino, file) = with_set_id();
        fixture.write(file, 0, vec![1; 100]);
        match closes {
            true => fixture.forgets(ino, fixture.core.close(file)),
            false => fixture.forgets(ino, fixture.core.fsync(file)),
        }
    }
}
