//! CRC32C (Castagnoli, RFC 3720), in the convention of the hardware instructions' libraries.

use ::crc::{CRC_32_ISCSI, Crc, Table};

// A bare-metal target pays for the table in flash: 1 KiB there, 16 KiB for eight times the speed
// on a host. The values are the same.
#[cfg(target_os = "none")]
type Lookup = Table<1>;
#[cfg(not(target_os = "none"))]
type Lookup = Table<16>;

static CRC: Crc<u32, Lookup> = Crc::<u32, Lookup>::new(&CRC_32_ISCSI);

/// CRC32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    CRC.checksum(bytes)
}

/// CRC32C of a message whose first part has the checksum `crc`, and whose rest is `bytes`.
///
/// `crc32c_append(crc32c(a), b)` is the checksum of `a` followed by `b`; 0 is the checksum of
/// nothing. Links on hosts may use any hardware implementation instead, part by part.
#[must_use]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    // `crc` is the finished value: undo the final xor, and the reflection of the start value.
    let mut digest = CRC.digest_with_initial((!crc).reverse_bits());
    digest.update(bytes);
    digest.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        // Check value of the catalogue, and the all-zeros example of RFC 3720, B.4.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(b""), 0);
    }

    #[test]
    fn a_checksum_can_be_continued_anywhere() {
        let text = b"each rank contributes exactly once";
        for cut in 0..=text.len() {
            let (a, b) = text.split_at(cut);
            assert_eq!(crc32c_append(crc32c(a), b), crc32c(text), "cut at {cut}");
        }
    }
}
