//! How results are written: units, aligned lines, tables, JSON.

use anyhow::Context;
use serde::Serialize;
use std::io::Write;

/// Writes a finished report to stdout, without colours where nobody sees them.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = anstream::stdout();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("writing to stdout")
}

/// Writes a value as JSON to stdout.
pub fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    print(&text)?;
    Ok(())
}

/// Three significant digits and a unit.
fn scaled(value: f64, units: &[(f64, &str)]) -> String {
    let unit = units.iter().rev().find(|(scale, _)| value >= *scale).or_else(|| units.first());
    let Some((scale, name)) = unit else { return value.to_string() };
    let value = value / scale;
    match value {
        v if v < 10.0 => format!("{v:.2} {name}"),
        v if v < 100.0 => format!("{v:.1} {name}"),
        v => format!("{v:.0} {name}"),
    }
}

/// `1.25 MB`.
pub fn bytes(bytes: f64) -> String {
    if bytes < 1000.0 && bytes.fract() == 0.0 {
        return format!("{bytes:.0} B");
    }
    scaled(bytes, &[(1.0, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB"), (1e12, "TB")])
}

/// `12.5 µs`.
pub fn time(seconds: f64) -> String {
    scaled(seconds, &[(1e-9, "ns"), (1e-6, "µs"), (1e-3, "ms"), (1.0, "s")])
}

/// `9.87 GB/s`.
pub fn rate(bytes_per_second: f64) -> String {
    scaled(bytes_per_second, &[(1.0, "B/s"), (1e3, "kB/s"), (1e6, "MB/s"), (1e9, "GB/s")])
}

/// `3 tensors`, `1 tensor`.
pub fn plural(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// A borderless table; columns named in `right` are aligned to the right.
pub fn table(header: &[&str], rows: Vec<Vec<String>>, right: &[usize]) -> String {
    let mut table = comfy_table::Table::new();
    table.load_preset(comfy_table::presets::NOTHING).set_header(header).add_rows(rows);
    for (i, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if right.contains(&i) {
            column.set_cell_alignment(comfy_table::CellAlignment::Right);
        }
    }
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_fit_the_value() {
        assert_eq!(bytes(0.0), "0 B");
        assert_eq!(bytes(999.0), "999 B");
        assert_eq!(bytes(203_304.0), "203 kB");
        assert_eq!(time(0.0), "0.00 ns");
        assert_eq!(time(12.5e-6), "12.5 µs");
        assert_eq!(time(90.0), "90.0 s");
        assert_eq!(rate(1.5e9), "1.50 GB/s");
        assert_eq!((plural(1, "rank"), plural(0, "rank")), ("1 rank".into(), "0 ranks".into()));
    }

    #[test]
    fn tables_are_aligned() {
        let rows = vec![vec!["a".into(), "1".into()], vec!["long".into(), "20".into()]];
        assert_eq!(table(&["x", "n"], rows, &[1]), "x      n\na      1\nlong  20\n");
    }
}
