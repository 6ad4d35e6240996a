//! What fuzzers call: one function for each way in which bytes that somebody else wrote reach us.
//!
//! ```text
//! manifest     manifest.json, and the texts in it
//! arrow_file   footers, batch headers, buffers of metadata.arrow and shards
//! digests      index.bin, digests.bin
//! frames       compressed payloads and compressed Arrow buffers
//! table        foreign Arrow tables: arrays whose buffers hold anything
//! cache        a whole cache with right digests around wrong bytes: open, read, verify
//!    ^ bases    small valid caches, made by our own writer
//!    ^ edits    changes to something valid, so that inputs get behind the first check
//!    ^ seal     digests made right again
//! ```
//! A target panics when a promise is broken, and does nothing else: `tests/replay.rs` runs them
//! without a fuzzer, `fuzz/engine` under libFuzzer.

mod arrow_file;
mod bases;
mod cache;
mod digests;
mod edits;
mod foreign;
mod frames;
mod manifest;
mod seal;
mod table;

pub use foreign::is_panic_caught;

use std::fs;
use std::io;
use std::path::Path;

/// Most memory that Rust code may hold at any time of a run: inputs and bases take a few MiB.
pub const MEMORY_BYTES_MAX: usize = 512 << 20;

/// One way in.
pub struct Target {
    /// Its name, also that of its directory of found inputs.
    pub name: &'static str,
    /// Panics when a promise is broken.
    pub run: fn(&[u8]),
    /// Inputs that come far: where a fuzzer starts.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets.
pub const TARGETS: [Target; 6] = [
    Target { name: "manifest", run: manifest::run, seeds: manifest::seeds },
    Target { name: "arrow_file", run: arrow_file::run, seeds: arrow_file::seeds },
    Target { name: "digests", run: digests::run, seeds: digests::seeds },
    Target { name: "frames", run: frames::run, seeds: frames::seeds },
    Target { name: "table", run: table::run, seeds: table::seeds },
    Target { name: "cache", run: cache::run, seeds: cache::seeds },
];

/// The target of this name.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Puts the seeds of a target into `directory`, one file each.
///
/// # Errors
/// As the file system fails.
pub fn write_seeds(target: &Target, directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    for (number, seed) in (target.seeds)().iter().enumerate() {
        fs::write(directory.join(format!("seed-{number:03}")), seed)?;
    }
    Ok(())
}
