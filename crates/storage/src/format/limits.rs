//! Numbers the format fixes, each with its reason. Changing one is a format change.

/// Format version this release writes.
pub const FORMAT_VERSION: u64 = 0;
/// Bytes per verified block: 64 KiB hashes at full BLAKE3 speed (64 chunks fill every SIMD lane)
/// while a lone small read verifies little more than it needs; leaves cost 0.05 % of the data.
pub const BLOCK_BYTES: u64 = 64 * 1024;
/// Arrow IPC buffer alignment: what the Arrow specification recommends for SIMD and what a
/// mapped file needs so that 16-byte types are never realigned by copying.
pub const ALIGNMENT: usize = 64;
/// Largest payload in bytes: every Arrow face can carry it (binary views count in `i32`).
pub const PAYLOAD_BYTES_MAX: u64 = (1 << 31) - 1;
/// A shard record batch closes at this many payload and column bytes.
pub const BATCH_BYTES: u64 = 8 * 1024 * 1024;
/// The same with `scope = "buffer"`, where a random read decompresses a whole batch.
pub const BUFFER_SCOPE_BATCH_BYTES: u64 = 1024 * 1024;
/// A shard record batch closes at this many rows.
pub const BATCH_ROWS: usize = 65_536;
/// A metadata record batch closes at this many rows.
pub const METADATA_BATCH_ROWS: u64 = 1 << 20;
/// A metadata record batch closes at this many column bytes.
pub const METADATA_BATCH_BYTES: u64 = 32 * 1024 * 1024;
/// Rows of one content group, see `content`.
pub const CONTENT_GROUP_ROWS: u64 = 4096;
/// Largest manifest in bytes: 10,000 shards need 2 MiB. Parsed JSON takes about ten times its
/// text in memory, so this also bounds what a crafted manifest can make us allocate.
pub const MANIFEST_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Largest zstd dictionary in bytes.
pub const DICTIONARY_BYTES_MAX: u64 = 1024 * 1024;
/// Largest source name in UTF-8 bytes: leaves room in a 255-byte path segment for our affixes.
pub const NAME_BYTES_MAX: usize = 200;
/// Most stored columns: bounds what a crafted schema can make a reader allocate.
pub const COLUMNS_MAX: usize = 65_536;
