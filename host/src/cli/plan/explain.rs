//! `--explain`: the choice at each size, and its reasons.

use super::super::report::{bytes, time};
use super::predict::{Candidate, Crossover, Forecast, Size};
use super::text;
use std::fmt::Write;

/// For people who ask why.
pub fn render(forecast: &Forecast) -> Result<String, std::fmt::Error> {
    let mut out = text::head(forecast)?;
    for size in &forecast.sizes {
        out.push('\n');
        write_size(size, &mut out)?;
    }
    writeln!(out, "\nby size; another one has to be 3 % faster")?;
    for (index, Crossover { from, name }) in forecast.crossovers.iter().enumerate() {
        let until = forecast.crossovers.get(index + 1);
        let until = until.map_or_else(|| "any size".to_owned(), |next| bytes(next.from as f64));
        writeln!(out, "  {} to {until}: {name}", bytes(*from as f64))?;
    }
    Ok(out)
}

fn write_size(size: &Size, out: &mut String) -> std::fmt::Result {
    let mut permitted = size.schedules.iter().filter(|c| c.permitted);
    let Some(best) = permitted.next() else { return Ok(()) };
    writeln!(out, "{}: {}, predicted {}", bytes(size.bytes as f64), best.name, time(best.seconds))?;
    writeln!(
        out,
        "  lower bound {} ({}), of which it reaches {:.0} %",
        time(size.lower_bound),
        size.limit,
        best.of_bound * 100.0
    )?;
    let steps = if best.steps == 1 { "step" } else { "steps" };
    let busiest = bytes(best.busiest as f64);
    writeln!(out, "  {} {steps}, chunks of {} elements", best.steps, best.chunk)?;
    writeln!(out, "  {busiest} through the busiest member")?;
    if let Some(second) = permitted.next() {
        writeln!(out, "  runner-up {}", slower(second, best))?;
    }
    // What the order forbids may be worth allowing.
    let forbidden = size.schedules.iter().find(|c| !c.permitted && c.seconds < best.seconds);
    if let Some(forbidden) = forbidden {
        let name = &forbidden.name;
        writeln!(out, "  --order any would allow {name}, {}", time(forbidden.seconds))?;
    }
    Ok(())
}

fn slower(second: &Candidate, best: &Candidate) -> String {
    let percent = (second.seconds / best.seconds - 1.0) * 100.0;
    format!("{}, {} ({percent:.0} % more)", second.name, time(second.seconds))
}
