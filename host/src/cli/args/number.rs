//! Numbers with units.

use std::time::Duration;

/// A number and the unit behind it.
fn split(text: &str) -> Result<(f64, &str), String> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let value = number.parse::<f64>().map_err(|_| "it does not start with a number".to_owned())?;
    Ok((value, unit.trim()))
}

/// Bytes: `4096`, `64K`, `32M` and `1G` as nccl-tests has them (powers of 1024, like `KiB`, `MiB`
/// and `GiB`), `kB`, `MB` and `GB` (powers of 1000).
pub fn bytes(text: &str) -> Result<u64, String> {
    let (value, unit) = split(text)?;
    let lower = unit.to_ascii_lowercase();
    let scale = match lower.as_str() {
        "" | "b" => 1.0,
        "k" | "kib" => 1024.0,
        "m" | "mib" => 1024.0 * 1024.0,
        "g" | "gib" => 1024.0 * 1024.0 * 1024.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        _ => return Err(format!("unknown unit {unit:?}; there are B, K, M, G, KiB, kB and so on")),
    };
    let bytes = value * scale;
    // Whole numbers up to 2^53 are exact.
    if bytes.fract() == 0.0 && bytes <= (1u64 << 53) as f64 {
        Ok(bytes as u64)
    } else {
        Err("it is not a whole number of bytes, or too many".into())
    }
}

/// Bytes, but for none at all.
pub fn some_bytes(text: &str) -> Result<u64, String> {
    bytes(text).and_then(|size| if size == 0 { Err("it must be above 0".into()) } else { Ok(size) })
}

/// A time: `30s`, `1.5us`, `200ms`, `2min`, `1h`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (value, unit) = split(text)?;
    let scale = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "" => return Err("a time needs a unit: ns, us, ms, s, min or h".into()),
        _ => return Err(format!("unknown unit {unit:?}; there are ns, us, ms, s, min and h")),
    };
    // Ten years do, and the clock's nanoseconds do not overflow.
    let seconds = value * scale;
    if seconds > 3.2e8 {
        return Err("that is more than ten years".into());
    }
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

/// Bytes per second: `10GB/s`, `100Gbit/s`; powers of 1000, or of 1024 with `GiB/s`.
pub fn rate(text: &str) -> Result<f64, String> {
    let (value, unit) = split(text)?;
    if unit.is_empty() {
        // A bare 10 would be ten bytes a second, which nobody means.
        return Err("a rate needs a unit, for example 10GB/s or 100Gbit/s".into());
    }
    let unit = unit.strip_suffix("/s").unwrap_or(unit);
    let (prefix, size) = match unit.strip_suffix("bit") {
        Some(prefix) => (prefix, 0.125),
        None => (unit.strip_suffix('B').unwrap_or(unit), 1.0),
    };
    let scale = match prefix {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "Ki" => 1024.0,
        "Mi" => 1024.0 * 1024.0,
        "Gi" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(format!("unknown unit {unit:?}; write for example 10GB/s or 100Gbit/s")),
    };
    let rate = value * scale * size;
    if rate > 0.0 && rate.is_finite() { Ok(rate) } else { Err("a rate is above 0".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_units() {
        for (text, want) in [
            ("0", 0),
            ("8", 8),
            ("64K", 65536),
            ("32M", 32 << 20),
            ("1.5k", 1536),
            ("4MiB", 4 << 20),
            ("2GB", 2_000_000_000),
            ("3 kB", 3000),
        ] {
            assert_eq!(bytes(text), Ok(want), "{text}");
        }
        for wrong in ["", "M", "-1", "1.5", "1X", "99999999G", "1..2"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_have_units() {
        assert_eq!(duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("1.5us"), Ok(Duration::from_nanos(1500)));
        assert_eq!(duration("2min"), Ok(Duration::from_secs(120)));
        for wrong in ["", "5", "s", "1y", "99999999h"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rates_have_units() {
        assert_eq!(rate("10GB/s"), Ok(1e10));
        assert_eq!(rate("100Gbit/s"), Ok(1.25e10));
        assert_eq!(rate("1MiB/s"), Ok(1_048_576.0));
        assert_eq!(rate("5 B/s"), Ok(5.0));
        for wrong in ["", "5", "0GB/s", "GB/s", "1parsec"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }
}
