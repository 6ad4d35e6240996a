//! Says whether a cache obeys the format and whether a table obeys its caches.
//!
//! ```text
//! table    Arrow table + the caches' own columns -> CheckedTable, or the first fault; no file
//! ```

pub mod table;
