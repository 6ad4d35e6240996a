//! Arrow IPC files: our own encoder and decoder. Knows nothing of files, digests or caches.
//!
//! ```text
//! encode   schema, columns -> head, batches, tail      streams buffers without copying them
//! decode   bytes from disk -> FileLayout, BatchLayout   every number checked before it is used
//! arrays   rows, buffers   -> Arrow arrays              zero-copy, validated
//! schema   Arrow schema   <-> flatbuffer schema         stored types only
//! body     one buffer     <-> its compressed form
//! ```
//! The layout of a file, all buffers at multiples of 64 bytes from its start:
//!
//! ```text
//! "ARROW1\0\0" | schema message | batch 0: message, body | batch 1 ... | EOS | footer | "ARROW1"
//! ```
//! `arrow-ipc`'s own writer and reader are not used: the writer copies every buffer and hides
//! where it put them, and the reader may panic on a crafted file.

mod arrays;
mod body;
mod decode;
mod encode;
mod layout;
mod normal;
mod schema;
#[cfg(test)]
mod tests;

pub use arrays::{Validation, build_array, cell_range};
pub use body::{BodyCompression, BodyKind, decompress_buffer};
pub use decode::{
    BatchLayout, FOOTER_TAIL_BYTES, FileLayout, HEAD_BYTES_MIN, decode_batch_header,
    decode_body_len, decode_footer, decode_head, footer_range, message_len,
};
pub use encode::{EncodedBatch, encode_batch, file_head, file_tail};
pub use layout::BatchPlace;
