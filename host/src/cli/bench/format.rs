//! Numbers and lines as nccl-tests prints them.

use std::fmt::Write;

/// A number in `width` columns: two decimals, one, none, or an exponent, whatever fits.
pub fn fitted(value: f64, width: usize) -> String {
    for decimals in [2, 1, 0] {
        let text = format!("{value:width$.decimals$}");
        if text.len() <= width {
            return text;
        }
    }
    let decimals = usize::from(width >= 7);
    format!("{:>width$}", exponent(value, decimals))
}

/// C's `%.Ne`: `1.2e+08`.
fn exponent(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$e}");
    match text.split_once('e') {
        Some((digits, power)) => match power.strip_prefix('-') {
            Some(power) => format!("{digits}e-{power:0>2}"),
            None => format!("{digits}e+{power:0>2}"),
        },
        None => text,
    }
}

/// C's `%g`: six significant digits without the zeros behind them.
pub fn general(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    // The exponent after rounding to six digits.
    let rounded = exponent(value, 5);
    let power = rounded.split_once('e').and_then(|(_, p)| p.parse::<i32>().ok()).unwrap_or(0);
    let trim = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..6).contains(&power) {
        return trim(&format!("{value:.*}", (5 - power) as usize));
    }
    let (digits, power) = rounded.split_once('e').unwrap_or((&rounded, "+00"));
    format!("{}e{power}", trim(digits))
}

/// One half of a row: time in µs, bandwidths in GB/s, wrong elements (`None`: not checked).
pub struct Half {
    /// Microseconds.
    pub time: f64,
    /// GB/s.
    pub algbw: f64,
    /// GB/s.
    pub busbw: f64,
    /// Wrong elements.
    pub wrong: Option<u64>,
}

/// One row.
pub struct Row<'a> {
    /// Bytes that algbw counts.
    pub size: u64,
    /// The call's count.
    pub count: u64,
    /// Type.
    pub dtype: &'a str,
    /// Operator, or `none`.
    pub op: &'a str,
    /// Root, or -1.
    pub root: i32,
    /// Out of place and in place; `None`: there is no such thing.
    pub halves: [Option<Half>; 2],
}

impl Row<'_> {
    /// The row as a line.
    pub fn line(&self) -> String {
        let Self { size, count, dtype, op, root, .. } = *self;
        let mut line = format!("{size:>12}  {count:>12}  {dtype:>8}  {op:>6}  {root:>6}");
        for half in &self.halves {
            let text = match half {
                Some(half) => half.text(),
                None => format!("  {:>7}  {:>6}  {:>6}  {:>6}", "N/A", "N/A", "N/A", "N/A"),
            };
            line.push_str(&text);
        }
        line.push('\n');
        line
    }
}

impl Half {
    fn text(&self) -> String {
        let wrong = self.wrong.map_or("N/A".to_owned(), |wrong| general(wrong as f64));
        let (time, algbw) = (fitted(self.time, 7), fitted(self.algbw, 6));
        format!("  {time}  {algbw}  {}  {wrong:>6}", fitted(self.busbw, 6))
    }
}

/// The two or three lines above the rows.
pub fn header() -> String {
    let mut text = String::new();
    let halves = "           out-of-place                       in-place          ";
    let blank = "";
    // Writing to a string does not fail.
    let _ =
        writeln!(text, "# {blank:>10}  {blank:>12}  {blank:>8}  {blank:>6}  {blank:>6}{halves}");
    for [size, count, dtype, op, root, time, algbw, busbw, wrong] in [
        ["size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong"],
        ["(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", ""],
    ] {
        let half = format!("  {time:>7}  {algbw:>6}  {busbw:>6}  {wrong:>6}");
        let _ = writeln!(
            text,
            "# {size:>10}  {count:>12}  {dtype:>8}  {op:>6}  {root:>6}{half}{half} "
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fit_their_columns() {
        assert_eq!(fitted(1.234, 7), "   1.23");
        assert_eq!(fitted(9999.994, 7), "9999.99");
        assert_eq!(fitted(12345.67, 7), "12345.7");
        assert_eq!(fitted(123_456.7, 7), " 123457");
        assert_eq!(fitted(123_456_789.0, 7), "1.2e+08");
        assert_eq!(fitted(1234.5, 6), "1234.5");
        assert_eq!(fitted(12_345_678.0, 6), " 1e+07");
    }

    #[test]
    fn general_is_c_s() {
        for (value, text) in [
            (0.0, "0"),
            (12.0, "12"),
            (0.5, "0.5"),
            (1.234_567_89, "1.23457"),
            (999_999.0, "999999"),
            (999_999.6, "1e+06"),
            (1_234_567.0, "1.23457e+06"),
            (0.000_012_3, "1.23e-05"),
        ] {
            assert_eq!(general(value), text);
        }
    }

    #[test]
    fn rows_are_aligned_with_the_header() {
        let half = |wrong| Some(Half { time: 12.345, algbw: 1.5, busbw: 2.25, wrong });
        let row = Row {
            size: 1024,
            count: 256,
            dtype: "float",
            op: "sum",
            root: -1,
            halves: [half(Some(0)), half(None)],
        };
        let expected = "        1024           256     float     sum      -1    12.35    1.50    \
                        2.25       0    12.35    1.50    2.25     N/A\n";
        assert_eq!(row.line(), expected);
        let header = header();
        let columns = header.lines().nth(1).map(|line| line.trim_end().len());
        assert_eq!(columns, Some(expected.trim_end().len()));
    }
}
