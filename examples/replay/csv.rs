//! Lines of comma-separated columns: time, key and, if there is one, size.

use std::borrow::Cow;

/// Names of columns, in lower case.
const KEYS: [&str; 9] =
    ["key", "id", "object", "obj_id", "object_id", "item", "url", "lbn", "block"];
const SIZES: [&str; 6] = ["size", "bytes", "obj_size", "object_size", "length", "weight"];
const TIMES: [&str; 4] = ["time", "timestamp", "ts", "clock_time"];

/// Which columns are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Columns {
    key: usize,
    size: Option<usize>,
}

/// A request, as its line has it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) key: Cow<'a, str>,
    pub(crate) size: Option<u64>,
}

impl Columns {
    /// What the first line says, and whether it says it by names and is no request itself.
    pub(crate) fn of(first: &str) -> Result<(Columns, bool), String> {
        let cells = split(first)?;
        let names: Vec<_> = cells.iter().map(|cell| name(cell)).collect();
        let find = |known: &[&str]| names.iter().position(|name| known.contains(&name.as_str()));
        let size = find(&SIZES);
        if let Some(key) = find(&KEYS) {
            return Ok((Columns { key, size }, true));
        }
        if size.or(find(&TIMES)).is_some() {
            return Err(format!("none of the columns is named {}", KEYS.join(", ")));
        }
        Ok((Columns { key: 1, size: (cells.len() > 2).then_some(2) }, false))
    }

    /// Reads a line.
    pub(crate) fn read(self, line: &str) -> Result<Record<'_>, String> {
        let mut cells = split(line)?;
        let needed = self.key.max(self.size.unwrap_or(0)) + 1;
        if cells.len() < needed {
            return Err(format!("{needed} columns are needed, and here is {}", cells.len()));
        }
        let size = match self.size.map(|column| cells[column].trim()) {
            Some(text) => Some(text.parse().map_err(|error| format!("size {text:?}: {error}"))?),
            None => None,
        };
        let key = cells.swap_remove(self.key);
        if key.is_empty() {
            return Err("the key is empty".to_owned());
        }
        Ok(Record { key, size })
    }
}

/// Whether text that begins with this line has columns: named ones, or a time and a key.
pub(crate) fn looks_like(first: &str) -> bool {
    let Ok(cells) = split(first) else {
        return false;
    };
    let is_time = |cell: &str| cell.trim().parse::<f64>().is_ok();
    let known = |cell: &str| {
        let name = name(cell);
        [&KEYS[..], &SIZES, &TIMES].concat().contains(&name.as_str())
    };
    cells.len() > 1 && (is_time(&cells[0]) || cells.iter().any(|cell| known(cell)))
}

/// A cell as the name of a column: `# Object ID` is `object_id`.
fn name(cell: &str) -> String {
    let cell = cell.trim_start_matches('#').trim();
    cell.to_ascii_lowercase().replace([' ', '-'], "_")
}

/// The cells of a line. Quotes keep a comma in a cell, and two of them are one in it.
fn split(line: &str) -> Result<Vec<Cow<'_, str>>, String> {
    let mut cells = Vec::new();
    let mut rest = line;
    loop {
        let (cell, after) = match rest.trim_start().strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                (Cow::Borrowed(rest[..end].trim()), &rest[end..])
            }
        };
        cells.push(cell);
        match after.strip_prefix(',') {
            Some(more) => rest = more,
            None => return Ok(cells),
        }
    }
}

/// What is before the closing quote, and what follows it.
fn unquote(quoted: &str) -> Result<(Cow<'_, str>, &str), String> {
    let mut from = 0;
    while let Some(found) = quoted[from..].find('"') {
        let end = from + found;
        let after = &quoted[end + 1..];
        if after.starts_with('"') {
            from = end + 2;
            continue;
        }
        let after = after.trim_start();
        if !after.is_empty() && !after.starts_with(',') {
            return Err("a quote is followed by neither a comma nor the end".to_owned());
        }
        let cell = &quoted[..end];
        let cell = if cell.contains('"') { cell.replace("\"\"", "\"").into() } else { cell.into() };
        return Ok((cell, after));
    }
    Err("a quote is not closed".to_owned())
}
