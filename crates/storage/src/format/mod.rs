//! What the bytes of a cache mean. No file, clock or thread is touched in here.
//!
//! ```text
//! manifest ── names every file, its size and BLAKE3 root
//!    │
//!    ├─ seal      digest of the manifest itself
//!    ├─ digest    BLAKE3 subtree digests of 64 KiB blocks, down from each file's root
//!    ├─ index     sample -> payload bytes
//!    ├─ ipc       Arrow IPC file: encode and decode, bounds-checked
//!    ├─ codec     payload frames (lz4, zstd, dictionary)
//!    ├─ schema    stored columns and their types
//!    └─ content   digest of the logical contents, from which `cache_id` comes
//! ```

pub mod codec;
pub mod content;
pub mod digest;
pub mod index;
pub mod ipc;
pub mod limits;
pub mod manifest;
pub mod name;
pub mod schema;
pub mod seal;
