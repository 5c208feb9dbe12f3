//! A topology as a picture: members on a circle, links between them, the thicker the faster.

use super::super::report::{rate, time};
use super::super::svg::{Anchor, COLOURS, Svg};
use unisono::Topology;
use unisono::topology::LinkKind;

const SIZE: f64 = 760.0;
const CENTRE: (f64, f64) = (SIZE / 2.0, SIZE / 2.0 + 10.0);
const RADIUS: f64 = 270.0;
/// More lines with their numbers than that cannot be read.
const LABELS_MAX: usize = 6;

/// The picture's text.
pub fn draw(topology: &Topology) -> String {
    let mut svg = Svg::new(SIZE, SIZE + 60.0);
    let count = topology.members.len();
    let at = |member: u16, radius: f64| {
        let turn = (f64::from(member) / count as f64 - 0.25) * std::f64::consts::TAU;
        (CENTRE.0 + radius * turn.cos(), CENTRE.1 + radius * turn.sin())
    };
    let colour = |kind: LinkKind| {
        let index = LinkKind::ALL.iter().position(|k| *k == kind).unwrap_or(0);
        COLOURS[index % COLOURS.len()]
    };
    let fastest = topology.links.iter().map(|link| link.rate).fold(1.0, f64::max);
    for link in topology.links.iter().filter(|link| link.from < link.to) {
        let back = topology.link(link.to, link.from).map_or(link.rate, |back| back.rate);
        // Thickness in halves of the rate: from one pixel for a hundredth up to eight.
        let share = (link.rate.min(back) / fastest).max(0.01);
        let width = 8.0 + 3.5 * share.log10();
        let (from, to) = (at(link.from, RADIUS), at(link.to, RADIUS));
        svg.line(from, to, colour(link.kind), width);
        if count <= LABELS_MAX {
            let label = format!("{}, {}", time(link.alpha), rate(link.rate));
            // Off the middle, where lines cross.
            let place = (from.0 * 0.6 + to.0 * 0.4, from.1 * 0.6 + to.1 * 0.4 - 4.0);
            svg.text(place, Anchor::Middle, "black", &label);
        }
    }
    let hosts = topology.hosts();
    for (index, member) in (0u16..).zip(&topology.members) {
        let host = hosts.iter().position(|name| *name == member.host).unwrap_or(0);
        svg.circle(at(index, RADIUS), 17.0, COLOURS[(host + 6) % COLOURS.len()]);
        let (x, y) = at(index, RADIUS);
        svg.text((x, y + 4.0), Anchor::Middle, "white", &index.to_string());
        let (x, y) = at(index, RADIUS + 32.0);
        let anchor = match x - CENTRE.0 {
            x if x < -20.0 => Anchor::End,
            x if x > 20.0 => Anchor::Start,
            _ => Anchor::Middle,
        };
        let name: String = member.device.chars().take(24).collect();
        svg.text((x, y), anchor, "black", &name);
        let folds = format!("{}, folds {}", member.host, rate(member.fold));
        svg.text((x, y + 14.0), anchor, "#555555", &folds);
    }
    legend(&mut svg, topology, &colour);
    svg.finish()
}

fn legend(svg: &mut Svg, topology: &Topology, colour: &dyn Fn(LinkKind) -> &'static str) {
    let used = |kind: &LinkKind| topology.links.iter().any(|link| link.kind == *kind);
    for (row, kind) in (0u8..).zip(LinkKind::ALL.into_iter().filter(used)) {
        let y = SIZE + 50.0 - f64::from(row) * 16.0;
        svg.line((20.0, y), (50.0, y), colour(kind), 4.0);
        svg.text((58.0, y + 4.0), Anchor::Start, "black", kind.about());
    }
}
