//! Frames give back what went in, are standard, and never trust what they are given.

use std::io::Read;

use proptest::prelude::*;

use super::super::compression::Scope;
use super::super::{Compressor, Decompressor, train_dictionary};
use crate::Kind;
use crate::format::codec::{Algo, Compression};

const LZ4: Compression =
    Compression { algo: Algo::Lz4, level: None, scope: Scope::Payload, dictionary_bytes: 0 };
const ZSTD: Compression = Compression { algo: Algo::Zstd, ..LZ4 };
const NONE: Compression = Compression { algo: Algo::None, ..LZ4 };

fn compress(compression: &Compression, dictionary: Option<&[u8]>, raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Compressor::new(compression, dictionary).unwrap().compress(raw, &mut out).unwrap();
    out
}

fn decompress(compression: &Compression, frame: &[u8], len: usize) -> crate::Result<Vec<u8>> {
    let mut out = vec![0xaa; len];
    Decompressor::new(compression, None)?.decompress(frame, &mut out)?;
    Ok(out)
}

/// Bytes with repeats and without, so that both compressed and raw blocks occur.
fn payload() -> impl Strategy<Value = Vec<u8>> {
    let noise = proptest::collection::vec(any::<u8>(), 0..2000);
    let pattern = (proptest::collection::vec(any::<u8>(), 1..20), 0..400_usize)
        .prop_map(|(unit, times)| unit.repeat(times));
    prop_oneof![noise, pattern]
}

proptest! {
    #[test]
    fn what_was_compressed_comes_back(raw in payload()) {
        for compression in [NONE, LZ4, ZSTD] {
            let frame = compress(&compression, None, &raw);
            prop_assert_eq!(decompress(&compression, &frame, raw.len()).unwrap(), raw.clone());
            let mut appended = vec![7];
            let mut decompressor = Decompressor::new(&compression, None).unwrap();
            decompressor.append(&frame, &mut appended).unwrap();
            prop_assert_eq!(&appended[1..], &raw);
        }
    }

    #[test]
    fn a_wrong_raw_length_is_refused(raw in payload(), wrong in 0..3000_usize) {
        prop_assume!(wrong != raw.len());
        for compression in [NONE, LZ4, ZSTD] {
            let frame = compress(&compression, None, &raw);
            let error = decompress(&compression, &frame, wrong).unwrap_err();
            prop_assert_eq!(error.kind(), Kind::Corrupt);
        }
    }

    #[test]
    fn bytes_never_depend_on_what_came_before(before in payload(), raw in payload()) {
        let long = vec![7; 100_000];
        for compression in [LZ4, ZSTD] {
            let mut used = Compressor::new(&compression, None).unwrap();
            let mut out = Vec::new();
            used.compress(&long, &mut out).unwrap();
            used.compress(&before, &mut out).unwrap();
            out.clear();
            used.compress(&raw, &mut out).unwrap();
            prop_assert_eq!(out, compress(&compression, None, &raw));
        }
    }

    #[test]
    fn any_bytes_are_safe_to_decompress(bytes in payload(), len in 0..5000_usize) {
        for compression in [LZ4, ZSTD] {
            let _ = decompress(&compression, &bytes, len);
        }
    }
}

#[test]
fn every_truncation_and_extension_is_refused() {
    let raw = b"some text, some text, some other text".repeat(5);
    for compression in [LZ4, ZSTD] {
        let frame = compress(&compression, None, &raw);
        for len in 0..frame.len() {
            assert!(decompress(&compression, &frame[..len], raw.len()).is_err(), "{len}");
        }
        let longer = [frame.as_slice(), &[0]].concat();
        assert!(decompress(&compression, &longer, raw.len()).is_err());
        let twice = [frame.as_slice(), &frame].concat();
        assert!(decompress(&compression, &twice, raw.len()).is_err());
    }
}

#[test]
fn every_flipped_bit_gives_an_error_or_the_right_number_of_bytes() {
    let raw = b"some text, some text, some other text".repeat(5);
    for compression in [LZ4, ZSTD] {
        let frame = compress(&compression, None, &raw);
        let mut refused = 0;
        for bit in 0..frame.len() * 8 {
            let mut damaged = frame.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            match decompress(&compression, &damaged, raw.len()) {
                Ok(out) => assert_eq!(out.len(), raw.len()),
                Err(error) => {
                    refused += 1;
                    assert_eq!(error.kind(), Kind::Corrupt);
                }
            }
        }
        assert!(refused > 32, "{compression:?}: headers at least are noticed");
    }
}

#[test]
fn lz4_frames_of_every_block_class_are_standard() {
    for len in [0, 1, 1 << 16, (1 << 16) + 1, 1 << 18, 1 << 20, (1 << 22) + 5, 9_000_000] {
        let raw: Vec<u8> = (0..len).map(|i: u32| (i / 7) as u8).collect();
        let frame = compress(&LZ4, None, &raw);
        // An independent decoder, which checks the header's checksum.
        let mut out = Vec::new();
        lz4_flex::frame::FrameDecoder::new(frame.as_slice()).read_to_end(&mut out).unwrap();
        assert!(out == raw, "{len}");
        assert!(decompress(&LZ4, &frame, raw.len()).unwrap() == raw, "{len}");
    }
}

#[test]
fn zstd_frames_are_standard_and_state_their_size() {
    let raw = b"abc".repeat(1000);
    let frame = compress(&Compression { level: Some(19), ..ZSTD }, None, &raw);
    assert_eq!(zstd::decode_all(frame.as_slice()).unwrap(), raw);
    assert_eq!(zstd::zstd_safe::get_frame_content_size(&frame).unwrap(), Some(3000));
}

#[test]
fn zstd_frames_without_a_size_or_of_other_kinds_are_refused() {
    let raw = b"abc".repeat(1000);
    let streamed = zstd::encode_all(raw.as_slice(), 3).unwrap();
    let skippable = [&0x184D_2A50_u32.to_le_bytes()[..], &4_u32.to_le_bytes(), b"skip"].concat();
    let legacy = [&0xFD2F_B527_u32.to_le_bytes()[..], &[0; 40]].concat();
    for frame in [streamed, skippable, legacy] {
        for len in [0, raw.len()] {
            assert_eq!(decompress(&ZSTD, &frame, len).unwrap_err().kind(), Kind::Corrupt);
        }
    }
}

fn records() -> (Vec<u8>, Vec<usize>) {
    let rows: Vec<String> = (0..4000)
        .map(|i| format!("{{\"id\": {i}, \"label\": \"class-{}\", \"score\": 0.{i}}}", i % 17))
        .collect();
    (rows.concat().into_bytes(), rows.iter().map(String::len).collect())
}

#[test]
fn a_dictionary_is_deterministic_and_makes_small_records_smaller() {
    let (samples, lengths) = records();
    let dictionary = train_dictionary(&samples, &lengths, 4096).unwrap().unwrap();
    assert!(dictionary.len() <= 4096);
    assert_eq!(train_dictionary(&samples, &lengths, 4096).unwrap().as_ref(), Some(&dictionary));
    let raw = &samples[..lengths[0]];
    let with = Compression { dictionary_bytes: 4096, ..ZSTD };
    let frame = compress(&with, Some(&dictionary), raw);
    assert!(frame.len() < compress(&ZSTD, None, raw).len());
    let mut out = vec![0; raw.len()];
    Decompressor::new(&with, Some(&dictionary)).unwrap().decompress(&frame, &mut out).unwrap();
    assert_eq!(out, raw);
    assert!(decompress(&with, &frame, raw.len()).is_err(), "without its dictionary");
}

#[test]
fn too_few_samples_give_no_dictionary_and_wrong_lengths_an_error() {
    assert_eq!(train_dictionary(b"", &[], 1024).unwrap(), None);
    assert_eq!(train_dictionary(b"ab", &[1, 1], 1024).unwrap(), None);
    for lengths in [vec![1], vec![3], vec![usize::MAX, 3]] {
        let error = train_dictionary(b"ab", &lengths, 1024).unwrap_err();
        assert_eq!(error.kind(), Kind::InvalidInput);
    }
    assert!(train_dictionary(b"ab", &[2], usize::MAX).is_err());
}

#[test]
fn a_dictionary_without_zstd_per_payload_is_refused() {
    for compression in [NONE, LZ4, Compression { scope: Scope::Buffer, ..ZSTD }] {
        assert!(Compressor::new(&compression, Some(b"dict")).is_err());
        assert!(Decompressor::new(&compression, Some(b"dict")).is_err());
    }
}
