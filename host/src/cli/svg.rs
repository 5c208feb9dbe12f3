//! Pictures, as little of SVG as they need.

use std::fmt::Write;

/// A picture that is being drawn.
pub struct Svg {
    body: String,
    width: f64,
    height: f64,
}

/// Colours that are told apart, also by those who see fewer of them (Okabe and Ito, 2008).
pub const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999"];

/// Where a text stands at its point.
#[derive(Clone, Copy, Debug)]
pub enum Anchor {
    /// It begins there.
    Start,
    /// Its middle is there.
    Middle,
    /// It ends there.
    End,
}

impl Svg {
    /// An empty picture.
    pub const fn new(width: f64, height: f64) -> Self {
        Self { body: String::new(), width, height }
    }

    /// A line.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, width: f64) {
        self.path(&[from, to], colour, width);
    }

    /// Several lines, one after the other.
    pub fn path(&mut self, points: &[(f64, f64)], colour: &str, width: f64) {
        let points: Vec<_> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        self.add(&format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" \
             stroke-width=\"{width:.1}\"/>",
            points.join(" ")
        ));
    }

    /// A filled circle.
    pub fn circle(&mut self, (x, y): (f64, f64), radius: f64, colour: &str) {
        self.add(&format!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\" fill=\"{colour}\"/>"
        ));
    }

    /// A text.
    pub fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, colour: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escaped(text);
        self.add(&format!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" \
             fill=\"{colour}\">{text}</text>"
        ));
    }

    fn add(&mut self, element: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.body, "{element}");
    }

    /// The file.
    pub fn finish(self) -> String {
        let Self { body, width, height } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n"
        )
    }
}

/// Text as it stands in XML; names of devices and hosts come from elsewhere.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '&' => out += "&amp;",
            '"' => out += "&quot;",
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_cannot_leave_their_element() {
        let mut svg = Svg::new(10.0, 20.0);
        svg.text((1.0, 2.0), Anchor::End, "black", "</text>&\"\u{7}");
        let text = svg.finish();
        assert!(text.contains(">&lt;/text&gt;&amp;&quot;\u{fffd}</text>"), "{text}");
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"));
    }
}
