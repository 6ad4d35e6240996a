//! Payload codecs: how payloads are compressed and what stands in files about it.
//! Knows nothing of files, shards or samples.
//!
//! ```text
//! compression   what a user chose: algorithm, level, scope, dictionary
//! payload       Compressor, Decompressor: one frame a payload, reusable per thread
//! dictionary    training of a zstd dictionary
//! frame         standard frames of both algorithms
//!   ^ lz4, zstd
//! ```

mod compression;
mod dictionary;
pub(in crate::format) mod frame;
mod lz4;
mod payload;
mod zstandard;

pub use compression::{Algo, Compression, Scope, schema_marks};
pub use dictionary::train_dictionary;
pub use payload::{Compressor, Decompressor};
