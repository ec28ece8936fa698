//! Figures for people, and text for markup.

/// Narrow, and no line ends there.
const NARROW_SPACE: char = '\u{202f}';

/// With all its digits, in groups of three.
pub(super) fn exact(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(NARROW_SPACE);
        }
        text.push(digit);
    }
    text
}

/// With three digits or fewer: `940`, `1.24 k`, `18.4 E`.
pub(super) fn short(count: f64) -> String {
    let mut value = count;
    let mut unit = "";
    for larger in ["k", "M", "G", "T", "P", "E"] {
        if value < 999.5 {
            break;
        }
        value /= 1000.0;
        unit = larger;
    }
    with_unit(value, unit)
}

/// In the unit that needs the fewest digits.
pub(super) fn duration(micros: u64) -> String {
    let micros = micros as f64;
    if micros == 0.0 {
        with_unit(0.0, "s")
    } else if micros < 999.5 {
        with_unit(micros, "µs")
    } else if micros < 999_500.0 {
        with_unit(micros / 1e3, "ms")
    } else if micros < 1e9 {
        with_unit(micros / 1e6, "s")
    } else {
        format!("{}{NARROW_SPACE}s", seconds(micros / 1e6))
    }
}

/// Rounded down to two places near the whole: only what is all reads `100`.
pub(super) fn percent(part: u64, whole: u64) -> Option<String> {
    if whole == 0 {
        return None;
    }
    let percent = part as f64 / whole as f64 * 100.0;
    Some(if part >= whole {
        "100".to_owned()
    } else if percent >= 99.0 {
        format!("{:.2}", (percent * 100.0).floor().min(9999.0) / 100.0)
    } else {
        format!("{percent:.1}")
    })
}

/// The same with its sign.
pub(super) fn share(part: u64, whole: u64) -> Option<String> {
    percent(part, whole).map(|percent| format!("{percent}{NARROW_SPACE}%"))
}

/// A moment of an act, in seconds.
pub(super) fn moment(millis: u64) -> String {
    format!("{}{NARROW_SPACE}s", seconds(millis as f64 / 1e3))
}

/// Without the unit.
pub(super) fn seconds(value: f64) -> String {
    if value < 1000.0 { trimmed(value, 4) } else { short(value) }
}

/// Without zeros at the end.
pub(super) fn trimmed(value: f64, places: usize) -> String {
    let text = format!("{value:.places$}");
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn with_unit(value: f64, unit: &str) -> String {
    let places = if value >= 99.95 { 0 } else { usize::from(value < 9.995) + 1 };
    let number = trimmed(value, places);
    if unit.is_empty() { number } else { format!("{number}{NARROW_SPACE}{unit}") }
}

/// For text and for attributes in quotes.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // Not allowed in XML, not even escaped.
            control if control.is_control() && !matches!(control, '\n' | '\t') => {
                escaped.push('\u{fffd}');
            }
            other => escaped.push(other),
        }
    }
    escaped
}
