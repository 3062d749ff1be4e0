//! Attributes and types in FUSE's form.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, INodeNo, TimeOrNow};
use nfs_binding::proto::{DeviceNumber, FileType, NfsTime, SetTime};

use crate::core::find::Stat;

/// Converts the type of an object.
pub(crate) fn kind(file_type: FileType) -> fuser::FileType {
    match file_type {
        FileType::Regular => fuser::FileType::RegularFile,
        FileType::Directory => fuser::FileType::Directory,
        FileType::Block => fuser::FileType::BlockDevice,
        FileType::Character => fuser::FileType::CharDevice,
        FileType::Symlink => fuser::FileType::Symlink,
        FileType::Socket => fuser::FileType::Socket,
        FileType::Fifo => fuser::FileType::NamedPipe,
    }
}

/// The maximum size in which programs should read directories, bytes. The C library reads so many of them at once from
/// the kernel's cache, and a program then asks for the attributes of each entry in that before the next ones can come
/// with attributes ([`looked_up`](crate::core::Core::looked_up)).
const DIRECTORY_BLOCK: u32 = 64 << 10;

/// Converts attributes. The inode number is `ino`, and `block` the size in which programs should read
/// and write.
pub(crate) fn attr(stat: &Stat, ino: u64, block: u32) -> FileAttr {
    let it = &stat.attributes;
    FileAttr {
        ino: INodeNo(ino),
        size: it.size,
        blocks: it.used.div_ceil(512),
        atime: system_time(it.atime),
        mtime: system_time(it.mtime),
        ctime: system_time(it.ctime),
        crtime: UNIX_EPOCH,
        kind: kind(it.file_type),
        perm: (it.mode & 0o7777) as u16,
        nlink: it.nlink,
        uid: it.uid,
        gid: it.gid,
        rdev: encode_device(it.rdev),
        blksize: match it.file_type {
            FileType::Directory => block.min(DIRECTORY_BLOCK),
            _ => block,
        },
        flags: 0,
    }
}

fn system_time(time: NfsTime) -> SystemTime {
    // A server may send more nanoseconds than a second has; the sum is a valid time in any case.
    UNIX_EPOCH + Duration::from_secs(time.seconds.into()) + Duration::from_nanos(time.nanos.into())
}

/// Converts a time to set. NFS version 3 has times from 1970 to 2106; others become the nearest.
pub(crate) fn set_time(time: Option<TimeOrNow>) -> SetTime {
    let time = match time {
        None => return SetTime::Keep,
        Some(TimeOrNow::Now) => return SetTime::ServerTime,
        Some(TimeOrNow::SpecificTime(time)) => time,
    };
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    SetTime::To(match u32::try_from(since.as_secs()) {
        Ok(seconds) => NfsTime {
            seconds,
            nanos: since.subsec_nanos(),
        },
        Err(_) => NfsTime {
            seconds: u32::MAX,
            nanos: 0,
        },
    })
}

/// Converts a device number to the kernel's 32-bit form.
fn encode_device(device: DeviceNumber) -> u32 {
    (device.minor & 0xff) | (device.major & 0xfff) << 8 | (device.minor & 0xf_ff00) << 12
}

/// Converts a device number from the kernel's 32-bit form.
pub(crate) fn decode_device(device: u32) -> DeviceNumber {
    DeviceNumber {
        major: (device >> 8) & 0xfff,
        minor: (device & 0xff) | (device >> 12) & 0xf_ff00,
    }
}

/// Returns the type in the high bits of a mode.
pub(crate) fn type_of_mode(mode: u32) -> Option<FileType> {
    Some(match mode & 0o170_000 {
        0 | 0o100_000 => FileType::Regular,
        0o010_000 => FileType::Fifo,
        0o020_000 => FileType::Character,
        0o060_000 => FileType::Block,
        0o140_000 => FileType::Socket,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_come_back() {
        for (major, minor) in [(1, 3), (8, 255), (259, 256), (4095, 0xf_ffff), (0, 0)] {
            let device = DeviceNumber { major, minor };
            assert_eq!(decode_device(encode_device(device)), device);
        }
        // makedev(8, 1), as stat(1) prints it.
        assert_eq!(encode_device(DeviceNumber { major: 8, minor: 1 }), 0x801);
    }

    #[test]
    fn times_are_set_to_the_nanosecond_and_the_nearest_that_there_is() {
        let at = |secs, nanos| {
            Some(TimeOrNow::SpecificTime(
                UNIX_EPOCH + Duration::new(secs, nanos),
            ))
        };
        let to = |seconds, nanos| SetTime::To(NfsTime { seconds, nanos });
        assert_eq!(set_time(at(5, 7)), to(5, 7));
        assert_eq!(set_time(at(1 << 32, 7)), to(u32::MAX, 0));
        let before = UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(set_time(Some(TimeOrNow::SpecificTime(before))), to(0, 0));
        assert_eq!(set_time(Some(TimeOrNow::Now)), SetTime::ServerTime);
        assert_eq!(set_time(None), SetTime::Keep);
        assert!(
            system_time(NfsTime {
                seconds: u32::MAX,
                nanos: u32::MAX
            }) > UNIX_EPOCH
        );
    }
}
