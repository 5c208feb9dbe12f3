//! Sizes as people write them: powers of 1024.

/// The units, largest first.
const UNITS: [(&str, u64); 3] = [("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)];

/// Bytes: `8`, `64K`, `1M`, `2G`.
///
/// # Errors
/// What is wrong with it.
pub fn bytes(text: &str) -> Result<u64, String> {
    let unit = UNITS.iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, *scale)));
    let (number, scale) = unit.unwrap_or((text, 1));
    let whole = number.bytes().all(|c| c.is_ascii_digit()) && !number.is_empty();
    let number = whole.then(|| number.parse::<u64>().ok()).flatten();
    let size = number.and_then(|number| number.checked_mul(scale));
    size.ok_or_else(|| format!("{text:?} is no size; sizes are whole numbers with K, M, G or none"))
}

/// The shortest text that [`bytes`] reads back.
#[must_use]
pub fn shown(bytes: u64) -> String {
    let unit = UNITS.iter().find(|(_, scale)| bytes > 0 && bytes.is_multiple_of(*scale));
    unit.map_or_else(|| bytes.to_string(), |(unit, scale)| format!("{}{unit}", bytes / scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_shown() {
        for (text, size) in [("0", 0), ("8", 8), ("64K", 65536), ("1M", 1 << 20), ("3G", 3 << 30)] {
            assert_eq!(bytes(text), Ok(size));
            assert_eq!(shown(size), text);
        }
        assert_eq!(bytes("2048K"), Ok(2 << 20));
        for wrong in
            ["", "K", "-1", "+1", "1.5K", "1k", "1KB", "99999999999999999999", "9999999999999G"]
        {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
