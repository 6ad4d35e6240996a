//! What this process may use: processors and memory, as affinity and cgroups allow.
//! Reads `/proc` and `/sys` once per question; decides nothing else.

use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};

/// Processors this process may use (affinity and cgroup quota respected), at least 1.
pub fn cpus_usable() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Bytes of memory this process may use: the machine's, or less where a cgroup or a resource limit
/// of the process says so.
pub fn memory_bytes_max() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| memory_total(&text))
        .unwrap_or(FALLBACK_BYTES);
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    cgroup_limits(&groups, Path::new("/sys/fs/cgroup"))
        .into_iter()
        .chain(process_limits(&own))
        .fold(machine, u64::min)
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

/// Soft limits on address space and data, where they are set. Mapped files count against the
/// first, so it allows no more memory than it says.
fn process_limits(limits: &str) -> impl Iterator<Item = u64> {
    ["Max address space", "Max data size"].into_iter().filter_map(|name| {
        let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    })
}

/// Files that hold limits in bytes, by version. At the soft one of version 2 the kernel slows a
/// process down before it kills it at the hard one.
const V1_FILES: &[&str] = &["memory.limit_in_bytes"];
const V2_FILES: &[&str] = &["memory.max", "memory.high"];

/// A limit may stand at any ancestor of the group. Inside a container the path may be the host's
/// and lead nowhere here; the root of what is mounted is then the container's own group.
fn limits_of_line(line: &str, root: &Path) -> Vec<u64> {
    let mut parts = line.splitn(3, ':');
    let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
    else {
        return Vec::new();
    };
    // Both versions side by side: version 2 is then mounted one level down.
    let (bases, files) = if controllers.is_empty() {
        (vec![root.to_path_buf(), root.join("unified")], V2_FILES)
    } else if controllers.split(',').any(|c| c == "memory") {
        (vec![root.join("memory"), root.join(controllers)], V1_FILES)
    } else {
        return Vec::new();
    };
    bases.iter().flat_map(|base| limits_up_to(base, path, files)).collect()
}

fn limits_up_to(base: &Path, path: &str, files: &[&str]) -> Vec<u64> {
    let mut limits = Vec::new();
    let mut group: PathBuf = base.join(path.trim_start_matches('/'));
    loop {
        // Anything but a number, such as "max", is no limit.
        limits.extend(files.iter().filter_map(|file| {
            fs::read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok()
        }));
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
    fn the_limit_where_the_kernel_slows_down_counts_as_well() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("unified/a")).unwrap();
        for group in [root.path().to_path_buf(), root.path().join("unified/a")] {
            fs::write(group.join("memory.max"), "max\n").unwrap();
            fs::write(group.join("memory.high"), "77\n").unwrap();
            assert_eq!(cgroup_limits("0::/a\n", root.path()).iter().min(), Some(&77));
            fs::remove_file(group.join("memory.high")).unwrap();
        }
        assert_eq!(cgroup_limits("0::/a\n", root.path()), Vec::<u64>::new());
    }

    #[test]
    fn version_one_groups_are_read_too() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("memory/x/y")).unwrap();
        fs::write(root.path().join("memory/memory.limit_in_bytes"), "9223372036854771712").unwrap();
        fs::write(root.path().join("memory/x/memory.limit_in_bytes"), "42").unwrap();
        let limits = |groups| cgroup_limits(groups, root.path()).into_iter().min();
        assert_eq!(limits("5:cpu,memory:/x/y\n"), Some(42));
        assert_eq!(limits("5:memory:/x\n3:cpu:/\n0::/\n"), Some(42));
        assert_eq!(limits("5:memory:/elsewhere\n"), Some(9_223_372_036_854_771_712));
    }

    #[test]
    fn a_container_sees_its_own_limit_at_the_root() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("memory.max"), "55").unwrap();
        assert_eq!(cgroup_limits("0::/system.slice/docker-1.scope\n", root.path()), [55]);
    }

    #[test]
    fn limits_of_the_process_count() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max data size             unlimited            unlimited            bytes\n\
                      Max address space         1000                 unlimited            bytes\n";
        assert_eq!(process_limits(limits).collect::<Vec<_>>(), [1000]);
        assert_eq!(process_limits("").count(), 0);
    }

    #[test]
    fn defaults_stay_in_range() {
        assert!(cpus_usable() >= 1);
        assert!((1 << 20..=256 << 20).contains(&readahead_bytes_default()));
        assert_eq!(memory_total("MemTotal:   10 kB\n"), Some(10_240));
    }
}
