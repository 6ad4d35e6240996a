//! What a user chose about compression, and how files and manifests record it.
//! Knows nothing of frames.

use serde::{Deserialize, Serialize};

use crate::format::limits::DICTIONARY_BYTES_MAX;
use crate::{Error, Result};

/// Level of zstd when none was chosen: zstd's own default.
const ZSTD_LEVEL_DEFAULT: i32 = 3;
/// Levels of zstd that compress; 0 would mean "default" a second time.
const ZSTD_LEVELS: std::ops::RangeInclusive<i32> = 1..=22;
/// zstd: a block of four bytes (three of header, one repeated) can stand for 128 KiB.
const ZSTD_BYTES_PER_BYTE: u64 = 128 * 1024 / 4;
/// LZ4: each further byte of a match length adds 255.
const LZ4_BYTES_PER_BYTE: u64 = 255;
/// zstd's trainer refuses smaller dictionaries.
const DICTIONARY_BYTES_MIN: u32 = 256;

/// Compression algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Algo {
    /// Bytes as they are: the only form that is read without copying.
    #[default]
    None,
    /// LZ4 frames: fast, small gain.
    Lz4,
    /// zstd frames: slower, larger gain; takes a level and a dictionary.
    Zstd,
}

impl Algo {
    /// The name in configurations, manifests and schema metadata.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// Most raw bytes that a frame of `stored_len` bytes can stand for: a recorded length beyond
    /// that is a lie, and refused before memory is taken for it.
    pub fn raw_bytes_max(self, stored_len: u64) -> u64 {
        match self {
            Self::None => stored_len,
            Self::Lz4 => stored_len.saturating_mul(LZ4_BYTES_PER_BYTE),
            Self::Zstd => stored_len.saturating_mul(ZSTD_BYTES_PER_BYTE),
        }
    }
}

/// What is compressed as one piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Each payload alone: random access decompresses one payload.
    #[default]
    Payload,
    /// Each Arrow buffer of a batch: standard Arrow, random access decompresses a batch.
    Buffer,
}

impl Scope {
    /// The name in configurations, manifests and schema metadata.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Payload => "payload",
            Self::Buffer => "buffer",
        }
    }
}

/// How the shards of a cache are compressed. The default is not at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compression {
    /// Algorithm.
    pub algo: Algo,
    /// Level of zstd, 1 to 22; `None` is level 3.
    pub level: Option<i32>,
    /// What is compressed as one piece.
    pub scope: Scope,
    /// Bytes of the zstd dictionary to train; 0 for none.
    pub dictionary_bytes: u32,
}

impl Compression {
    /// Checks that the choices fit together.
    ///
    /// # Errors
    /// `InvalidInput` naming the field to change.
    pub fn validate(&self) -> Result<()> {
        let algo = self.algo.as_str();
        match (self.algo, self.level) {
            (_, None) => {}
            (Algo::Zstd, Some(level)) if ZSTD_LEVELS.contains(&level) => {}
            (Algo::Zstd, Some(level)) => {
                return Err(Error::invalid(format!(
                    "compression level {level}; expected {} to {} for zstd, or none",
                    ZSTD_LEVELS.start(),
                    ZSTD_LEVELS.end()
                )));
            }
            (_, Some(level)) => {
                return Err(Error::invalid(format!(
                    "compression level {level} with algo {algo:?}; only \"zstd\" has levels"
                )));
            }
        }
        let bytes = self.dictionary_bytes;
        if bytes == 0 {
            return Ok(());
        }
        if self.algo != Algo::Zstd || self.scope != Scope::Payload {
            return Err(Error::invalid(format!(
                "dictionary_bytes {bytes} with algo {algo:?} and scope {:?}; dictionaries need \
                 algo \"zstd\" and scope \"payload\"",
                self.scope.as_str()
            )));
        }
        if bytes < DICTIONARY_BYTES_MIN || u64::from(bytes) > DICTIONARY_BYTES_MAX {
            return Err(Error::invalid(format!(
                "dictionary_bytes {bytes}; expected 0 or {DICTIONARY_BYTES_MIN} to \
                 {DICTIONARY_BYTES_MAX}"
            )));
        }
        Ok(())
    }

    /// The level zstd works with.
    pub fn zstd_level(&self) -> i32 {
        self.level.unwrap_or(ZSTD_LEVEL_DEFAULT)
    }

    /// Whether payloads are frames of their own in the payload column.
    pub fn is_per_payload(&self) -> bool {
        self.algo != Algo::None && self.scope == Scope::Payload
    }

    /// Whether Arrow buffers are compressed.
    pub fn is_per_buffer(&self) -> bool {
        self.algo != Algo::None && self.scope == Scope::Buffer
    }
}

/// Schema metadata of shards that tells any reader what their payload column holds.
pub fn schema_marks(
    compression: &Compression,
    dictionary_blake3: Option<&str>,
) -> Vec<(String, String)> {
    let mut marks = vec![
        ("dataset_rt.codec".to_owned(), compression.algo.as_str().to_owned()),
        ("dataset_rt.codec_scope".to_owned(), compression.scope.as_str().to_owned()),
    ];
    if let Some(digest) = dictionary_blake3 {
        marks.push(("dataset_rt.dictionary_blake3".to_owned(), digest.to_owned()));
    }
    marks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_form_is_fixed() {
        let text = r#"{"algo":"none","level":null,"scope":"payload","dictionary_bytes":0}"#;
        assert_eq!(serde_json::to_string(&Compression::default()).unwrap(), text);
        assert_eq!(serde_json::from_str::<Compression>(text).unwrap(), Compression::default());
        assert!(serde_json::from_str::<Compression>(&text.replace("none", "snappy")).is_err());
    }

    #[test]
    fn choices_that_do_not_fit_together_are_refused() {
        let zstd = Compression { algo: Algo::Zstd, ..Compression::default() };
        let good = [
            Compression::default(),
            zstd,
            Compression { level: Some(22), dictionary_bytes: 16_384, ..zstd },
            Compression { algo: Algo::Lz4, scope: Scope::Buffer, ..Compression::default() },
        ];
        let bad = [
            Compression { level: Some(1), ..Compression::default() },
            Compression { algo: Algo::Lz4, level: Some(1), ..Compression::default() },
            Compression { level: Some(0), ..zstd },
            Compression { level: Some(23), ..zstd },
            Compression { dictionary_bytes: 1024, ..Compression::default() },
            Compression { dictionary_bytes: 1024, scope: Scope::Buffer, ..zstd },
            Compression { dictionary_bytes: 255, ..zstd },
            Compression { dictionary_bytes: u32::MAX, ..zstd },
        ];
        for choice in good {
            assert_eq!(choice.validate(), Ok(()), "{choice:?}");
        }
        for choice in bad {
            assert!(choice.validate().is_err(), "{choice:?}");
        }
    }

    #[test]
    fn marks_name_codec_scope_and_dictionary() {
        let marks = schema_marks(&Compression::default(), Some("ab"));
        let keys: Vec<_> = marks.iter().map(|(key, _)| key.as_str()).collect();
        let expected =
            ["dataset_rt.codec", "dataset_rt.codec_scope", "dataset_rt.dictionary_blake3"];
        assert_eq!(keys, expected);
        assert_eq!(schema_marks(&Compression::default(), None).len(), 2);
    }
}
