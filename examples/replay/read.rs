//! Reads each format, piece by piece.

use std::io::{self, BufRead, BufReader, Read};

use crate::csv::Columns;
use crate::format::{Format, is_text};
use crate::trace::{Builder, Trace};

/// Bytes taken at a time; a multiple of every record's size.
const PIECE: usize = 64 << 10;

/// A longer line is a sign of another format, and would have to be held in memory.
const MAX_LINE: usize = 64 << 10;

/// Reads all of it, or says what is wrong with it.
pub(crate) fn read(input: impl Read, format: Format) -> Result<Trace, String> {
    match format {
        Format::U64 => {
            records(input, |key: [u8; 8], trace| trace.push(&u64::from_le_bytes(key), None))
        }
        Format::Rec16 => records(input, |record: [u8; 16], trace| {
            let record = u128::from_le_bytes(record);
            let (key, size) = (record as u64, (record >> 64) as u32);
            trace.push(&key, Some(size.into()))
        }),
        Format::Text => lines(input, |line, trace| trace.push(line, None)),
        Format::Csv => {
            let mut columns = None;
            lines(input, move |line, trace| csv_line(&mut columns, line, trace))
        }
    }
}

fn records<const N: usize>(
    mut input: impl Read,
    mut take: impl FnMut([u8; N], &mut Builder<u64>) -> Result<(), String>,
) -> Result<Trace, String> {
    let mut trace = Builder::new();
    let mut piece = Vec::with_capacity(PIECE);
    loop {
        piece.clear();
        input.by_ref().take(PIECE as u64).read_to_end(&mut piece).map_err(says)?;
        let mut records = piece.chunks_exact(N);
        for record in &mut records {
            take(record.try_into().expect("a chunk has this length"), &mut trace)?;
        }
        let rest = records.remainder().len();
        if rest > 0 {
            let before = trace.len();
            return Err(format!(
                "{rest} bytes after {before} records of {N} bytes: cut short, or another format"
            ));
        }
        if piece.is_empty() {
            return trace.finish();
        }
    }
}

/// Lines that are not blank. The end of a line is no part of it, nor is a byte order mark.
fn lines(
    input: impl Read,
    mut take: impl FnMut(&str, &mut Builder<String>) -> Result<(), String>,
) -> Result<Trace, String> {
    let mut input = BufReader::with_capacity(PIECE, input);
    let mut trace = Builder::new();
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        let limit = MAX_LINE as u64 + 1;
        if input.by_ref().take(limit).read_until(b'\n', &mut line).map_err(says)? == 0 {
            break;
        }
        let text = text_of(&line).and_then(|text| {
            let text = if number == 1 { text.trim_start_matches('\u{feff}') } else { text };
            if text.trim().is_empty() { Ok(()) } else { take(text, &mut trace) }
        });
        text.map_err(|error| format!("line {number}: {error}"))?;
    }
    trace.finish()
}

fn text_of(line: &[u8]) -> Result<&str, String> {
    if line.len() > MAX_LINE {
        return Err(format!("longer than {MAX_LINE} bytes; is it binary?"));
    }
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let text = std::str::from_utf8(line).ok().filter(|text| is_text(text));
    text.ok_or_else(|| "not text; is it binary?".to_owned())
}

fn csv_line(
    columns: &mut Option<Columns>,
    line: &str,
    trace: &mut Builder<String>,
) -> Result<(), String> {
    let columns = match columns {
        Some(columns) => *columns,
        None => {
            let (first, is_names) = Columns::of(line)?;
            *columns = Some(first);
            if is_names {
                return Ok(());
            }
            first
        }
    };
    let record = columns.read(line)?;
    trace.push(&*record.key, record.size)
}

fn says(error: io::Error) -> String {
    error.to_string()
}
