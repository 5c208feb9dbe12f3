//! The forecast as text.

use super::super::report::{bytes, plural, table, time};
use super::predict::{Forecast, Size};
use std::fmt::Write;

/// For people.
pub fn render(forecast: &Forecast) -> Result<String, std::fmt::Error> {
    let mut text = head(forecast)?;
    for size in &forecast.sizes {
        write_size(size, &mut text)?;
    }
    writeln!(text, "\nfastest from")?;
    let rows = forecast.crossovers.iter().map(|c| {
        vec![format!("  {}", bytes(c.from as f64)), format!("({} B)", c.from), c.name.clone()]
    });
    text.push_str(&headless(rows.collect()));
    Ok(text)
}

/// What is asked.
pub fn head(forecast: &Forecast) -> Result<String, std::fmt::Error> {
    let Forecast { kind, dtype, op, order, aggregators, .. } = forecast;
    let mut text = String::new();
    let ranks = plural(usize::from(forecast.ranks), "rank");
    write!(text, "{kind} of {dtype} over {ranks}")?;
    if *aggregators > 0 {
        write!(text, " and {}", plural(*aggregators, "aggregator"))?;
    }
    match op {
        Some(op) => writeln!(text, ", {op}, {order} order")?,
        None => writeln!(text)?,
    }
    if let Some(shares) = &forecast.shares {
        let percent = |share: &f64| format!("{:.1} %", share * 100.0);
        let list: Vec<_> = shares.iter().map(percent).collect();
        writeln!(text, "best shares by member: {}", list.join(", "))?;
    }
    Ok(text)
}

fn write_size(size: &Size, text: &mut String) -> std::fmt::Result {
    let (total, bound) = (bytes(size.bytes as f64), time(size.lower_bound));
    writeln!(text, "\n{total}: no algorithm is faster than {bound}")?;
    let best = size.schedules.iter().position(|c| c.permitted);
    let row = |(i, c): (usize, &super::predict::Candidate)| {
        let remark = match (c.permitted, Some(i) == best) {
            (true, true) => "fastest",
            (true, false) => "",
            (false, _) => "needs --order any",
        };
        vec![
            format!("  {}", c.name),
            c.steps.to_string(),
            bytes(c.busiest as f64),
            time(c.seconds),
            format!("{:.0} %", c.of_bound * 100.0),
            remark.to_owned(),
        ]
    };
    let rows = size.schedules.iter().enumerate().map(row).collect();
    let header = ["  schedule", "steps", "busiest rank", "time", "of bound", ""];
    text.push_str(&table(&header, rows, &[1, 2, 3, 4]));
    Ok(())
}

/// A table without its header line.
fn headless(rows: Vec<Vec<String>>) -> String {
    let all = table(&["", "", ""], rows, &[]);
    all.split_once('\n').map_or(String::new(), |(_, rows)| rows.to_owned())
}
