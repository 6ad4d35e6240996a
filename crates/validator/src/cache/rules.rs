//! The rules of the format that this crate checks, by the ids that `docs/format/v0.md` gives them.

/// One rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Stable id.
    pub id: &'static str,
    /// What must hold, in short; the document has the full text.
    pub text: &'static str,
    /// The lowest level that checks it.
    pub level: &'static str,
}

const fn rule(id: &'static str, level: &'static str, text: &'static str) -> Rule {
    Rule { id, text, level }
}

/// All rules.
pub const RULES: &[Rule] = &[
    rule("M01", "quick", "manifest.json is JSON of this format"),
    rule("M02", "quick", "manifest.json hashes to its own manifest_blake3"),
    rule("M03", "quick", "the manifest's fields are known, in range and agree with each other"),
    rule("F01", "quick", "every file named by the manifest is a regular file that can be read"),
    rule("F02", "quick", "every file has the size that the manifest says"),
    rule("F03", "full", "every file has the BLAKE3 that the manifest says"),
    rule("F04", "full", "digests.bin holds the block digests of every file of several blocks"),
    rule("I01", "quick", "index.bin begins with its header"),
    rule("I02", "deep", "every index record is the place of its payload in the shards"),
    rule("A01", "quick", "shards and metadata.arrow end in a well-formed Arrow footer"),
    rule("A02", "quick", "the schema at the start of an Arrow file equals the footer's"),
    rule("A03", "quick", "the schema of an Arrow file is the one the manifest asks for"),
    rule(
        "A04",
        "quick",
        "record batches are well-formed and lie side by side, buffers aligned to 64",
    ),
    rule("A05", "quick", "record batches hold the rows that the manifest says"),
    rule("A06", "quick", "record batches are compressed as the manifest says"),
    rule(
        "A07",
        "deep",
        "offsets ascend within their values, text is UTF-8, nulls are counted right",
    ),
    rule("A08", "deep", "columns that are not nullable have no nulls"),
    rule("S01", "deep", "sample_id counts the rows of the cache"),
    rule("S02", "deep", "metadata.arrow holds the stored columns of the shards"),
    rule("S03", "deep", "every payload decompresses to its recorded length"),
    rule("C01", "deep", "content_blake3 is the digest of rows and payloads"),
    rule("C02", "deep", "payload_bytes_total is the sum of all payloads"),
];
