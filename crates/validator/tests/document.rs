//! Numbers that `docs/format/v0.md` and `schemas/` state are those of the code.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, LargeBinaryArray};
use dataset_rt_storage::format::codec::{Compression, schema_marks};
use dataset_rt_storage::format::content::ContentHasher;
use dataset_rt_storage::format::digest::encode_digests_header;
use dataset_rt_storage::format::index::{IndexKind, IndexRecord, encode_header};
use dataset_rt_storage::format::manifest::Manifest;
use dataset_rt_storage::format::schema::{ColumnType, StoredColumn, StoredSchema};
use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

fn label() -> StoredSchema {
    let column =
        StoredColumn { name: "label".into(), column_type: ColumnType::Int64, nullable: true };
    StoredSchema::new(vec![column]).unwrap()
}

#[test]
fn bytes_in_the_document_are_those_of_the_code() {
    let document = text("docs/format/v0.md");
    let record = IndexRecord::FileRange { offset: 0x0102, stored_len: 7, raw_len: 9 }.encode();
    let record = record.map(|byte| format!("{byte:02x}")).join(" ");
    assert!(document.contains(&format!("`{record}`")), "{record}");
    for (header, magic) in
        [(encode_header(IndexKind::FileRange), "DRTINDEX"), (encode_digests_header(), "DRTBLOCK")]
    {
        assert!(document.contains(&format!("`{magic}`")) && header.starts_with(magic.as_bytes()));
    }
}

/// Headers as the document's tables give them, without the code that writes them.
#[test]
fn headers_follow_from_the_document() {
    let padded = |magic: &str, numbers: [u64; 3]| {
        let mut header = magic.as_bytes().to_vec();
        header.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        header.resize(64, 0);
        header
    };
    assert_eq!(encode_header(IndexKind::FileRange).to_vec(), padded("DRTINDEX", [0, 16, 0]));
    assert_eq!(encode_header(IndexKind::BatchRange).to_vec(), padded("DRTINDEX", [0, 16, 1]));
    assert_eq!(encode_digests_header().to_vec(), padded("DRTBLOCK", [0, 65_536, 0]));
}

/// The digest of two rows, from the document's words alone.
#[test]
fn the_content_digest_follows_from_the_document() {
    let number = |n: u64| n.to_le_bytes();
    let hash = |bytes: &[u8]| *blake3::hash(bytes).as_bytes();
    let spelled = |s: &str| [&number(s.len() as u64)[..], s.as_bytes()].concat();
    let group = [
        &number(2)[..],
        &hash(b""),
        &hash(&[number(3), number(0)].concat()),
        &hash(b"abc"),
        &hash(&[1, 0]),
        &hash(b""),
        &hash(&[number(7), number(0)].concat()),
    ];
    let group = blake3::derive_key("dataset_rt format 0 content group", &group.concat());
    let expected = [&number(1)[..], &spelled("label"), &spelled("int64"), &group, &number(2)];
    let expected = blake3::derive_key("dataset_rt format 0 contents", &expected.concat());
    let mut content = ContentHasher::new(&label());
    let labels: ArrayRef = Arc::new(Int64Array::from(vec![Some(7), None]));
    content.update(&[labels], &LargeBinaryArray::from(vec![&b"abc"[..], b""])).unwrap();
    assert_eq!(content.finish(), expected);
}

#[test]
fn arrow_schemas_are_those_of_the_code() {
    let described: Value = serde_json::from_str(&text("schemas/arrow.v0.json")).unwrap();
    let marks = schema_marks(&Compression::default(), Some("00"));
    let shard = label().shard_schema(&marks);
    for (field, described) in [
        (shard.field(0), &described["shard"]["first"]),
        (shard.field(2), &described["shard"]["last"]),
    ] {
        let column_type = ColumnType::from_arrow(field.data_type()).unwrap();
        assert_eq!(described["name"], field.name().as_str());
        assert_eq!(described["type"], column_type.to_text());
        assert_eq!(described["nullable"], field.is_nullable());
    }
    for (kind, schema) in [("shard", &shard), ("metadata", &label().metadata_schema())] {
        let described = described[kind]["metadata"].as_object().unwrap();
        let keys: BTreeSet<&String> = schema.metadata().keys().collect();
        assert_eq!(described.keys().collect::<BTreeSet<_>>(), keys, "{kind}");
        assert_eq!(described["dataset_rt.kind"], kind);
        assert_eq!(described["dataset_rt.format_version"], "0");
    }
}

/// Every object of the manifest has the fields its schema requires and allows, with their types.
fn obeys(schema: &Value, root: &Value, value: &Value) -> Result<(), String> {
    let fault = |what: &str| Err(format!("{what}: {value}"));
    if let Some(target) = schema["$ref"].as_str() {
        obeys(root.pointer(target.trim_start_matches('#')).unwrap(), root, value)?;
    }
    if let Some(choices) = schema["anyOf"].as_array()
        && choices.iter().all(|choice| obeys(choice, root, value).is_err())
    {
        return fault("no choice fits");
    }
    if schema.get("const").is_some_and(|only| only != value) {
        return fault("another value");
    }
    if schema["enum"].as_array().is_some_and(|list| !list.contains(value)) {
        return fault("not in the list");
    }
    let name = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let is_typed = match &schema["type"] {
        Value::String(only) => only == name,
        Value::Array(list) => list.iter().any(|one| one == name),
        _ => true,
    };
    let is_small = |bound: &str| schema[bound].as_u64().zip(value.as_u64());
    if !is_typed
        || is_small("minimum").is_some_and(|(bound, found)| found < bound)
        || is_small("maximum").is_some_and(|(bound, found)| found > bound)
    {
        return fault("another type or range");
    }
    if let (Some(fields), Some(properties)) = (value.as_object(), schema["properties"].as_object())
    {
        let known = |key: &String| properties.contains_key(key);
        if schema["additionalProperties"] == false && !fields.keys().all(known) {
            return fault("an unknown field");
        }
        for (key, inner) in properties {
            fields.get(key).map_or(Ok(()), |field| obeys(inner, root, field))?;
        }
    }
    let mut required = schema["required"].as_array().into_iter().flatten();
    if value.is_object() && !required.all(|key| value.get(key.as_str().unwrap()).is_some()) {
        return fault("a field is missing");
    }
    for item in value.as_array().into_iter().flatten() {
        obeys(&schema["items"], root, item)?;
    }
    Ok(())
}

#[test]
fn golden_manifests_obey_the_json_schema_and_changed_ones_do_not() {
    let schema: Value = serde_json::from_str(&text("schemas/manifest.v0.schema.json")).unwrap();
    let mut seen = BTreeMap::new();
    for entry in fs::read_dir(root().join("tests/golden/v0")).unwrap() {
        let path = entry.unwrap().path();
        let bytes = fs::read(path.join("manifest.json")).unwrap();
        Manifest::decode(&bytes).unwrap();
        let manifest: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(obeys(&schema, &schema, &manifest), Ok(()), "{}", path.display());
        seen.insert(path, manifest);
    }
    let good = seen.into_values().next().unwrap();
    let pointers = ["/format", "/cache_id", "/shards/0/rows", "/compression/algo", "/index/path"];
    for pointer in pointers {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).unwrap() = Value::Bool(true);
        assert!(obeys(&schema, &schema, &bad).is_err(), "{pointer}");
    }
    for key in good.as_object().unwrap().keys() {
        let mut bad = good.clone();
        bad.as_object_mut().unwrap().remove(key);
        assert!(obeys(&schema, &schema, &bad).is_err(), "without {key}");
    }
    let mut bad = good;
    bad["index"]["extra"] = Value::Null;
    assert!(obeys(&schema, &schema, &bad).is_err());
}
