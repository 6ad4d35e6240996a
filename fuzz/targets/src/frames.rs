//! Compressed payloads and compressed Arrow buffers, beside independent decoders.

use std::io::Read;
use std::sync::LazyLock;

use dataset_rt_storage::Kind;
use dataset_rt_storage::format::codec::{Algo, Compression, Compressor, Decompressor, Scope};
use dataset_rt_storage::format::ipc::{BodyKind, decompress_buffer};

use crate::bases::{BASES, payload};
use crate::edits::{Input, edit_all};

/// What a target must not touch beside the memory it was given.
const POISON: [u8; 64] = [0xa5; 64];
/// Contents of frames are no longer, unless an input says so.
const CONTENTS_BYTES: usize = 70_000;

static DICTIONARY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut dictionaries = BASES.iter().filter_map(|base| base.files.get("dictionary.bin"));
    dictionaries.next().expect("one base has a dictionary").clone()
});

/// Choices: algorithm, scope, dictionary; whether the frame is a changed one or any bytes; its
/// length; how many bytes it is said to hold.
pub fn run(input: &[u8]) {
    let mut input = Input::new(input);
    let choice = input.byte();
    let algo = if choice & 1 == 0 { Algo::Lz4 } else { Algo::Zstd };
    let has_dictionary = choice & 6 == 6 && algo == Algo::Zstd;
    let dictionary_bytes = if has_dictionary { 1024 } else { 0 };
    let compression = Compression { algo, dictionary_bytes, scope: Scope::Payload, level: None };
    let mut dictionary = DICTIONARY.clone();
    if choice & 0x40 != 0 {
        edit_all(&mut input, &mut dictionary, 2);
    }
    let dictionary = has_dictionary.then_some(dictionary.as_slice());
    let len = usize::from(input.short());
    let raw = match choice & 0x30 {
        0x30 => vec![7; CONTENTS_BYTES * 8],
        0x20 => payload(1, CONTENTS_BYTES),
        _ => payload(1, len % 2000),
    };
    let mut frame = Vec::new();
    if choice & 8 == 0 {
        // Made with the true dictionary, whatever it is read with.
        let dictionary = has_dictionary.then_some(DICTIONARY.as_slice());
        let mut compressor = Compressor::new(&compression, dictionary).expect("a fitting choice");
        compressor.compress(&raw, &mut frame).expect("any bytes");
        edit_all(&mut input, &mut frame, 8);
    } else {
        frame = input.rest().to_vec();
    }
    if choice & 0x80 == 0 {
        check_payload(&compression, dictionary, &frame, raw.len());
        check_payload(&compression, dictionary, &frame, len);
    } else {
        for stated in [raw.len() as i64, len as i64, -1, 1 << 30] {
            check_buffer(algo, &frame, stated);
        }
    }
}

fn check_payload(
    compression: &Compression,
    dictionary: Option<&[u8]>,
    frame: &[u8],
    raw_len: usize,
) {
    let Ok(mut decompressor) = Decompressor::new(compression, dictionary) else { return };
    let mut memory = [POISON.as_slice(), &vec![0; raw_len], &POISON].concat();
    let outcome = decompressor.decompress(frame, &mut memory[64..64 + raw_len]);
    assert!(memory.starts_with(&POISON) && memory.ends_with(&POISON), "writes beside its memory");
    let decoded = &memory[64..64 + raw_len];
    match &outcome {
        Ok(()) => same_as_reference(compression.algo, dictionary, frame, decoded),
        Err(error) => assert_eq!(error.kind(), Kind::Corrupt, "{error}"),
    }
    // What was decoded before changes nothing.
    let mut again = vec![0xff; raw_len];
    let second = decompressor.decompress(frame, &mut again);
    assert_eq!(second.is_ok(), outcome.is_ok());
    assert!(outcome.is_err() || again == decoded);
}

/// What we accept, the general decoder of the same standard reads as the same bytes.
fn same_as_reference(algo: Algo, dictionary: Option<&[u8]>, frame: &[u8], decoded: &[u8]) {
    let mut reference = Vec::with_capacity(decoded.len());
    let outcome = match algo {
        Algo::Lz4 => lz4_flex::frame::FrameDecoder::new(frame).read_to_end(&mut reference),
        _ => zstd_by_stream(dictionary, frame, &mut reference).or_else(|_| {
            // A block that repeats one byte more than 128 KiB is none (RFC 8878, 3.1.1.2.4): zstd
            // refuses it by stream, and fills it in one go. No encoder makes one.
            reference = zstd::bulk::Decompressor::with_dictionary(dictionary.unwrap_or_default())?
                .decompress(frame, decoded.len())?;
            Ok(reference.len())
        }),
    };
    assert_eq!(outcome.map_err(|e| e.to_string()), Ok(decoded.len()));
    assert!(reference == decoded, "another decoder reads other bytes");
}

fn zstd_by_stream(
    dictionary: Option<&[u8]>,
    frame: &[u8],
    out: &mut Vec<u8>,
) -> std::io::Result<usize> {
    zstd::stream::Decoder::with_dictionary(frame, dictionary.unwrap_or_default())?.read_to_end(out)
}

fn check_buffer(algo: Algo, frame: &[u8], stated: i64) {
    let kind = if algo == Algo::Lz4 { BodyKind::Lz4Frame } else { BodyKind::Zstd };
    let bytes = [&stated.to_le_bytes(), frame].concat();
    for raw_len_max in [0, 1000, 1 << 20] {
        match decompress_buffer(&bytes, kind, raw_len_max) {
            Ok(decoded) => {
                assert!(decoded.len() as u64 <= raw_len_max);
                match stated {
                    -1 => assert_eq!(decoded, frame),
                    _ => same_as_reference(algo, None, frame, &decoded),
                }
            }
            Err(error) => assert_eq!(error.kind(), Kind::Corrupt, "{error}"),
        }
    }
    // A frame that is empty of contents: nothing but the prefix may be missing.
    assert!(decompress_buffer(&bytes[..7], kind, 1000).is_err());
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = (0..=255).map(|choice| vec![choice, 100, 1]).collect();
    for algo in [Algo::Lz4, Algo::Zstd] {
        let compression = Compression { algo, ..Compression::default() };
        let mut frame = vec![8 + u8::from(algo == Algo::Zstd), 200, 0];
        let mut compressor = Compressor::new(&compression, None).expect("a plain choice");
        compressor.compress(&payload(1, 200), &mut frame).expect("any bytes");
        seeds.push(frame.clone());
        frame[0] |= 0x80;
        seeds.push(frame);
    }
    seeds
}
