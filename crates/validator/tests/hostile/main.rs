//! Every rule of the format is noticed when it alone is broken, and nothing else is reported.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

mod craft;
mod fixtures;
mod memory;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use craft::{Crafted, codecs};
use dataset_rt_storage::Kind;
use dataset_rt_storage::format::codec::Compression;
use dataset_rt_storage::format::index::IndexRecord;
use dataset_rt_storage::format::manifest::{
    DIGESTS_FILE, MANIFEST_FILE, METADATA_FILE, SHARDS_DIR,
};
use dataset_rt_validator::{Level, RULES, verify_cache};
use fixtures::{UNREACHABLE, fixtures};

#[test]
fn a_good_cache_passes_every_level_with_every_codec() {
    for compression in codecs() {
        let cache = Crafted::new(compression);
        assert!(cache.manifest.shards.len() > 1);
        for level in [Level::Quick, Level::Full, Level::Deep] {
            let report = cache.verify(level);
            assert!(report.ok && report.findings.is_empty(), "{compression:?}: {report:?}");
        }
    }
}

#[test]
fn taking_apart_and_sealing_changes_nothing() {
    for compression in codecs() {
        let mut cache = Crafted::new(compression);
        let before = cache.read(MANIFEST_FILE);
        cache.seal();
        assert_eq!(cache.read(MANIFEST_FILE), before, "{compression:?}");
        let metadata = cache.read(METADATA_FILE);
        let parts = cache.arrow(METADATA_FILE);
        cache.put_arrow(METADATA_FILE, &parts.schema, &parts, craft::Layout::default());
        assert_eq!(cache.read(METADATA_FILE), metadata);
    }
}

/// Two files agree that a payload of a few bytes is one of almost 2 GiB.
#[test]
fn absurd_lengths_take_no_memory() {
    for compression in codecs().into_iter().filter(Compression::is_per_payload) {
        let mut cache = Crafted::new(compression);
        let IndexRecord::FileRange { offset, stored_len, .. } = cache.record(9) else {
            panic!("not a file range")
        };
        let raw_len = i32::MAX as u32;
        cache.put_record(9, IndexRecord::FileRange { offset, stored_len, raw_len });
        cache.manifest.payload_bytes_total = u64::from(raw_len);
        cache.seal();
        let report = cache.verify(Level::Deep);
        let finding = report.findings.iter().find(|f| f.rule == "S03").unwrap();
        assert!(finding.found.contains("stored bytes"), "{finding}");
    }
}

#[test]
fn each_fixture_breaks_its_rule_and_no_other() {
    for (number, fixture) in fixtures().into_iter().enumerate() {
        let rule = RULES.iter().find(|rule| rule.id == fixture.rule).unwrap();
        let mut cache = Crafted::new(fixture.compression);
        (fixture.craft)(&mut cache);
        let level = Level::from_name(rule.level).unwrap();
        let report = cache.verify(level);
        let found: BTreeSet<&str> = report.findings.iter().map(|f| f.rule.as_str()).collect();
        let place = format!("fixture {number} of {}: {report:#?}", rule.id);
        assert_eq!(found, BTreeSet::from([rule.id]), "{place}");
        assert!(!report.ok, "{place}");
        for finding in &report.findings {
            assert!(!finding.expected.is_empty() && !finding.found.is_empty(), "{place}");
            assert!(!finding.file.is_empty(), "{place}");
        }
        // The level below is not said to notice, so it must not.
        let below = [Level::Quick, Level::Full].into_iter().rfind(|below| *below < level);
        if let Some(below) = below {
            assert!(cache.verify(below).ok, "{place}");
        }
    }
}

/// Ids in the order of the document: every MUST that carries one.
fn documented() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format/v0.md");
    let text = fs::read_to_string(path).unwrap();
    let mut ids = Vec::new();
    for piece in text.split("**[").skip(1) {
        let (id, rest) = piece.split_once("]**").expect("an id ends with ]**");
        let sentence = rest.split("\n\n").next().unwrap();
        assert!(sentence.contains("MUST"), "{id} is no MUST");
        ids.push(id.to_owned());
    }
    ids
}

#[test]
fn document_validator_and_fixtures_name_the_same_rules() {
    let rules: Vec<&str> = RULES.iter().map(|rule| rule.id).collect();
    let once: BTreeSet<&str> = rules.iter().copied().collect();
    assert_eq!(once.len(), rules.len(), "an id stands for two rules");
    let documented = documented();
    let mut ids = documented.clone();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), documented.len(), "an id stands twice in the document");
    assert_eq!(ids, once.iter().copied().collect::<Vec<_>>());
    let fixtures = fixtures();
    let with_fixture: BTreeSet<&str> = fixtures.iter().map(|fixture| fixture.rule).collect();
    let excused: BTreeSet<&str> = UNREACHABLE.iter().map(|(rule, _)| *rule).collect();
    assert!(with_fixture.is_disjoint(&excused));
    assert_eq!(with_fixture.union(&excused).copied().collect::<BTreeSet<_>>(), once);
    assert!(UNREACHABLE.iter().all(|(_, reason)| reason.len() > 20));
}

#[test]
fn every_flipped_byte_of_every_file_is_noticed() {
    let cache = Crafted::small(Compression::default());
    let mut names: Vec<String> =
        cache.manifest.verified_files().map(|file| file.path.to_owned()).collect();
    names.extend([cache.manifest.digests.path.clone(), MANIFEST_FILE.to_owned()]);
    for name in names {
        let good = cache.read(&name);
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            cache.write(&name, &bad);
            let report = cache.verify(Level::Full);
            let is_named = report.findings.iter().any(|finding| finding.file == name);
            let is_damage = report.findings.iter().all(|finding| finding.kind == Kind::Corrupt);
            assert!(!report.ok && is_named && is_damage, "{name}, byte {at}: {report:?}");
        }
        cache.write(&name, &good);
    }
    assert!(cache.verify(Level::Deep).ok);
}

#[test]
fn every_truncation_and_every_exchange_of_files_is_noticed() {
    let cache = Crafted::new(Compression::default());
    let names: Vec<String> =
        cache.manifest.verified_files().map(|file| file.path.to_owned()).collect();
    for pair in names.windows(2) {
        let (a, b) = (cache.read(&pair[0]), cache.read(&pair[1]));
        cache.write(&pair[0], &b);
        cache.write(&pair[1], &a);
        assert!(!cache.verify(Level::Full).ok, "{pair:?} exchanged");
        cache.write(&pair[0], &a);
        cache.write(&pair[1], &b);
    }
    let small = Crafted::small(Compression::default());
    for name in small.manifest.verified_files().map(|file| file.path) {
        let good = small.read(name);
        for len in (0..good.len()).step_by(7) {
            small.write(name, &good[..len]);
            assert!(!small.verify(Level::Quick).ok, "{name} cut at {len}");
        }
        small.write(name, &good);
    }
}

#[test]
fn bytes_changed_under_right_digests_never_panic() {
    for compression in codecs() {
        let mut cache = Crafted::small(compression);
        let names: Vec<String> =
            cache.manifest.verified_files().map(|file| file.path.to_owned()).collect();
        for name in names {
            let good = cache.read(&name);
            // A stride that is odd meets every byte of a word, in headers and values alike.
            let stride = (good.len() / 90) | 1;
            for (turn, at) in (0..good.len()).step_by(stride).enumerate() {
                let mut bad = good.clone();
                bad[at] = [0xff, 0x80, 0x00][turn % 3];
                cache.write(&name, &bad);
                cache.seal();
                // Whatever it says, it says it as a report or an error.
                let _ = verify_cache(&cache.path, Level::Deep);
            }
            cache.write(&name, &good);
        }
        cache.seal();
        assert!(cache.verify(Level::Deep).ok);
    }
}

#[test]
fn no_cache_is_an_error_and_extra_files_are_none() {
    let cache = Crafted::new(Compression::default());
    let missing = verify_cache(&cache.path.join("nowhere"), Level::Quick).unwrap_err();
    assert_eq!(missing.kind(), Kind::NotFound);
    let parent = verify_cache(cache.path.parent().unwrap(), Level::Quick).unwrap_err();
    assert_eq!(parent.kind(), Kind::NotFound);
    fs::write(cache.path.join("notes.txt"), "mine").unwrap();
    fs::create_dir(cache.path.join("shards/extra")).unwrap();
    assert!(cache.verify(Level::Deep).ok);
}

#[test]
fn another_version_is_a_finding_that_names_both_and_is_no_damage() {
    let mut cache = Crafted::new(Compression::default());
    cache.manifest.format_version = 1;
    cache.write_manifest();
    for level in [Level::Quick, Level::Full, Level::Deep] {
        let report = cache.verify(level);
        let finding = report.first_error().unwrap();
        assert_eq!((finding.rule.as_str(), finding.kind), ("M01", Kind::Unsupported));
        assert_eq!(
            (finding.place.as_str(), finding.expected.as_str()),
            ("format_version", "version 0")
        );
        assert!(finding.found.contains("version 1"), "{finding}");
    }
}

#[test]
fn what_stands_in_the_place_of_a_file_is_a_finding_at_every_level() {
    let stand_in: [fn(&Path); 3] = [
        |path| fs::create_dir(path).unwrap(),
        |path| std::os::unix::fs::symlink("/dev/zero", path).unwrap(),
        |path| std::os::unix::fs::symlink(path, path).unwrap(),
    ];
    let names = |cache: &Crafted| -> Vec<String> {
        let named = cache.manifest.verified_files().map(|file| file.path.to_owned());
        named.chain([DIGESTS_FILE, MANIFEST_FILE, SHARDS_DIR].map(str::to_owned)).collect()
    };
    let cache = Crafted::new(Compression::default());
    for name in names(&cache) {
        let (path, aside) = (cache.path.join(&name), cache.path.join("aside"));
        fs::rename(&path, &aside).unwrap();
        for (number, put) in stand_in.iter().enumerate() {
            if name == SHARDS_DIR && number == 0 {
                continue;
            }
            put(&path);
            for level in [Level::Quick, Level::Full, Level::Deep] {
                let report = cache.verify(level);
                let is_named = report.findings.iter().any(|finding| finding.file == name);
                assert!(!report.ok && is_named, "{name}, stand-in {number}: {report:?}");
            }
            let _ = fs::remove_dir(&path).or_else(|_| fs::remove_file(&path));
        }
        fs::rename(&aside, &path).unwrap();
    }
    assert!(cache.verify(Level::Deep).ok);
}

#[test]
fn the_report_is_json_and_bounded() {
    let mut cache = Crafted::new(Compression::default());
    cache.change("index.bin", |bytes| bytes[64..].fill(0xee));
    cache.seal();
    let report = cache.verify(Level::Deep);
    assert_eq!(report.findings.len(), craft::ROWS);
    assert_eq!(report.files_checked, 1 + cache.manifest.verified_files().count() as u64 + 1);
    assert!(report.bytes_checked > 70_000);
    let json: serde_json::Value = serde_json::from_str(&report.to_json().unwrap()).unwrap();
    assert_eq!(json["ok"], false);
    assert_eq!(json["level"], "deep");
    assert_eq!(json["findings"][0]["rule"], "I02");
    assert_eq!(json["findings"][0]["severity"], "error");
    assert_eq!(json["findings"][0]["file"], "index.bin");
    assert!(report.first_error().unwrap().to_string().starts_with("I02 in index.bin at row 0"));
}
