//! Requests whose process is killed.

use super::*;

/// The process that removes an open file is killed while the server renames it.
#[test]
fn a_removal_that_is_cut_off_leaves_no_hidden_name() {
    let fixture = fixture();
    let (_, file) = fixture.create(b"f");
    let core = &fixture.core;
    let unlink = core.unlink(&fixture.user, ROOT, b"f");
    fixture.run(cut_off(unlink, || fixture.calls::<nfs::Rename>() > 0));
    assert_eq!(fixture.names().len(), 1);
    fixture.close(file).unwrap();
    assert_eq!(fixture.names(), [""; 0]);
}

/// The process that renames onto an open file is killed while the server gives that its hidden name.
#[test]
fn a_rename_that_is_cut_off_is_done_all_the_same() {
    let fixture = fixture();
    let (_, file) = fixture.create(b"f");
    let (ino, other) = fixture.create(b"g");
    fixture.close(other).unwrap();
    let core = &fixture.core;
    let rename = core.rename(&fixture.user, (ROOT, b"g"), (ROOT, b"f"));
    fixture.run(cut_off(rename, || fixture.calls::<nfs::Link>() > 0));
    fixture.close(file).unwrap();
    assert_eq!(fixture.names(), ["f"]);
    assert_eq!(fixture.find(b"f"), Some(ino));
}

/// The process that truncates a file is killed while the server is silent. Then the kernel lets others write.
#[test]
fn a_truncation_that_is_cut_off_leaves_later_writes_alone() {
    for append in [false, true] {
        let fixture = fixture();
        let (ino, file) = fixture.create(b"f");
        let other = fixture.open(ino);
        fixture.write(file, 0, vec![1; 100]);
        fixture.close(file).unwrap();
        let silent = Rc::new(Cell::new(true));
        let still = Rc::clone(&silent);
        fixture.server.plan(move |proc, _| match proc {
            nfs::Setattr::NUMBER if still.get() => Fault::Status(Status::JUKEBOX),
            _ => Fault::None,
        });
        let empty = SetAttributes {
            size: Some(0),
            ..SetAttributes::default()
        };
        let core = &fixture.core;
        let mode = WriteMode {
            append,
            ..WriteMode::default()
        };
        let data = Bytes::from(vec![2; 50]);
        fixture.run(async {
            let truncate = core.setattr(&fixture.user, ino, None, empty);
            cut_off(truncate, || fixture.calls::<nfs::Setattr>() > 0).await;
            let answers = async {
                for _ in 0..50 {
                    turn().await;
                }
                silent.set(false);
            };
            let (written, ()) = join(core.write(other, 0, data, mode), answers).await;
            assert_eq!(written, Ok(50));
        });
        fixture.close(other).unwrap();
        assert_eq!(&fixture.read_anew(ino)[..], &[2; 50]);
        assert_eq!(
            fixture.told.0.borrow()[..],
            [ino],
            "the kernel has the old size"
        );
    }
}
