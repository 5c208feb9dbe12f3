//! `--plot`: time over size, both on logarithmic scales.

use super::super::report::{bytes, time};
use super::super::svg::{Anchor, COLOURS, Svg};
use super::predict::Question;
use unisono_planner::{candidates, label};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 560.0;
/// The field: left, top, right, bottom.
const FIELD: [f64; 4] = [80.0, 30.0, 640.0, 510.0];

/// Sizes from 8 B to 1 GiB.
const POWERS: std::ops::RangeInclusive<u32> = 3..=30;

/// A schedule's name, whether the order permits it, and its bytes and nanoseconds.
type Curve = (String, bool, Vec<(f64, f64)>);

/// The picture's text.
pub fn draw(question: &Question) -> String {
    let all = candidates(&question.model);
    let mut curves: Vec<Curve> = Vec::new();
    let mut bound = Vec::new();
    for size in POWERS.map(|power| 1u64 << power) {
        let found = question.forecast(&all, size);
        bound.push((size as f64, found.bound.max(1.0)));
        for candidate in found.candidates {
            let name = label(&candidate.schedule).to_owned();
            let point = (size as f64, candidate.ns.max(1.0));
            match curves.iter_mut().find(|(known, ..)| *known == name) {
                Some((.., points)) => points.push(point),
                None => curves.push((name, question.permits(&candidate.schedule), vec![point])),
            }
        }
    }
    let times = || curves.iter().flat_map(|(.., points)| points).chain(&bound).map(|point| point.1);
    let low = times().fold(f64::INFINITY, f64::min).log10().floor();
    let high = times().fold(1.0, f64::max).log10().ceil().max(low + 1.0);
    let [left, top, right, bottom] = FIELD;
    let (first, last) = (f64::from(*POWERS.start()), f64::from(*POWERS.end()));
    let place = |(size, ns): (f64, f64)| {
        let x = left + (size.log2() - first) / (last - first) * (right - left);
        let y = bottom - (ns.log10() - low) / (high - low) * (bottom - top);
        (x, y)
    };
    let mut svg = Svg::new(WIDTH, HEIGHT);
    for power in POWERS.filter(|power| (power - 3) % 3 == 0) {
        let size = f64::from(1u32 << power);
        let (x, _) = place((size, 1.0));
        svg.line((x, top), (x, bottom), "#dddddd", 1.0);
        svg.text((x, bottom + 18.0), Anchor::Middle, "black", &bytes(size));
    }
    for power in low as i32..=high as i32 {
        let ns = 10f64.powi(power);
        let (_, y) = place((8.0, ns));
        svg.line((left, y), (right, y), "#dddddd", 1.0);
        svg.text((left - 8.0, y + 4.0), Anchor::End, "black", &time(ns * 1e-9));
    }
    let title = format!("{} over {} ranks", question.kind, question.model.ranks());
    svg.text((left, 20.0), Anchor::Start, "black", &title);
    let lines = std::iter::once(("lower bound".to_owned(), true, bound)).chain(curves);
    for (index, (name, permitted, points)) in lines.enumerate() {
        let colour = COLOURS[(index + 7) % COLOURS.len()];
        let points: Vec<_> = points.into_iter().map(place).collect();
        svg.path(&points, colour, if permitted { 2.0 } else { 1.0 });
        let y = top + 20.0 * index as f64 + 10.0;
        svg.line((right + 20.0, y), (right + 45.0, y), colour, if permitted { 3.0 } else { 1.0 });
        let name = if permitted { name } else { format!("{name} (--order any)") };
        svg.text((right + 52.0, y + 4.0), Anchor::Start, "black", &name);
    }
    svg.finish()
}
