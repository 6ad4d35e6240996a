//! Files of a cache, opened when first used and verified block by block. Knows no format but
//! that of digests.
//!
//! ```text
//! verified     no byte before its block agreed with the manifest
//!   ^ window   many small reads of one file
//! kept         blocks for small reads of a file that is not mapped
//! chain        from a file's root down to its blocks (digests.bin)
//! lazy_file    mapped, or read through few descriptors
//! origin       the directory, and whether it still holds the same cache
//! ```

mod chain;
mod descriptors;
mod kept;
mod lazy_file;
mod origin;
mod verified;
mod window;

pub(super) use chain::Chain;
pub(super) use lazy_file::{LazyFile, missing, wrong_size};
pub(super) use origin::Origin;
pub(super) use verified::{MappedView, VerifiedFile};
pub(super) use window::Window;

use crate::format::manifest::{DIGESTS_FILE, INDEX_FILE, METADATA_FILE};

/// What to do about the damage of the file called `name`.
pub(super) fn advice(name: &str) -> &'static str {
    match name {
        INDEX_FILE | METADATA_FILE | DIGESTS_FILE => {
            "many samples need it; what it held may follow from the other files: repair_cache \
             (dataset-rt repair) restores it, and names what is lost"
        }
        _ => {
            "restore or rebuild the cache, or save the rest with salvage_cache (dataset-rt repair \
             --into); repair_cache(dry_run=True) names what is lost"
        }
    }
}
