//! `manifest.json`, with its own digest made right, and the texts in it.

use std::path::Path;

use dataset_rt_storage::Kind;
use dataset_rt_storage::format::manifest::Manifest;
use dataset_rt_storage::format::name::normalise_name;
use dataset_rt_storage::format::schema::{ColumnType, check_zone};

use crate::bases::BASES;
use crate::edits::{Input, edit_all};
use crate::seal::seal_text;

const EDITS_MAX: usize = 16;

/// The first byte says what the others are.
pub fn run(input: &[u8]) {
    let mut input = Input::new(input);
    match input.byte() % 4 {
        0 => check(input.rest()),
        1 => {
            let mut text = input.rest().to_vec();
            seal_text(&mut text);
            check(&text);
        }
        2 => {
            let mut text = input.pick(&BASES).manifest.clone().encode().expect("a valid manifest");
            edit_all(&mut input, &mut text, EDITS_MAX);
            seal_text(&mut text);
            check(&text);
        }
        _ => check_texts(&String::from_utf8_lossy(input.rest())),
    }
}

fn check(bytes: &[u8]) {
    let mut manifest = match Manifest::decode(bytes) {
        Ok(manifest) => manifest,
        Err(error) => {
            assert!(matches!(error.kind(), Kind::Corrupt | Kind::Unsupported), "{error}");
            return;
        }
    };
    for file in manifest.verified_files().chain([manifest.digests.as_verified()]) {
        let parts = Path::new(file.path).components();
        assert!(parts.clone().all(|part| matches!(part, std::path::Component::Normal(_))));
        assert!(parts.count() <= 2, "{} leaves its directory", file.path);
    }
    let rows: u64 = manifest.shards.iter().map(|shard| shard.rows).sum();
    assert_eq!(rows, manifest.samples_total);
    manifest.schema().expect("checked when decoded");
    manifest.digest_layout().expect("checked when decoded");
    let again = manifest.encode().expect("what was read can be written");
    assert_eq!(Manifest::decode(&again).as_ref(), Ok(&manifest));
}

fn check_texts(text: &str) {
    if let Some(column_type) = ColumnType::from_text(text) {
        assert_eq!(ColumnType::from_text(&column_type.to_text()), Some(column_type));
    }
    if let Ok(name) = normalise_name(text) {
        assert_eq!(normalise_name(&name).as_ref(), Ok(&name));
        assert!(Path::new(&name).components().count() == 1 && !name.contains(['/', '\0']));
    }
    let _ = check_zone(text);
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = (0..BASES.len() as u8).map(|base| vec![2, base]).collect();
    for base in &BASES[..3] {
        let text = base.manifest.clone().encode().expect("a valid manifest");
        seeds.push([&[0], text.as_slice()].concat());
        seeds.push([&[1], text.as_slice()].concat());
    }
    seeds.push([&[0_u8] as &[u8], &b"[".repeat(1000)].concat());
    for text in ["timestamp[us, Europe/Berlin]", "large_utf8", "train", "na\u{308}me", "../up"] {
        seeds.push([&[3], text.as_bytes()].concat());
    }
    seeds
}
