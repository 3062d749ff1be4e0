//! The mount options that matter to a mounted export alone, and not to a command that copies files.

use std::time::Duration;

use nfs_mount::LookupCache;

/// How an export is used once it is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountUse {
    /// `acregmin=`: the minimum time for which attributes of files are cached.
    pub file_min: Duration,
    /// `acregmax=`: the maximum.
    pub file_max: Duration,
    /// `acdirmin=`: the minimum time for which attributes of directories are cached.
    pub directory_min: Duration,
    /// `acdirmax=`: the maximum.
    pub directory_max: Duration,
    /// `ac`, `noac`: whether attributes are cached. Without a cache, writes are synchronous as well.
    pub attribute_cache: bool,
    /// `cto`, `nocto`: whether opening a file fetches its attributes.
    pub close_to_open: bool,
    /// `lookupcache=`.
    pub lookup_cache: LookupCache,
    /// `sync`, `async`: whether each write waits for the server's stable storage.
    pub sync: bool,
    /// `exec`, `noexec`: whether programs can be executed.
    pub execute: bool,
    /// `symfollow`, `nosymfollow`: whether symbolic links are followed.
    pub follow_symlinks: bool,
    /// `suid`, `nosuid`, if one of them is given: whether set-id bits count, and whether copies get
    /// them.
    pub set_id: Option<bool>,
    /// `dev`, `nodev`, if one of them is given: whether devices can be used, and whether they are
    /// copied.
    pub devices: Option<bool>,
    /// `allow_other`, `noallow_other`, if one of them is given: whether other users may use the mount.
    pub allow_other: Option<bool>,
    /// `softerr`: whether requests that are given up fail with ETIMEDOUT, and not with EIO.
    pub softerr: bool,
    /// `default_permissions`: whether the kernel checks permissions as well.
    pub default_permissions: bool,
}

impl Default for MountUse {
    /// Returns the defaults of nfs(5).
    fn default() -> Self {
        Self {
            file_min: Duration::from_secs(3),
            file_max: Duration::from_secs(60),
            directory_min: Duration::from_secs(30),
            directory_max: Duration::from_secs(60),
            attribute_cache: true,
            close_to_open: true,
            lookup_cache: LookupCache::default(),
            sync: false,
            execute: true,
            follow_symlinks: true,
            set_id: None,
            devices: None,
            allow_other: None,
            softerr: false,
            default_permissions: false,
        }
    }
}

impl MountUse {
    /// Applies an option that takes no value. Returns false if it is none of these.
    pub(crate) fn flag(&mut self, name: &str) -> bool {
        match name {
            "ac" => self.attribute_cache = true,
            "noac" => self.attribute_cache = false,
            "cto" => self.close_to_open = true,
            "nocto" => self.close_to_open = false,
            "sync" => self.sync = true,
            "async" => self.sync = false,
            "exec" => self.execute = true,
            "noexec" => self.execute = false,
            "symfollow" => self.follow_symlinks = true,
            "nosymfollow" => self.follow_symlinks = false,
            "allow_other" => self.allow_other = Some(true),
            "noallow_other" => self.allow_other = Some(false),
            "default_permissions" => self.default_permissions = true,
            _ => return false,
        }
        true
    }

    /// Applies a time in seconds. Returns false if the option is none of these. As in nfs(5), a
    /// minimum that is greater than its maximum raises that, and the reverse.
    pub(crate) fn time(&mut self, name: &str, seconds: u32) -> bool {
        let time = Duration::from_secs(seconds.into());
        let files = matches!(name, "acregmin" | "acregmax" | "actimeo");
        let directories = matches!(name, "acdirmin" | "acdirmax" | "actimeo");
        if !files && !directories {
            return false;
        }
        let (min, max) = (!name.ends_with("max"), !name.ends_with("min"));
        let set = |pair: (&mut Duration, &mut Duration)| match (min, max) {
            (true, true) => (*pair.0, *pair.1) = (time, time),
            (true, false) => (*pair.0, *pair.1) = (time, time.max(*pair.1)),
            _ => (*pair.0, *pair.1) = (time.min(*pair.0), time),
        };
        if files {
            set((&mut self.file_min, &mut self.file_max));
        }
        if directories {
            set((&mut self.directory_min, &mut self.directory_max));
        }
        true
    }

    /// Applies `lookupcache=`. Returns false for an invalid value.
    pub(crate) fn lookups(&mut self, value: &str) -> bool {
        self.lookup_cache = match value {
            "all" => LookupCache::All,
            "pos" | "positive" => LookupCache::Positive,
            "none" => LookupCache::None,
            _ => return false,
        };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount_options::MountOptions;

    fn parsed(text: &str) -> MountUse {
        MountOptions::parse(text).unwrap().mounted
    }

    #[test]
    fn times_are_those_of_nfs() {
        let seconds = |it: MountUse| {
            let times = [it.file_min, it.file_max, it.directory_min, it.directory_max];
            times.map(|time| time.as_secs())
        };
        assert_eq!(seconds(parsed("")), [3, 60, 30, 60]);
        assert_eq!(seconds(parsed("actimeo=7")), [7, 7, 7, 7]);
        assert_eq!(seconds(parsed("acregmin=0,acdirmax=9")), [0, 60, 9, 9]);
        assert_eq!(seconds(parsed("acregmin=90")), [90, 90, 30, 60]);
        assert_eq!(seconds(parsed("actimeo=0,acregmax=5")), [0, 5, 0, 0]);
    }

    #[test]
    fn flags_and_their_opposites() {
        let it =
            parsed("noac,nocto,sync,noexec,nosymfollow,lookupcache=pos,allow_other,suid,nodev");
        assert!(!it.attribute_cache && !it.close_to_open && it.sync && !it.execute);
        assert!(!it.follow_symlinks);
        assert_eq!(it.lookup_cache, LookupCache::Positive);
        assert_eq!(it.allow_other, Some(true));
        assert_eq!((it.set_id, it.devices), (Some(true), Some(false)));
        let soft = |text| {
            (
                MountOptions::parse(text).unwrap().hard,
                parsed(text).softerr,
            )
        };
        assert_eq!(
            [soft("soft"), soft("softerr")],
            [(false, false), (false, true)]
        );
        assert_eq!(
            [soft("softerr,soft"), soft("")],
            [(false, false), (true, false)]
        );
        assert_eq!(
            parsed("noac,ac,sync,async,nocto,cto,nosymfollow,symfollow"),
            MountUse::default()
        );
        for bad in ["lookupcache=some", "actimeo=x", "acregmin=-1"] {
            MountOptions::parse(bad).unwrap_err();
        }
        for bad in ["sync=1", "actimeo", "lookupcache"] {
            MountOptions::parse(bad).unwrap_err();
        }
    }
}
