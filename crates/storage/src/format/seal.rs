//! The digest that a JSON file has of itself: BLAKE3 of its bytes with the digest written as zeros.
//! It is the last field, so that a check needs no JSON: any changed byte is noticed.

const DIGITS: usize = 64;
const END: &str = "\"\n}\n";

/// What stands in `text` in front of the digest.
fn key(field: &str) -> String {
    format!("\n  \"{field}\": \"")
}

/// A pretty-printed JSON object, not empty, with `field` as its last one, not filled in yet.
pub fn with_seal(object: &str, field: &str) -> String {
    let fields = object.strip_suffix("\n}").unwrap_or(object);
    format!("{fields},{}{}{END}", key(field), "0".repeat(DIGITS))
}

/// Fills in the digest of a pretty-printed JSON object that has zeros there, and a newline at its
/// end; returns it.
pub fn seal(text: &mut String) -> String {
    let digest = blake3::hash(text.as_bytes()).to_hex().to_string();
    if let Some(start) = text.len().checked_sub(END.len() + DIGITS) {
        text.replace_range(start..start + DIGITS, &digest);
    }
    digest
}

/// Whether the bytes hash to what they say.
///
/// # Errors
/// What is wrong with them.
pub fn check_seal(bytes: &[u8], field: &str) -> Result<(), String> {
    let start = bytes.len().checked_sub(DIGITS + END.len()).ok_or("the file is too short")?;
    let (before, rest) = bytes.split_at(start);
    let (written, end) = rest.split_at(DIGITS);
    if !before.ends_with(key(field).as_bytes()) || end != END.as_bytes() {
        return Err(format!("{field} is not where it must be"));
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update(before).update(&[b'0'; DIGITS]).update(end);
    let found = hasher.finalize().to_hex();
    if found.as_bytes() != written {
        let written = String::from_utf8_lossy(written);
        return Err(format!("its digest differs: found {found}, expected {written}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_byte_of_a_sealed_object_is_noticed() {
        let mut text = with_seal("{\n  \"a\": {\n  }\n}", "digest");
        let digest = seal(&mut text);
        assert_eq!(text, format!("{{\n  \"a\": {{\n  }},\n  \"digest\": \"{digest}\"\n}}\n"));
        check_seal(text.as_bytes(), "digest").unwrap();
        assert!(check_seal(text.as_bytes(), "other").is_err());
        for i in 0..text.len() {
            for change in [1, 0x20, 0xff] {
                let mut bytes = text.clone().into_bytes();
                bytes[i] ^= change;
                assert!(check_seal(&bytes, "digest").is_err(), "byte {i}");
            }
            assert!(check_seal(&text.as_bytes()[..i], "digest").is_err());
        }
        assert!(check_seal(format!("{text} ").as_bytes(), "digest").is_err());
    }
}
