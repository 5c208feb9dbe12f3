//! What `unisono reduce` says about a run.

use super::super::args::OrderArg;
use super::super::report::{bytes, plural, print, print_json, rate, time};
use super::run::{Done, Section, Work};
use super::verify::Verdict;
use clap::builder::styling::AnsiColor;
use serde::Serialize;
use std::fmt::Write;

/// The report; as JSON, these are its fields.
#[derive(Debug, Serialize)]
pub struct Summary {
    ranks: usize,
    device: String,
    op: &'static str,
    order: &'static str,
    tensors: usize,
    bytes: u64,
    sections: Vec<Part>,
    seconds: f64,
    /// Bytes of a rank's tensors over time.
    algbw: f64,
    /// What each rank's link would carry in an ideal ring: algbw times 2(n-1)/n.
    busbw: f64,
    sha256: String,
    verify: Option<Verdict>,
    output: String,
}

/// One type's part of the run.
#[derive(Debug, Serialize)]
struct Part {
    dtype: &'static str,
    elements: u64,
    buckets: usize,
    schedule: &'static str,
    chunk: u64,
    window: u16,
}

impl Part {
    fn new(section: &Section) -> Self {
        let Section { dtype, buckets, elements, ref plan } = *section;
        Self {
            dtype: dtype.name(),
            elements,
            buckets,
            schedule: plan.schedule.name(),
            chunk: plan.chunk,
            window: plan.window,
        }
    }
}

impl Summary {
    /// Puts it together; `device`: what all ranks are on.
    pub fn new(work: &Work<'_>, device: String, done: &Done, verify: Option<Verdict>) -> Self {
        let args = work.args;
        let ranks = work.job.ranks();
        let bytes = work.buckets.payload();
        let seconds = done.time.as_secs_f64();
        let algbw = if bytes > 0 { bytes as f64 / seconds } else { 0.0 };
        Self {
            ranks,
            device,
            op: args.op.name(),
            order: match args.group.order {
                OrderArg::Canonical => "canonical",
                OrderArg::Any => "any",
            },
            tensors: work.buckets.places.len(),
            bytes,
            sections: done.sections.iter().map(Part::new).collect(),
            seconds,
            algbw,
            busbw: algbw * 2.0 * (ranks as f64 - 1.0) / ranks as f64,
            sha256: done.hash.clone(),
            verify,
            output: args.output.display().to_string(),
        }
    }

    /// To stdout.
    pub fn print(&self, json: bool) -> anyhow::Result<()> {
        if json {
            return print_json(self);
        }
        let mut text = String::new();
        self.write(&mut text)?;
        print(&text)?;
        Ok(())
    }

    fn write(&self, to: &mut String) -> std::fmt::Result {
        let Self { ranks, device, op, order, .. } = self;
        let ranks = plural(*ranks, "rank");
        writeln!(to, "group    {ranks} on {device}, {op}, {order} order")?;
        let tensors = plural(self.tensors, "tensor");
        writeln!(to, "input    {tensors}, {} a rank", bytes(self.bytes as f64))?;
        for part in &self.sections {
            let Part { dtype, elements, schedule, chunk, window, .. } = part;
            let buckets = plural(part.buckets, "bucket");
            writeln!(
                to,
                "plan     {dtype}: {schedule}, chunks of {chunk}, window {window}; \
                 {elements} elements in {buckets}"
            )?;
        }
        let (took, algbw, busbw) = (time(self.seconds), rate(self.algbw), rate(self.busbw));
        writeln!(to, "time     {took}, algbw {algbw}, busbw {busbw}")?;
        writeln!(to, "sha256   {}  (equal on all ranks)", self.sha256)?;
        if let Some(verdict) = &self.verify {
            self.write_verdict(verdict, to)?;
        }
        writeln!(to, "output   {}", self.output)
    }

    fn write_verdict(&self, verdict: &Verdict, to: &mut String) -> std::fmt::Result {
        let Verdict { elements, differ, canonical, .. } = *verdict;
        let green = AnsiColor::Green.on_default();
        if canonical {
            writeln!(
                to,
                "verify   {green}{differ} elements differ{green:#} from the scalar reference \
                 ({elements} compared bit by bit)"
            )?;
        } else {
            writeln!(
                to,
                "verify   {differ} of {elements} elements have other bits than in canonical order, \
                 as --order any allows"
            )?;
        }
        let error = &verdict.error;
        if error.finite > 0 {
            writeln!(
                to,
                "error    max abs {:.3e}, max rel {:.3e}, rms {:.3e}, max {:.2} ulp of the terms' \
                 size (against f64)",
                error.max_abs, error.max_rel, error.rms, error.max_ulp
            )?;
        }
        if error.not_finite > 0 {
            writeln!(to, "         {} elements are infinite or NaN", error.not_finite)?;
        }
        Ok(())
    }
}
