//! What `unisono bench device --json` has measured, as text.

use anyhow::{Context, Result};
use serde_json::Value;
use std::fmt::Write;

/// The rates of one device, a line for each type and operator.
///
/// # Errors
/// If something is missing.
pub fn text(on: &str, json: &str) -> Result<String> {
    let report: Value = serde_json::from_str(json)?;
    let word = |name: &str| report[name].as_str().with_context(|| format!("no {name} of {on}"));
    let number = |of: &Value, name: &str| {
        of[name].as_f64().with_context(|| format!("no {name} in the rates of {on}"))
    };
    let of = |name| number(&report, name);
    let mut text = String::new();
    writeln!(text, "{on}: {}, {}", word("device")?, word("driver")?)?;
    writeln!(
        text,
        "  own copy {:.2} GB/s (read and written), upload {:.2}, download {:.2}; a tiny fold \
         {:.1} us, one of a batch {:.1} us",
        of("copy")?,
        of("upload")?,
        of("download")?,
        of("trip")? * 1e6,
        of("batched")? * 1e6
    )?;
    writeln!(
        text,
        "  folds of {} sources of {} bytes, GB/s of bytes moved:",
        of("sources")?,
        of("bytes")?
    )?;
    for fold in report["folds"].as_array().context("no folds")? {
        let name = |name: &str| fold[name].as_str().unwrap_or("?").to_owned();
        writeln!(
            text,
            "    {:12} {:7} {:9.2}  {:5.2} of its copy, first call {:.1} ms",
            name("type"),
            name("op"),
            number(fold, "rate")?,
            number(fold, "of_copy")?,
            number(fold, "first")? * 1e3
        )?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    #[test]
    fn rates_are_read() {
        let json = r#"{"device": "a GPU", "driver": "its driver", "sources": 4, "bytes": 64,
            "copy": 100.5, "upload": 10.0, "download": 9.0, "trip": 1e-5, "batched": 2e-6,
            "folds": [{"type": "float", "op": "sum", "rate": 90, "of_copy": 0.9, "first": 0.01}]}"#;
        let text = super::text("vulkan:0", json).unwrap();
        assert!(text.starts_with("vulkan:0: a GPU, its driver\n  own copy 100.50 GB/s"), "{text}");
        assert!(text.contains("90.00   0.90 of its copy, first call 10.0 ms"), "{text}");
        assert!(super::text("vulkan:0", "{}").is_err());
    }
}
