//! What a file holds, by its name or else by its content.

use std::fmt;
use std::str::FromStr;

use crate::csv;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    U64,
    Rec16,
    Text,
    Csv,
}

impl Format {
    /// By the end of the name, `.zst` not counted.
    pub(crate) fn of_name(name: &str) -> Option<Format> {
        let name = name.to_ascii_lowercase();
        let name = name.strip_suffix(".zst").or(name.strip_suffix(".zstd")).unwrap_or(&name);
        match name.rsplit_once('.')?.1 {
            "u64" => Some(Format::U64),
            "rec16" => Some(Format::Rec16),
            "txt" | "text" => Some(Format::Text),
            "csv" => Some(Format::Csv),
            _ => None,
        }
    }

    /// By the first bytes of the content.
    pub(crate) fn of_content(head: &[u8]) -> Format {
        let Some(text) = as_text(head) else {
            return Format::U64;
        };
        let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("");
        if csv::looks_like(first) { Format::Csv } else { Format::Text }
    }
}

/// The text that begins with these bytes, which may end in the middle of a character.
fn as_text(head: &[u8]) -> Option<&str> {
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&head[..error.valid_up_to()]).ok()?
        }
        Err(_) => return None,
    };
    text.lines().all(is_text).then_some(text)
}

/// Whether a line holds nothing that only binary data holds.
pub(crate) fn is_text(line: &str) -> bool {
    !line.chars().any(|c| c.is_control() && c != '\t')
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "u64" => Ok(Format::U64),
            "rec16" => Ok(Format::Rec16),
            "text" => Ok(Format::Text),
            "csv" => Ok(Format::Csv),
            _ => Err(format!("--format {text:?}: u64, rec16, text or csv is needed")),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::U64 => "u64",
            Format::Rec16 => "rec16",
            Format::Text => "text",
            Format::Csv => "csv",
        })
    }
}
