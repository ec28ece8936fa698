//! The report of the example `midnight`: well-formed, complete, self-contained, and readable in a real
//! browser on a phone and on a desk, in the light and in the dark.

// Its items are public for the example's other modules.
#[allow(unreachable_pub)]
#[path = "../examples/midnight/record.rs"]
mod record;
#[path = "../examples/midnight/report/mod.rs"]
mod report;

#[path = "support/browser.rs"]
mod browser;
#[path = "support/markup.rs"]
mod markup;
#[path = "support/sample_drill.rs"]
mod sample_drill;

use std::collections::HashSet;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use browser::{Browser, Visit};
use markup::{Element, parse};
use record::{Act, Drill, Run, Sample, Setting, Summary};

const HOSTILE: &str = "<script>alert(\"1\")</script> & 'x' ]]> \u{1}";

/// Everything that a drill may hold, and a word for each.
fn drills() -> Vec<(&'static str, Drill)> {
    let drill = |runs| Drill { scale: HOSTILE.to_owned(), runs };
    let bare = |act, setting| Run {
        act,
        setting,
        length_ms: 0,
        events: vec![],
        summary: Summary::default(),
        samples: vec![],
    };
    vec![
        ("full", sample_drill::drill()),
        ("empty", drill(vec![])),
        ("without samples", drill(vec![bare(Act::Loss, Setting::All)])),
        ("one", drill(vec![sample_drill::run(Act::Outage, Setting::Moka)])),
        ("huge", drill(vec![huge(), sample_drill::run(Act::Flood, Setting::All)])),
        (
            "mixed",
            drill(vec![
                sample_drill::run(Act::HangUp, Setting::None),
                sample_drill::run(Act::Steady, Setting::CoalescingStale),
            ]),
        ),
    ]
}

fn huge() -> Run {
    let most = u64::MAX;
    let sample = Sample {
        at_ms: most,
        origin_peak: most,
        fresh: most,
        stale: most,
        absent: most,
        refused: most,
        failed: most,
        p50_us: most,
        p99_us: most,
    };
    let summary = Summary {
        requests: most,
        fresh: most,
        stale: most,
        absent: most,
        refused: most,
        failed: most,
        existing: most,
        existing_answered: most - 1,
        p50_us: most,
        p99_us: most,
        p999_us: most,
        origin_calls: most,
        origin_peak: most,
        origin_limit: 1,
        waiters_peak: most,
        retries: most,
        recovery_ms: Some(most),
    };
    Run {
        act: Act::Flood,
        setting: Setting::None,
        length_ms: most,
        events: vec![(0, HOSTILE), (most, "an end with a long name")],
        summary,
        samples: vec![Sample::default(), sample],
    }
}

fn page(drill: &Drill) -> Vec<Element> {
    parse(&report::html(drill)).unwrap()
}

/// A run of one second whose samples have these peaks.
fn peaks(peaks: [u64; 4], limit: u64) -> Run {
    let samples = [0, 250, 500, 750].into_iter().zip(peaks).map(|(at_ms, origin_peak)| Sample {
        at_ms,
        origin_peak,
        ..Sample::default()
    });
    let summary = Summary {
        origin_peak: peaks.into_iter().max().unwrap(),
        origin_limit: limit,
        existing: 100_000,
        existing_answered: 99_999,
        p99_us: 2_100_000,
        ..Summary::default()
    };
    Run {
        act: Act::Midnight,
        setting: Setting::All,
        length_ms: 1_000,
        events: vec![(250, "midnight")],
        summary,
        samples: samples.collect(),
    }
}

fn one(run: Run) -> Drill {
    Drill { scale: String::new(), runs: vec![run] }
}

/// The `d` of the only path of a class in the chart of calls.
fn path_of(elements: &[Element], class: &str) -> String {
    let chart = elements.iter().position(|element| element.has_class("calls")).unwrap();
    let path = elements[chart..].iter().find(|element| element.has_class(class)).unwrap();
    path.attribute("d").unwrap().to_owned()
}

#[test]
fn all_is_well_formed() {
    for (name, drill) in drills() {
        let page = parse(&report::html(&drill));
        let picture = parse(&report::picture(&drill));
        for document in [page, picture] {
            let elements = document.unwrap_or_else(|error| panic!("{name}: {error}"));
            let figures = |element: &Element| {
                let mut values = element.attributes.iter().map(|(_, value)| value);
                values.any(|value| value.contains("NaN") || value.contains("inf"))
            };
            assert!(!elements.iter().any(figures), "{name}: a figure that is none");
        }
    }
}

#[test]
fn the_reader_finds_what_is_not_well_formed() {
    for wrong in [
        "<p>",
        "<p></b>",
        "<p><b></p></b>",
        "<p>a & b</p>",
        "<p a=\"1\" a=\"2\"></p>",
        "<p a=1></p>",
        "<p a=\"<\"></p>",
        "a > b",
    ] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn each_run_has_its_charts_and_its_row() {
    for (name, drill) in drills() {
        let elements = page(&drill);
        let count = |wanted: &dyn Fn(&Element) -> bool| {
            elements.iter().filter(|element| wanted(element)).count()
        };
        let runs = drill.runs.len();
        let acts: HashSet<_> = drill.runs.iter().map(|run| format!("{:?}", run.act)).collect();
        assert_eq!(count(&|element| element.has_class("run")), runs, "{name}");
        assert_eq!(count(&|element| element.has_class("act")), acts.len(), "{name}");
        assert_eq!(count(&|element| element.has_class("counts")), acts.len(), "{name}");
        let labelled = |element: &Element| {
            element.attribute("role") == Some("img")
                && element.attribute("aria-label").is_some_and(|label| label.contains("over time"))
        };
        assert_eq!(count(&labelled), 3 * runs, "{name}");
    }
}

#[test]
fn acts_and_settings_go_by_their_names() {
    let elements = page(&sample_drill::drill());
    let texts: HashSet<&str> = elements.iter().map(|element| element.text.as_str()).collect();
    for name in [
        "Steady state",
        "Midnight",
        "Outage",
        "Flood",
        "Loss of the cache",
        "Hang-up",
        "no guard",
        "coalescing",
        "coalescing + stale",
        "all guards",
        "moka",
    ] {
        assert!(texts.contains(name), "{name}");
    }
    let one = report::html(&one(sample_drill::run(Act::Outage, Setting::Moka)));
    assert!(one.contains("id=\"outage\"") && !one.contains("id=\"flood\""));
    assert!(!one.contains("all guards"));
}

#[test]
fn ids_are_unique_and_links_lead_to_them() {
    for (name, drill) in drills() {
        let elements = page(&drill);
        let mut ids = HashSet::new();
        for id in elements.iter().filter_map(|element| element.attribute("id")) {
            assert!(ids.insert(id), "{name}: {id} twice");
        }
        for element in &elements {
            let link = element.attribute("href").map(|link| link.strip_prefix('#').unwrap());
            for id in link.into_iter().chain(element.attribute("aria-labelledby")) {
                assert!(ids.contains(id), "{name}: {id}");
            }
        }
    }
}

#[test]
fn nothing_is_fetched() {
    let drill = sample_drill::drill();
    let picture = report::picture(&drill).replace("http://www.w3.org/2000/svg", "");
    for text in [report::html(&drill), picture] {
        for source in ["http:", "https:", "//www", "src=", "@import", "<link", "data:"] {
            assert!(!text.contains(source), "{source}");
        }
        assert_eq!(text.matches("url(").count(), text.matches("url(#").count());
    }
}

#[test]
fn text_is_escaped() {
    let drill = Drill { scale: HOSTILE.to_owned(), runs: vec![huge()] };
    for text in [report::html(&drill), report::picture(&drill)] {
        assert!(
            text.contains("&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt; &amp; &#39;x&#39;")
        );
        assert!(!text.contains("<script>alert"));
    }
}

#[test]
fn figures_are_those_of_the_drill() {
    let elements = page(&one(peaks([10, 20, 30, 40], 64)));
    let cells: Vec<&str> = elements
        .iter()
        .filter(|element| element.name == "td")
        .map(|element| element.text.trim())
        .collect();
    // Not all were answered, so it is not 100.
    for figure in ["99.99", "40", "2.1\u{202f}s", "64"] {
        assert!(cells.contains(&figure), "{figure} is not in {cells:?}");
    }
    let picture = report::picture(&one(peaks([10, 20, 30, 40], 64)));
    for figure in ["99.99\u{202f}% answered", "peak 40 / 64", "p99 2.1\u{202f}s"] {
        assert!(picture.contains(figure), "{figure}");
    }
}

#[test]
fn only_what_is_above_the_limit_is_marked() {
    let (below, above) = (peaks([10, 20, 64, 40], 64), peaks([10, 65, 20, 10], 64));
    let marked = |run: &Run| report::html(&one(run.clone())).contains("class=\"bad\">▲\u{202f}65<");
    assert!(marked(&above) && !marked(&below));
    assert!(report::picture(&one(above.clone())).contains("class=\"bad\""));
    assert!(!report::picture(&one(below.clone())).contains("class=\"bad\""));

    assert_eq!(path_of(&page(&one(below)), "above"), "");
    // One closed stretch, over the second quarter.
    let path = path_of(&page(&one(above)), "above");
    assert!(path.starts_with("M60 ") && path.contains("H120") && path.ends_with('Z'), "{path}");
    assert_eq!(path.matches('M').count(), 1, "{path}");
}

#[test]
fn lines_follow_the_samples() {
    // The highest tick of a linear scale that ends at 104.
    let elements = page(&one(peaks([0, 100, 100, 50], 80)));
    assert_eq!(path_of(&elements, "edge"), "M0 84H60V3.2H120H180V43.6H240");
}

#[test]
fn the_picture_has_two_acts_and_all_settings() {
    let picture = report::picture(&sample_drill::drill());
    for text in
        [">Midnight<", ">Loss of the cache<", ">no guard<", ">+ stale<", ">all guards<", ">moka<"]
    {
        assert!(picture.contains(text), "{text}");
    }
    assert!(!picture.contains("Flood"));
    let other = report::picture(&one(sample_drill::run(Act::Flood, Setting::All)));
    assert!(other.contains(">Flood<") && !other.contains("no guard"));
}

/// A page with the report in a phone's and a desk's width, the picture, and a script that measures both.
fn wrapped(page: &str, picture: &str, dark: bool) -> String {
    let source = page.replace('&', "&amp;").replace('"', "&quot;");
    let frame =
        |width| format!("<iframe width=\"{width}\" height=\"800\" srcdoc=\"{source}\"></iframe>\n");
    format!(
        "<!DOCTYPE html>\n<meta charset=\"utf-8\">\n<body data-dark=\"{dark}\">\n{}{}\
         <div id=\"picture\">{picture}</div>\n<script>{}</script>\n",
        frame(360),
        frame(1280),
        include_str!("support/measure.js"),
    )
}

/// Opens what `wrapped` makes of them, and returns what was measured, line by line, and the console's lines.
fn measured(
    browser: &Browser,
    page: &str,
    picture: &str,
    dark: bool,
) -> (Vec<String>, Vec<String>) {
    let folder = Folder::new();
    let file = folder.0.join("wrapped.html");
    fs::write(&file, wrapped(page, picture, dark)).unwrap();
    let Visit { dom, console } = browser.visit(&file, &folder.0.join("profile"), dark);
    let result =
        dom.split_once("<pre id=\"result\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let Some((result, _)) = result else {
        panic!("the script did not end; console: {console:?}; document: {dom:.300}");
    };
    (result.lines().map(str::to_owned).collect(), console)
}

/// A new folder that goes when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("midnight_report-{}-{number}", std::process::id());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A process of the browser may still be about to leave; the folder is in the target folder anyway.
        drop(fs::remove_dir_all(&self.0));
    }
}

/// `None`, said aloud, where no browser is installed. The harness captures the print macros only.
fn browser() -> Option<Browser> {
    let browser = Browser::find();
    if browser.is_none() {
        io::stderr().write_all(b"SKIPPED: midnight_report: no Chromium here\n").unwrap();
    }
    browser
}

#[test]
fn a_browser_shows_it_at_any_width_in_light_and_dark() {
    let Some(browser) = browser() else { return };
    let huge = Drill { scale: HOSTILE.to_owned(), runs: vec![huge()] };
    for (drill, dark) in
        [(&sample_drill::drill(), false), (&sample_drill::drill(), true), (&huge, false)]
    {
        let plots = 3 * drill.runs.len();
        let (lines, console) =
            measured(&browser, &report::html(drill), &report::picture(drill), dark);
        assert_eq!(console, Vec::<String>::new(), "dark: {dark}");
        assert!(lines[0].starts_with(&format!("{plots} {plots} plots")), "{lines:?}");
        assert!(!lines[0].contains(" 0 texts"), "{lines:?}");
        assert_eq!(lines[1..], [] as [String; 0], "dark: {dark}");
    }
}

#[test]
fn a_browser_finds_what_is_wrong() {
    let Some(browser) = browser() else { return };
    let drill = one(sample_drill::run(Act::Midnight, Setting::All));
    let wrong = "<p style=\"width:900px;font-size:9px;color:#999;background:#fff\">wide</p>\
                 <img src=\"missing.png\" alt=\"\"></main>";
    let page = report::html(&drill).replace("</main>", wrong);
    let picture =
        report::picture(&drill).replace("</svg>", "<text x=\"900\" y=\"9\">out</text></svg>");
    let (lines, console) = measured(&browser, &page, &picture, false);
    for complaint in [
        "360: the page scrolls sideways",
        "small text",
        "faint text",
        "beyond the edge",
        "beyond its edge",
    ] {
        assert!(lines.iter().any(|line| line.contains(complaint)), "{complaint}: {lines:?}");
    }
    assert!(console.iter().any(|line| line.contains("missing.png")), "{console:?}");
}
