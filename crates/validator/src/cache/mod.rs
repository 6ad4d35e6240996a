//! Whether a cache on disk obeys the format. Uses the format and the store, never the reader: a
//! checker that shares the reader's path shares its mistakes.
//!
//! ```text
//! rules    every MUST of docs/format by its id
//! report   findings: rule, file, place, expected, found
//! verify   manifest, then per level: files (sizes, digests), arrow_file (structure), deep (rows)
//! ```

mod arrow_file;
mod deep;
mod files;
mod report;
mod rules;
mod verify;

pub use report::{Finding, Report, Severity};
pub use rules::{RULES, Rule};
pub use verify::{Level, verify_cache, verify_cache_attended};
