//! Manifests survive, and damaged or lying ones are refused.

use super::*;

fn sample() -> Manifest {
    let content = [7; 32];
    let entry = |path: &str, size| FileEntry::new(path, size, &[1; 32]);
    let mut manifest = Manifest {
        format: FORMAT_NAME.into(),
        format_version: FORMAT_VERSION,
        cache_id: cache_id_of(&content),
        content_blake3: to_hex(&content),
        source_name: "train".into(),
        fingerprint: None,
        samples_total: 3,
        payload_bytes_total: 10,
        columns: vec![ColumnEntry {
            name: "label".into(),
            type_text: "int64".into(),
            nullable: true,
        }],
        compression: Compression::default(),
        block_bytes: BLOCK_BYTES,
        shards: vec![ShardEntry {
            path: shard_path(0),
            size_bytes: 1000,
            blake3: to_hex(&[2; 32]),
            rows: 3,
        }],
        metadata: entry(METADATA_FILE, 500),
        index: entry(INDEX_FILE, 64 + 48),
        dictionary: None,
        digests: entry(DIGESTS_FILE, 64),
        provenance: BTreeMap::new(),
        manifest_blake3: String::new(),
    };
    manifest.encode().unwrap();
    manifest
}

#[test]
fn a_manifest_survives() {
    let mut manifest = sample();
    let bytes = manifest.encode().unwrap();
    assert_eq!(Manifest::decode(&bytes).unwrap(), manifest);
}

#[test]
fn every_changed_byte_and_every_truncation_is_refused() {
    let bytes = sample().encode().unwrap();
    let kind = |bytes: &[u8]| Manifest::decode(bytes).map(drop).map_err(|e| e.kind());
    for i in 0..bytes.len() {
        for flip in [1, 0x20, 0x80] {
            let mut damaged = bytes.clone();
            damaged[i] ^= flip;
            assert_eq!(kind(&damaged), Err(Kind::Corrupt), "byte {i} flip {flip}");
        }
        assert_eq!(kind(&bytes[..i]), Err(Kind::Corrupt), "cut at {i}");
    }
    let mut longer = bytes.clone();
    longer.push(b'\n');
    assert!(Manifest::decode(&longer).is_err());
}

#[test]
fn another_version_is_refused_by_name() {
    let mut manifest = sample();
    manifest.format_version = 9;
    let error = Manifest::decode(&manifest.encode().unwrap()).unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
    assert!(error.message().contains("version 9"), "{error}");
    assert!(error.message().contains("version 0"), "{error}");
}

#[test]
fn a_damaged_version_is_damage_and_names_the_digest() {
    let text = String::from_utf8(sample().encode().unwrap()).unwrap();
    let damaged = text.replace("\"format_version\": 0", "\"format_version\": 1");
    assert_ne!(damaged, text);
    let error = Manifest::decode(damaged.as_bytes()).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(error.message().contains("digest differs"), "{error}");
}

#[test]
fn fields_of_a_later_version_are_not_looked_at() {
    let body = "{\n  \"format\": \"dataset_rt\",\n  \"format_version\": 7,\n  \"tables\": []";
    let sealed = |digest: &str| format!("{body},\n  \"{SELF_DIGEST}\": \"{digest}\"\n}}\n");
    let digest = blake3::hash(sealed(&"0".repeat(64)).as_bytes()).to_hex();
    let error = Manifest::decode(sealed(&digest).as_bytes()).unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported, "{error}");
}

#[test]
fn crafted_manifests_with_a_right_digest_are_refused() {
    let crafted: [fn(&mut Manifest); 14] = [
        |m| m.source_name = "../../x".into(),
        |m| m.cache_id += 1,
        |m| m.samples_total = 4,
        |m| m.shards[0].rows = u64::MAX,
        |m| m.shards[0].path = "../../etc/passwd".into(),
        |m| m.metadata.path = "/etc/passwd".into(),
        |m| m.index.size_bytes = 1 << 60,
        |m| m.digests.size_bytes = 1,
        |m| m.shards[0].size_bytes = u64::MAX,
        |m| m.columns[0].type_text = "list<int64>".into(),
        |m| m.columns[0].name = "weight".into(),
        |m| m.block_bytes = 0,
        |m| m.metadata.blake3 = "zz".into(),
        |m| m.dictionary = Some(FileEntry::new(DICTIONARY_FILE, 300, &[1; 32])),
    ];
    for (i, change) in crafted.iter().enumerate() {
        let mut manifest = sample();
        change(&mut manifest);
        let error = Manifest::decode(&manifest.encode().unwrap()).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{i}");
    }
}
