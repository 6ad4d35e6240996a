//! Says whether a cache obeys the format and whether a table obeys its caches.
//!
//! ```text
//! table    Arrow table + the caches' own columns -> CheckedTable, or the first fault; no file
//! cache    directory -> Report of every rule that is broken; shares no code with the reader
//! ```

pub mod cache;
pub mod table;

pub use cache::{
    Finding, Level, RULES, Report, Rule, Severity, verify_cache, verify_cache_attended,
};
