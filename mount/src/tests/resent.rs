//! Changes of directories that the server has executed before it restarted, and whose calls are
//! sent again.

use super::*;

impl Fixture {
    /// Loses the reply to the first call of each procedure from now on.
    fn loses_replies(&self) {
        let mut lost = BTreeSet::new();
        self.server.plan(move |proc, _| {
            let changes = [
                nfs::Create::NUMBER,
                nfs::Mkdir::NUMBER,
                nfs::Symlink::NUMBER,
                nfs::Mknod::NUMBER,
                nfs::Remove::NUMBER,
                nfs::Rmdir::NUMBER,
                nfs::Rename::NUMBER,
                nfs::Link::NUMBER,
            ];
            match changes.contains(&proc) && lost.insert(proc) {
                true => Fault::ReplyLost,
                false => Fault::None,
            }
        });
    }

    fn make_directory(&self, name: &[u8]) -> Result<u64, Errno> {
        let made = self.run(self.core.mkdir(&self.user, ROOT, name, 0o755));
        made.map(|found| found.stat.unwrap().ino)
    }

    fn make_link(&self, name: &[u8], target: &[u8]) -> Result<u64, Errno> {
        let made = self.run(self.core.symlink(&self.user, ROOT, name, target));
        made.map(|found| found.stat.unwrap().ino)
    }

    fn make_node(&self, name: &[u8], file_type: FileType) -> Result<u64, Errno> {
        let (core, device) = (&self.core, nfs_binding::proto::DeviceNumber::default());
        let made = self.run(core.mknod(&self.user, ROOT, name, file_type, 0o644, device));
        made.map(|found| found.stat.unwrap().ino)
    }

    fn hard_link(&self, ino: u64, name: &[u8]) -> Result<u64, Errno> {
        let made = self.run(self.core.link(&self.user, ino, ROOT, name));
        made.map(|found| found.stat.unwrap().ino)
    }
}

#[test]
fn what_was_done_before_a_restart_is_no_error() {
    let fixture = fixture();
    let (ino, file) = fixture.create(b"f");
    fixture.close(file).unwrap();
    fixture.loses_replies();
    let made = [
        fixture.make_directory(b"directory").unwrap(),
        fixture.make_link(b"symlink", b"target").unwrap(),
        fixture.make_node(b"pipe", FileType::Fifo).unwrap(),
        fixture.make_node(b"file", FileType::Regular).unwrap(),
    ];
    assert_eq!(fixture.hard_link(ino, b"link"), Ok(ino));
    fixture.rename(b"f", b"g").unwrap();
    assert_eq!(fixture.find(b"f"), None);
    assert_eq!(fixture.find(b"g"), Some(ino));
    let names: [&[u8]; 4] = [b"directory", b"symlink", b"pipe", b"file"];
    assert_eq!(names.map(|name| fixture.find(name).unwrap()), made);
    fixture.unlink(b"g").unwrap();
    let removing = fixture.core.rmdir(&fixture.user, ROOT, b"directory");
    fixture.run(removing).unwrap();
    let mut left = fixture.names();
    left.sort_unstable();
    assert_eq!(left, ["file", "link", "pipe", "symlink"]);
    for procedure in [
        fixture.calls::<nfs::Mkdir>(),
        fixture.calls::<nfs::Symlink>(),
        fixture.calls::<nfs::Mknod>(),
        fixture.calls::<nfs::Link>(),
        fixture.calls::<nfs::Rename>(),
        fixture.calls::<nfs::Remove>(),
        fixture.calls::<nfs::Rmdir>(),
    ] {
        assert_eq!(procedure, 1);
    }
}

/// Two clients that use `mkdir`, or another of these, as a lock must not both get it.
#[test]
fn what_another_client_has_made_is_an_error_also_if_the_call_was_sent_again() {
    let [one, two] = clients();
    let exist = Err(Errno::EXIST);
    let (ino, file) = one.create(b"f");
    one.close(file).unwrap();
    two.make_directory(b"directory").unwrap();
    two.make_link(b"symlink", b"two").unwrap();
    two.make_node(b"pipe", FileType::Fifo).unwrap();
    two.make_node(b"file", FileType::Regular).unwrap();
    one.loses_replies();
    assert_eq!(one.make_directory(b"directory"), exist);
    assert_eq!(one.make_link(b"symlink", b"one"), exist);
    assert_eq!(one.make_node(b"pipe", FileType::Fifo), exist);
    assert_eq!(one.make_node(b"file", FileType::Regular), exist);
    assert_eq!(one.hard_link(ino, b"pipe"), exist);
    // It is there, but not what was to be renamed.
    two.unlink(b"f").unwrap();
    assert_eq!(one.rename(b"f", b"pipe"), Err(Errno::NOENT));
}

/// Without a lost connection, the error is the outcome.
#[test]
fn the_error_of_a_call_that_was_sent_once_stays() {
    let [one, two] = clients();
    let (ino, file) = one.create(b"f");
    one.close(file).unwrap();
    one.make_link(b"symlink", b"target").unwrap();
    one.hard_link(ino, b"link").unwrap();
    let exist = Err(Errno::EXIST);
    assert_eq!(one.make_link(b"symlink", b"target"), exist);
    assert_eq!(one.hard_link(ino, b"link"), exist);
    two.unlink(b"f").unwrap();
    assert_eq!(one.unlink(b"f"), Err(Errno::NOENT));
}

#[test]
fn an_open_file_keeps_its_hidden_name_also_if_the_server_restarts() {
    let fixture = fixture();
    let file = fixture.open_file(b"f");
    fixture.loses_replies();
    fixture.removes_while_open(b"f", file);
    let file = fixture.open_file(b"f");
    let (_, other) = fixture.create(b"g");
    fixture.close(other).unwrap();
    fixture.loses_replies();
    fixture.rename(b"g", b"f").unwrap();
    assert_eq!(fixture.read(file, 0, 200).len(), 100);
    fixture.close(file).unwrap();
    assert_eq!(fixture.names(), ["f"]);
}

/// The time by which a call is recognised is one of the present.
#[test]
fn marks_are_near_the_present_and_differ() {
    let fixture = fixture();
    let now = std::time::SystemTime::now();
    let since = now.duration_since(std::time::UNIX_EPOCH).unwrap();
    let marks: BTreeSet<_> = (0..1000)
        .map(|_| {
            let mark = fixture.core.mark();
            assert!(mark.nanos < 1_000_000_000);
            let mark = Duration::new(mark.seconds.into(), mark.nanos);
            assert!(mark.abs_diff(since) < Duration::from_secs(5));
            mark
        })
        .collect();
    // Two of them may agree by chance.
    assert!(marks.len() >= 990, "{}", marks.len());
}
