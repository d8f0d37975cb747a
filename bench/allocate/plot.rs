//! Time against the size of a workload, as a picture.

use std::fmt::Write;

const WIDTH: f64 = 820.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 250.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
/// From a microsecond to more than anybody waits, in seconds.
const LEAST: f64 = 1e-6;
const MOST: f64 = 1e2;

/// The times of one side, by size.
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) colour: &'static str,
    pub(crate) dashes: &'static str,
    /// Sizes and seconds.
    pub(crate) points: Vec<(usize, f64)>,
}

/// A picture with a logarithmic axis of time, on which a line shows where a side is stopped.
pub(crate) fn svg(title: &str, sizes: (usize, usize), limit: f64, curves: &[Curve]) -> String {
    let x =
        |size: usize| LEFT + (size - sizes.0) as f64 / (sizes.1 - sizes.0) as f64 * (WIDTH - LEFT - RIGHT);
    let y = |seconds: f64| {
        let share = (seconds.max(LEAST) / LEAST).log10() / (MOST / LEAST).log10();
        HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
    };
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"{LEFT}\" y=\"22\" font-size=\"14\">{title}</text>\n"
    );
    let ticks = ["1 us", "10 us", "100 us", "1 ms", "10 ms", "100 ms", "1 s", "10 s", "100 s"];
    for (power, label) in ticks.into_iter().enumerate() {
        let at = y(LEAST * 10_f64.powi(i32::try_from(power).unwrap()));
        writeln!(svg, "<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"#ddd\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>", LEFT - 8.0, at + 4.0).unwrap();
    }
    for size in (sizes.0..=sizes.1).step_by(2) {
        writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{size}</text>",
            x(size),
            bottom + 18.0
        )
        .unwrap();
    }
    writeln!(svg, "<path d=\"M{LEFT} {TOP}V{bottom}H{right}\" fill=\"none\" stroke=\"black\"/>").unwrap();
    writeln!(
        svg,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">n</text>",
        f64::midpoint(LEFT, right),
        bottom + 38.0
    )
    .unwrap();
    writeln!(svg, "<path d=\"M{LEFT} {:.1}H{right}\" stroke=\"#888\" stroke-dasharray=\"2 3\"/><text x=\"{}\" y=\"{:.1}\" fill=\"#666\">stopped</text>", y(limit), right + 8.0, y(limit) + 4.0).unwrap();
    for (index, Curve { name, colour, dashes, points }) in curves.iter().enumerate() {
        let line: Vec<_> =
            points.iter().map(|(size, time)| format!("{:.1},{:.1}", x(*size), y(*time))).collect();
        writeln!(svg, "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\"/>", line.join(" ")).unwrap();
        for (size, time) in points {
            writeln!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.5\" fill=\"{colour}\"/>",
                x(*size),
                y(*time)
            )
            .unwrap();
        }
        let at = TOP + 90.0 + 40.0 * index as f64;
        let (start, label) = (right + 12.0, right + 44.0);
        writeln!(svg, "<path d=\"M{start} {at}h26\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\"/>").unwrap();
        for (row, text) in name.split(": ").enumerate() {
            writeln!(svg, "<text x=\"{label}\" y=\"{}\">{text}</text>", at + 4.0 + 14.0 * row as f64)
                .unwrap();
        }
    }
    svg.push_str("</svg>\n");
    svg
}
