//! Results, as JSON lines or as tables.

use serde_json::{Map, Value};

/// The fields of one result, in order. `bench` comes first.
#[macro_export]
macro_rules! record {
    ($($name:literal: $value:expr),+ $(,)?) => {{
        let mut record = serde_json::Map::new();
        $(record.insert($name.to_string(), serde_json::Value::from($value));)+
        record
    }};
}

pub struct Report {
    json: bool,
    /// The columns under the last header printed.
    columns: Vec<String>,
    /// The value of `bench` under the last header printed.
    bench: String,
}

impl Report {
    pub fn new(json: bool) -> Self {
        Report { json, columns: Vec::new(), bench: String::new() }
    }

    pub fn add(&mut self, record: Map<String, Value>) {
        if self.json {
            println!("{}", Value::Object(record));
            return;
        }
        let bench = text(&record["bench"]);
        let columns: Vec<String> = record.keys().filter(|k| *k != "bench").cloned().collect();
        if bench != self.bench || columns != self.columns {
            println!("\n{bench}");
            let header: Vec<String> = columns.iter().map(|c| pad(c, c, true)).collect();
            println!("  {}", header.join("  ").trim_end());
            self.bench = bench;
            self.columns = columns;
        }
        let row: Vec<String> =
            self.columns.iter().map(|c| pad(&text(&record[c]), c, record[c].is_string())).collect();
        println!("  {}", row.join("  ").trim_end());
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(s) => s.clone(),
        Value::Null => "-".to_string(),
        other => other.to_string(),
    }
}

fn pad(text: &str, column: &str, left: bool) -> String {
    let width = match column {
        "scenario" => 15,
        "trace" | "worst_row" | "byte_worst_row" => 29,
        "subject" | "peer" => 13,
        "shape" => 20,
        _ => column.len().max(8),
    };
    if left { format!("{text:<width$}") } else { format!("{text:>width$}") }
}

/// `x` with at most `digits` decimals.
pub fn round(x: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (x * scale).round() / scale
}

/// `part` of `whole` in percent.
pub fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    part as f64 * 100.0 / whole as f64
}

/// The median; of an even number the mean of the middle two.
pub fn median(mut values: Vec<f64>) -> f64 {
    assert!(!values.is_empty());
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}
