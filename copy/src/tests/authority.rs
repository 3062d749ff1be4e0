//! Tests that copies do not give one user's authority to another.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};

use super::*;
use crate::Owner;

fn mode(path: PathBuf) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn make(path: PathBuf, mode: u32) {
    fs::write(&path, "program").unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn set_id_bits_stay_with_their_owner() {
    let rig = Fixture::directory(AttachOptions::default());
    make(rig.local("file"), 0o6755);
    complete(&rig.put("file", "copy"));
    complete(&rig.get("copy", "back"));
    for path in [rig.exported("copy"), rig.local("back")] {
        assert_eq!(mode(path), 0o6755, "the owner is the same");
    }
}

#[test]
fn set_id_bits_go_where_the_owner_is_not_kept() {
    if !is_root("files of somebody else's with set-id bits") {
        return;
    }
    let mut rig = Fixture::directory(AttachOptions::default());
    rig.options.owner = Owner::No;
    fs::create_dir(rig.local("tree")).unwrap();
    let others = [
        ("user", Some(1234), None, 0o4755),
        ("group", None, Some(5678), 0o2755),
        ("both", Some(1234), Some(5678), 0o6711),
    ];
    for (name, uid, gid, bits) in others {
        let path = rig.local("tree").join(name);
        fs::write(&path, "program").unwrap();
        chown(&path, uid, gid).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(bits)).unwrap();
    }
    let folder = rig.local("tree/folder");
    fs::create_dir(&folder).unwrap();
    chown(&folder, Some(1234), Some(5678)).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o3777)).unwrap();

    complete(&rig.put("tree", "copy"));
    // The fetched file belongs to another user again.
    rig.options.owner = Owner::Yes;
    complete(&rig.put("tree", "theirs"));
    rig.options.owner = Owner::No;
    complete(&rig.get("theirs", "back"));
    for tree in [rig.exported("copy"), rig.local("back")] {
        for (name, _, _, bits) in others {
            assert_eq!(mode(tree.join(name)), bits & 0o777, "{}", tree.display());
        }
        // The sticky bit only protects, so it is kept.
        assert_eq!(mode(tree.join("folder")), 0o1777);
    }
    for (name, _, _, bits) in others {
        let kept = mode(rig.exported("theirs").join(name));
        assert_eq!(kept, bits, "with their owner, they are kept");
    }
}

#[test]
fn a_copy_that_is_to_have_no_set_id_bits_has_none() {
    let mut rig = Fixture::directory(AttachOptions::default());
    rig.options.set_id = CopyOptions::default().set_id;
    let trees = [rig.local("tree"), rig.exported("theirs")];
    for tree in trees {
        fs::create_dir(&tree).unwrap();
        make(tree.join("program"), 0o6755);
        make(tree.join("other"), 0o1711);
        fs::create_dir(tree.join("shared")).unwrap();
        fs::set_permissions(tree.join("shared"), fs::Permissions::from_mode(0o2775)).unwrap();
    }
    let reports = [rig.put("tree", "copy"), rig.get("theirs", "back")];
    for (report, tree) in reports
        .iter()
        .zip([rig.exported("copy"), rig.local("back")])
    {
        complete(report);
        assert_eq!(report.totals.set_ids_left_out, 1);
        assert_eq!(mode(tree.join("program")), 0o755);
        assert_eq!(mode(tree.join("other")), 0o1711);
        // On a directory, the bit only gives its group to new entries.
        assert_eq!(mode(tree.join("shared")), 0o2775);
    }
}

#[test]
fn devices_are_left_out_where_they_are_not_wanted() {
    if !is_root("devices") {
        return;
    }
    let mut rig = Fixture::directory(AttachOptions::default());
    for tree in [rig.local("tree"), rig.exported("theirs")] {
        fs::create_dir(&tree).unwrap();
        fs::write(tree.join("file"), "file").unwrap();
        for (name, kind) in [
            ("null", rustix::fs::FileType::CharacterDevice),
            ("block", rustix::fs::FileType::BlockDevice),
        ] {
            let made = mknodat(CWD, tree.join(name), kind, Mode::RUSR, 0x103);
            made.unwrap();
        }
    }
    rig.options.devices = CopyOptions::default().devices;
    let reports = [rig.put("tree", "copy"), rig.get("theirs", "back")];
    for (report, tree) in reports
        .iter()
        .zip([rig.exported("copy"), rig.local("back")])
    {
        complete(report);
        assert_eq!(report.totals.devices_left_out, 2);
        assert_eq!(report.totals.others, 0);
        let left: Vec<_> = fs::read_dir(tree).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "{left:?}");
        assert_eq!(left[0].file_name(), "file");
    }
    rig.options.devices = true;
    complete(&rig.get("theirs", "all"));
    let kind = fs::metadata(rig.local("all/null")).unwrap().file_type();
    assert!(kind.is_char_device());
}
