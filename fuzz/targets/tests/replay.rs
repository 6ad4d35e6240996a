//! The fuzz targets without a fuzzer: on their seeds, on every input that was ever found to break
//! a promise, on the golden caches and on simple changes of all of these.

use std::alloc::System;
use std::fs;
use std::path::{Path, PathBuf};

use cap::Cap;
use dataset_rt_fuzz_targets::{MEMORY_BYTES_MAX, TARGETS, find};

/// As under the fuzzer: whoever asks for too much memory aborts.
#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, MEMORY_BYTES_MAX);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every file below `directory`.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found.sort();
    found
}

fn run(target: &str, input: &[u8]) {
    (find(target).expect("a target of this name").run)(input);
}

#[test]
fn seeds_keep_every_promise() {
    for target in &TARGETS {
        for seed in (target.seeds)() {
            (target.run)(&seed);
        }
    }
}

#[test]
fn inputs_once_found_keep_every_promise() {
    for path in files(&root().join("fuzz/found")) {
        let Some(target) = path.parent().and_then(Path::file_name) else { continue };
        if let Some(target) = find(&target.to_string_lossy()) {
            eprintln!("{}", path.display());
            (target.run)(&fs::read(&path).expect("a readable file"));
        }
    }
}

#[test]
fn golden_files_and_their_prefixes_keep_every_promise() {
    let mut arrow_files = 0;
    for path in files(&root().join("tests/golden/v0")) {
        let bytes = fs::read(&path).expect("a readable file");
        let target = match path.extension().and_then(|extension| extension.to_str()) {
            Some("json") => "manifest",
            Some("arrow") => "arrow_file",
            _ => continue,
        };
        arrow_files += usize::from(target == "arrow_file");
        for len in (0..bytes.len()).step_by(97).chain([bytes.len()]) {
            run(target, &[&[0], &bytes[..len]].concat());
        }
    }
    assert!(arrow_files > 0, "the golden caches are gone");
}

/// Each seed with each of its bytes replaced: cheap, and the same everywhere.
#[test]
fn changed_seeds_keep_every_promise() {
    for target in TARGETS.iter().filter(|target| target.name != "cache") {
        for seed in (target.seeds)().iter().filter(|seed| seed.len() < 64) {
            for at in 0..seed.len() {
                for value in [0, 1, 0x7f, 0x80, 0xff] {
                    let mut changed = seed.clone();
                    changed[at] = value;
                    changed.extend([value; 24]);
                    (target.run)(&changed);
                }
            }
        }
    }
}
