//! One crafted cache per rule: right in everything but that rule.

use std::fs;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{Int64Array, UInt64Array};
use arrow_schema::{Field, Schema};
use dataset_rt_storage::format::codec::{Algo, Compression, Scope};
use dataset_rt_storage::format::index::IndexRecord;
use dataset_rt_storage::format::ipc::BodyCompression;
use dataset_rt_storage::format::manifest::{
    DIGESTS_FILE, INDEX_FILE, MANIFEST_FILE, METADATA_FILE, shard_path,
};

use crate::craft::{Crafted, Layout, codec};

/// A rule and how a good cache comes to break it and nothing else.
pub struct Fixture {
    pub rule: &'static str,
    pub compression: Compression,
    pub craft: fn(&mut Crafted),
}

/// Rules without a fixture, each with the reason.
pub const UNREACHABLE: &[(&str, &str)] = &[(
    "A08",
    "a batch header that counts nulls in such a column breaks A04, validity bits that disagree \
     with the count break A07; both come first, see `nulls_where_none_may_be`",
)];

const fn plain(rule: &'static str, craft: fn(&mut Crafted)) -> Fixture {
    let compression =
        Compression { algo: Algo::None, level: None, scope: Scope::Payload, dictionary_bytes: 0 };
    Fixture { rule, compression, craft }
}

pub fn fixtures() -> Vec<Fixture> {
    let zstd = codec(Algo::Zstd, Scope::Payload, 0);
    let lz4_buffer = codec(Algo::Lz4, Scope::Buffer, 0);
    let framed = |rule, compression, craft| Fixture { rule, compression, craft };
    vec![
        plain("M01", another_format),
        plain("M01", |c| c.write(MANIFEST_FILE, b"{\"format\":")),
        plain("M01", |c| c.write(MANIFEST_FILE, &b"[".repeat(100_000))),
        plain("M01", |c| manifest(c, |m| m.format_version = 1)),
        plain("M02", renamed_without_digest),
        plain("M02", other_version_without_digest),
        plain("M02", |c| c.change(MANIFEST_FILE, |bytes| bytes.push(b'\n'))),
        plain("M03", |c| manifest(c, |m| m.cache_id += 1)),
        plain("M03", |c| manifest(c, |m| m.shards[0].path = "../../train".into())),
        plain("M03", |c| manifest(c, |m| m.shards.swap(0, 1))),
        plain("M03", |c| manifest(c, |m| m.samples_total += 1)),
        plain("F01", |c| fs::remove_file(c.path.join(shard_path(1))).unwrap()),
        plain("F01", linked_elsewhere),
        plain("F01", |c| {
            fs::remove_file(c.path.join(INDEX_FILE)).unwrap();
            fs::create_dir(c.path.join(INDEX_FILE)).unwrap();
        }),
        plain("F02", |c| c.change(METADATA_FILE, |bytes| bytes.push(0))),
        plain("F02", |c| c.change(&shard_path(0), |bytes| bytes.truncate(100))),
        plain("F02", |c| c.change(DIGESTS_FILE, Vec::clear)),
        plain("F03", |c| flip_payload(c, 0)),
        plain("F03", garbled_shard),
        plain("F04", wrong_leaf),
        plain("I01", |c| resealed(c, INDEX_FILE, |bytes| bytes[24] ^= 1)),
        plain("I01", |c| resealed(c, INDEX_FILE, |bytes| bytes[63] = 1)),
        plain("I02", |c| wrong_records(c, 5)),
        framed("I02", zstd, |c| wrong_records(c, 5)),
        framed("I02", lz4_buffer, |c| wrong_records(c, 5)),
        plain("A01", |c| resealed(c, &shard_path(0), |bytes| zero_last(bytes, 6))),
        plain("A01", |c| resealed(c, METADATA_FILE, |bytes| zero_last(bytes, 10))),
        plain("A01", |c| resealed(c, METADATA_FILE, |bytes| bytes.truncate(9))),
        plain("A02", |c| other_schema(c, METADATA_FILE, true)),
        plain("A02", |c| other_schema(c, &shard_path(1), true)),
        plain("A03", |c| other_schema(c, METADATA_FILE, false)),
        plain("A03", |c| other_schema(c, &shard_path(1), false)),
        plain("A04", gap_between_batches),
        plain("A04", nulls_where_none_may_be),
        plain("A05", |c| without_last_batch(c, METADATA_FILE)),
        plain("A05", |c| without_last_batch(c, &shard_path(0))),
        plain("A06", compressed_metadata),
        framed("A06", lz4_buffer, uncompressed_shard),
        plain("A07", |c| replaced(c, METADATA_FILE, b"text 17", b"text \xff7")),
        plain("A07", |c| {
            replaced(c, &shard_path(0), &20_i64.to_le_bytes(), &(-1_i64).to_le_bytes())
        }),
        plain("S01", shifted_ids),
        plain("S02", other_label),
        framed("S03", zstd, |c| longer_payload(c, 9)),
        framed("S03", codec(Algo::Lz4, Scope::Payload, 0), |c| longer_payload(c, 9)),
        plain("C01", |c| {
            flip_payload(c, 0);
            c.seal();
        }),
        plain("C02", |c| manifest(c, |m| m.payload_bytes_total += 1)),
    ]
}

fn manifest(c: &mut Crafted, change: fn(&mut dataset_rt_storage::format::manifest::Manifest)) {
    change(&mut c.manifest);
    c.write_manifest();
}

fn resealed(c: &mut Crafted, name: &str, change: fn(&mut Vec<u8>)) {
    c.change(name, change);
    c.seal();
}

fn another_format(c: &mut Crafted) {
    c.manifest.format = "other".into();
    c.write_manifest();
}

fn renamed_without_digest(c: &mut Crafted) {
    let text = String::from_utf8(c.read(MANIFEST_FILE)).unwrap();
    assert!(text.contains("\"train\""));
    c.write(MANIFEST_FILE, text.replace("\"train\"", "\"brain\"").as_bytes());
}

fn other_version_without_digest(c: &mut Crafted) {
    let text = String::from_utf8(c.read(MANIFEST_FILE)).unwrap();
    let other = text.replace("\"format_version\": 0", "\"format_version\": 1");
    assert_ne!(other, text);
    c.write(MANIFEST_FILE, other.as_bytes());
}

fn linked_elsewhere(c: &mut Crafted) {
    let (inside, outside) = (c.path.join(METADATA_FILE), c.path.with_file_name("outside"));
    fs::rename(&inside, &outside).unwrap();
    std::os::unix::fs::symlink(&outside, &inside).unwrap();
}

fn flip_payload(c: &mut Crafted, row: u64) {
    let IndexRecord::FileRange { offset, .. } = c.record(row) else { panic!("not a file range") };
    c.change(&shard_path(0), |bytes| bytes[offset as usize] ^= 1);
}

fn garbled_shard(c: &mut Crafted) {
    let mut bytes = c.read(&shard_path(1));
    let at = bytes.len() / 2;
    bytes[at..at + 8].reverse();
    bytes[at] ^= 0x55;
    c.write(&shard_path(1), &bytes);
}

fn wrong_leaf(c: &mut Crafted) {
    c.change(DIGESTS_FILE, |bytes| *bytes.last_mut().unwrap() ^= 1);
    let digests = c.read(DIGESTS_FILE);
    c.manifest.digests.blake3 = blake3::hash(&digests).to_hex().to_string();
    c.write_manifest();
}

fn wrong_records(c: &mut Crafted, row: u64) {
    let wrong = match c.record(row) {
        IndexRecord::FileRange { offset, stored_len, raw_len } => {
            IndexRecord::FileRange { offset: offset + 1, stored_len, raw_len }
        }
        IndexRecord::BatchRange { offset, batch, raw_len } => {
            IndexRecord::BatchRange { offset, batch: batch + 1, raw_len }
        }
    };
    c.put_record(row, wrong);
    c.seal();
}

fn zero_last(bytes: &mut [u8], count: usize) {
    let start = bytes.len() - count;
    bytes[start..].fill(0);
}

/// A column under another name of the same length, at the start only or in the whole file.
fn other_schema(c: &mut Crafted, name: &str, in_head_only: bool) {
    let mut parts = c.arrow(name);
    let fields: Vec<Field> = parts.schema.fields().iter().map(|f| (**f).clone()).collect();
    let renamed = fields.into_iter().map(|field| match field.name().as_str() {
        "label" => field.with_name("lebal"),
        _ => field,
    });
    let marks = parts.schema.metadata().clone();
    let head = Schema::new_with_metadata(renamed.collect::<Vec<_>>(), marks);
    if !in_head_only {
        parts.schema = head.clone();
    }
    c.put_arrow(name, &head, &parts, Layout::default());
    c.seal();
}

fn gap_between_batches(c: &mut Crafted) {
    let parts = c.arrow(METADATA_FILE);
    let layout = Layout { gap: 64, ..Layout::default() };
    c.put_arrow(METADATA_FILE, &parts.schema, &parts, layout);
    c.seal();
}

/// The manifest and both schemas allow no nulls in `split`; the batch has some.
fn nulls_where_none_may_be(c: &mut Crafted) {
    let names = [METADATA_FILE.to_owned()].into_iter();
    let names = names.chain(c.manifest.shards.iter().map(|shard| shard.path.clone()));
    for name in names.collect::<Vec<_>>() {
        let mut parts = c.arrow(&name);
        let layout = Layout { batch_schema: Some(parts.schema.clone()), ..Layout::default() };
        let fields: Vec<Field> = parts.schema.fields().iter().map(|f| (**f).clone()).collect();
        let strict = fields.into_iter().map(|field| match field.name().as_str() {
            "split" => field.with_nullable(false),
            _ => field,
        });
        let marks = parts.schema.metadata().clone();
        parts.schema = Schema::new_with_metadata(strict.collect::<Vec<_>>(), marks);
        c.put_arrow(&name, &parts.schema, &parts, layout);
    }
    c.manifest.columns[1].nullable = false;
    c.seal();
}

fn without_last_batch(c: &mut Crafted, name: &str) {
    let mut parts = c.arrow(name);
    parts.batches.pop();
    c.put_arrow(name, &parts.schema, &parts, Layout::default());
    c.seal();
}

fn compressed_metadata(c: &mut Crafted) {
    let parts = c.arrow(METADATA_FILE);
    let layout = Layout { body: BodyCompression::Lz4Frame, ..Layout::default() };
    c.put_arrow(METADATA_FILE, &parts.schema, &parts, layout);
    c.seal();
}

fn uncompressed_shard(c: &mut Crafted) {
    let parts = c.arrow(&shard_path(0));
    c.put_arrow(&shard_path(0), &parts.schema, &parts, Layout::default());
    c.seal();
}

/// Replaces the first occurrence of some bytes.
fn replaced(c: &mut Crafted, name: &str, from: &[u8], to: &[u8]) {
    c.change(name, |bytes| {
        let at = bytes.windows(from.len()).position(|window| window == from).unwrap();
        bytes[at..at + to.len()].copy_from_slice(to);
    });
    c.seal();
}

fn shifted_ids(c: &mut Crafted) {
    let name = shard_path(1);
    let mut parts = c.arrow(&name);
    let ids = parts.batches[0][0].as_primitive::<UInt64Type>().values();
    let shifted = UInt64Array::from_iter_values(ids.iter().map(|id| id + 1));
    parts.batches[0][0] = Arc::new(shifted);
    c.put_arrow(&name, &parts.schema, &parts, Layout::default());
    c.seal();
}

fn other_label(c: &mut Crafted) {
    let mut parts = c.arrow(METADATA_FILE);
    let labels = parts.batches[0][0].as_primitive::<Int64Type>().values();
    let changed = labels.iter().map(|&label| if label == 33 { 34 } else { label });
    parts.batches[0][0] = Arc::new(Int64Array::from_iter_values(changed));
    c.put_arrow(METADATA_FILE, &parts.schema, &parts, Layout::default());
    c.seal();
}

fn longer_payload(c: &mut Crafted, row: u64) {
    let IndexRecord::FileRange { offset, stored_len, raw_len } = c.record(row) else {
        panic!("not a file range")
    };
    c.put_record(row, IndexRecord::FileRange { offset, stored_len, raw_len: raw_len + 1 });
    c.seal();
}
