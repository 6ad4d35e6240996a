//! What this process may use: processors and memory, as affinity and cgroups allow.
//! Reads `/proc` and `/sys` once per question; decides nothing else.

use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};

/// Processors this process may use (affinity and cgroup quota respected), at least 1.
pub fn cpus_usable() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Bytes of memory this process may use: the machine's, or less where a cgroup says so.
pub fn memory_bytes_max() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| memory_total(&text))
        .unwrap_or(FALLBACK_BYTES);
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let root = Path::new("/sys/fs/cgroup");
    cgroup_limits(&groups, root).into_iter().fold(machine, u64::min)
}

/// Default ceiling of bytes read ahead: an eighth of the memory, at most 256 MiB, so that several
/// loader processes fit side by side.
pub fn readahead_bytes_default() -> u64 {
    (memory_bytes_max() / 8).clamp(1 << 20, 256 << 20)
}

/// Where neither file can be read (not Linux): small enough for any machine that runs this.
const FALLBACK_BYTES: u64 = 2 << 30;

fn memory_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

fn cgroup_limits(groups: &str, root: &Path) -> Vec<u64> {
    groups.lines().flat_map(|line| limits_of_line(line, root)).collect()
}

/// A limit may stand at any ancestor of the group.
fn limits_of_line(line: &str, root: &Path) -> Vec<u64> {
    let mut parts = line.splitn(3, ':');
    let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
    else {
        return Vec::new();
    };
    let (base, file) = if controllers.is_empty() {
        (root.to_path_buf(), "memory.max")
    } else if controllers.split(',').any(|c| c == "memory") {
        (root.join("memory"), "memory.limit_in_bytes")
    } else {
        return Vec::new();
    };
    let mut limits = Vec::new();
    let mut group: PathBuf = base.join(path.trim_start_matches('/'));
    loop {
        if let Some(limit) =
            fs::read_to_string(group.join(file)).ok().and_then(|text| text.trim().parse().ok())
        {
            limits.push(limit);
        }
        if group == base || !group.pop() {
            return limits;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_limit_of_all_ancestors_counts() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("a/b");
        fs::create_dir_all(&group).unwrap();
        fs::write(root.path().join("a/memory.max"), "1000000\n").unwrap();
        fs::write(group.join("memory.max"), "max\n").unwrap();
        assert_eq!(cgroup_limits("0::/a/b\n", root.path()), [1_000_000]);
        assert_eq!(cgroup_limits("nonsense\n3:cpu:/\n", root.path()), Vec::<u64>::new());
    }

    #[test]
    fn version_one_groups_are_read_too() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("memory/x")).unwrap();
        fs::write(root.path().join("memory/x/memory.limit_in_bytes"), "42").unwrap();
        assert_eq!(cgroup_limits("5:cpu,memory:/x\n", root.path()), [42]);
    }

    #[test]
    fn defaults_stay_in_range() {
        assert!(cpus_usable() >= 1);
        assert!((1 << 20..=256 << 20).contains(&readahead_bytes_default()));
        assert_eq!(memory_total("MemTotal:   10 kB\n"), Some(10_240));
    }
}
