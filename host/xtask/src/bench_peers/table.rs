//! Tables in Markdown.

use super::rows::{Medians, Row, Transport};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Above this share of the CPUs, in per cent, others disturb.
const DISTURBED: u32 = 10;

/// `8 B`, `32 KiB`, `64 MiB`.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..0x10_0000 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

/// Three digits.
pub fn number(x: f64) -> String {
    match x {
        0.0..10.0 => format!("{x:.2}"),
        10.0..100.0 => format!("{x:.1}"),
        _ => format!("{x:.0}"),
    }
}

/// Who ran while others used the CPUs, in a sentence.
pub fn busy(rows: &[Row]) -> String {
    // All rows of a run have the same figure.
    let mut runs: BTreeMap<(u16, usize, &str), u32> = BTreeMap::new();
    for row in rows {
        runs.insert((row.ranks, row.round, &row.peer), row.busy);
    }
    let mut all: Vec<u32> = runs.values().copied().collect();
    all.sort_unstable();
    let (Some(&most), median) = (all.last(), all.get(all.len() / 2).unwrap_or(&0)) else {
        return String::new();
    };
    let disturbed = all.iter().filter(|&&busy| busy > DISTURBED).count();
    format!(
        "In the second before each of the {} runs, other programs used {median} % of the CPUs \
         (median; at most {most} %); more than {DISTURBED} % before {disturbed} of them.\n",
        all.len()
    )
}

/// Times, then ratios, at one number of ranks.
pub fn tables(medians: &Medians, ranks: u16) -> String {
    let sizes = medians.sizes(ranks);
    let names = medians.names(ranks);
    let mut text = format!("\nN = {ranks}: median of the rounds, us\n\n");
    text += &head(&sizes);
    for name in &names {
        text += &line(name, sizes.iter().map(|&b| medians.us(name, ranks, b).map(number)));
    }
    let _ = write!(text, "\nN = {ranks}: the other's time over unisono's\n\n");
    text += &head(&sizes);
    for (ours, transport) in [
        ("unisono-shm", Transport::Shm),
        ("unisono-vec", Transport::Shm),
        ("unisono-tcp", Transport::Tcp),
    ] {
        if !names.contains(&ours) {
            continue;
        }
        let over = |theirs: Option<f64>, b| Some(theirs? / medians.us(ours, ranks, b)?);
        let best = |&b: &u64| {
            let (name, us) = medians.best(transport, ranks, b)?;
            let peer = name.rsplit_once('-').map_or(name, |(peer, _)| peer);
            over(Some(us), b).map(|ratio| format!("{} {peer}", number(ratio)))
        };
        text += &line(&format!("best peer / {ours}"), sizes.iter().map(best));
        let limit = |&b: &u64| over(medians.us("limit-fold", ranks, b), b).map(number);
        text += &line(&format!("limit-fold / {ours}"), sizes.iter().map(limit));
    }
    text
}

fn head(sizes: &[u64]) -> String {
    let cells: Vec<String> = sizes.iter().map(|&b| size(b)).collect();
    format!("| | {} |\n|---|{}\n", cells.join(" | "), "---:|".repeat(sizes.len()))
}

fn line(name: &str, cells: impl Iterator<Item = Option<String>>) -> String {
    let cells: Vec<String> = cells.map(Option::unwrap_or_default).collect();
    format!("| {name} | {} |\n", cells.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::super::rows::tests::row;
    use super::*;

    #[test]
    fn units_and_digits() {
        let sizes = [8, 1024, 32 << 10, 1 << 20, 64 << 20].map(size);
        assert_eq!(sizes, ["8 B", "1 KiB", "32 KiB", "1 MiB", "64 MiB"]);
        assert_eq!([0.0, 0.456, 12.34, 12345.6].map(number), ["0.00", "0.46", "12.3", "12346"]);
    }

    #[test]
    fn times_and_ratios() {
        let rows = [
            row(1, "limit-fold", 2, 8, 0.5),
            row(1, "unisono-shm", 2, 8, 1.0),
            row(1, "unisono-shm", 2, 1024, 2.0),
            row(1, "a-b-shm", 2, 8, 3.0),
            row(1, "c-tcp", 2, 8, 0.1),
        ];
        let text = tables(&Medians::of(&rows), 2);
        let wanted = "\nN = 2: median of the rounds, us\n\n\
            | | 8 B | 1 KiB |\n|---|---:|---:|\n\
            | limit-fold | 0.50 |  |\n\
            | unisono-shm | 1.00 | 2.00 |\n\
            | a-b-shm | 3.00 |  |\n\
            | c-tcp | 0.10 |  |\n\
            \nN = 2: the other's time over unisono's\n\n\
            | | 8 B | 1 KiB |\n|---|---:|---:|\n\
            | best peer / unisono-shm | 3.00 a-b |  |\n\
            | limit-fold / unisono-shm | 0.50 |  |\n";
        assert_eq!(text, wanted);
    }

    #[test]
    fn disturbed_runs_are_counted() {
        let busy_row = |round: usize, busy: u32| -> Row {
            format!("{round},{busy},a-shm,2,8,1,1,1,1").parse().unwrap()
        };
        let rows = [busy_row(1, 0), busy_row(1, 0), busy_row(2, 11), busy_row(3, 90)];
        let text = busy(&rows);
        assert!(text.contains("3 runs") && text.contains("11 % of the CPUs"), "{text}");
        assert!(text.contains("at most 90 %") && text.contains("before 2 of them"), "{text}");
        assert_eq!(busy(&[]), "");
    }
}
