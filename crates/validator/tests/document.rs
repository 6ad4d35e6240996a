//! Numbers that `docs/format/v0.md` and `schemas/` state are those of the code.

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

/// Bytes of the fenced block called `name`.
fn golden(name: &str) -> Vec<u8> {
    let document = text("docs/format/v0.md");
    let (_, rest) = document.split_once(&format!("```hex {name}\n")).unwrap();
    let (block, _) = rest.split_once("```").unwrap();
    let digits = block.split_whitespace().collect::<String>();
    (0..digits.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap())
        .collect()
}

fn label() -> StoredSchema {
    let column =
        StoredColumn { name: "label".into(), column_type: ColumnType::Int64, nullable: true };
    StoredSchema::new(vec![column]).unwrap()
}

#[test]
fn golden_bytes_are_those_of_the_code() {
    assert_eq!(golden("index-header"), encode_header(IndexKind::FileRange));
    let record = IndexRecord::FileRange { offset: 258, stored_len: 7, raw_len: 9 };
    assert_eq!(golden("index-record"), record.encode());
    assert_eq!(golden("digests-header"), encode_digests_header());
    let mut content = ContentHasher::new(&label());
    let labels: ArrayRef = Arc::new(Int64Array::from(vec![Some(7), None]));
    content.update(&[labels], &LargeBinaryArray::from(vec![&b"abc"[..], b""])).unwrap();
    assert_eq!(golden("content-digest"), content.finish());
}

/// The same digest, from the document's words alone.
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
    let content = [&number(1)[..], &spelled("label"), &spelled("int64"), &group, &number(2)];
    let content = blake3::derive_key("dataset_rt format 0 contents", &content.concat());
    assert_eq!(golden("content-digest"), content);
}

#[test]
fn arrow_schemas_are_those_of_the_code() {
    let described: Value = serde_json::from_str(&text("schemas/arrow.v0.json")).unwrap();
    for (name, arrow) in described["types"].as_object().unwrap() {
        let column_type = ColumnType::from_text(name).unwrap();
        assert_eq!(column_type.to_arrow().to_string(), arrow.as_str().unwrap(), "{name}");
    }
    let marks = schema_marks(&Compression::default(), Some("00"));
    let files =
        [("metadata.arrow", label().metadata_schema()), ("shards", label().shard_schema(&marks))];
    for (name, schema) in files {
        let described = &described[name];
        let (before, behind) = (&described["before"], &described["behind"]);
        let stored: Value =
            serde_json::json!([{ "name": "label", "type": "int64", "nullable": true }]);
        let fields: Vec<&Value> =
            [before, &stored, behind].into_iter().flat_map(|f| f.as_array().unwrap()).collect();
        assert_eq!(fields.len(), schema.fields().len(), "{name}");
        for (field, found) in fields.iter().zip(schema.fields()) {
            assert_eq!(field["name"], found.name().as_str());
            assert_eq!(field["nullable"], found.is_nullable());
            let column_type = ColumnType::from_arrow(found.data_type()).unwrap();
            assert_eq!(field["type"], column_type.to_text());
        }
        let keys: BTreeSet<&String> = schema.metadata().keys().collect();
        let described = described["metadata"].as_object().unwrap();
        assert_eq!(described.keys().collect::<BTreeSet<_>>(), keys, "{name}");
        for key in ["dataset_rt.kind", "dataset_rt.format_version"] {
            assert_eq!(described[key], schema.metadata()[key].as_str());
        }
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
