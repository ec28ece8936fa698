//! Opens a file and finds out what it holds.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{BufReader, Cursor, Read};
use std::path::Path;

use crate::format::Format;
use crate::read::read;
use crate::trace::Trace;
use crate::zstd::{Zstd, is_zstd};

/// As much as is looked at to tell text from binary data.
const HEAD: u64 = 64 << 10;

/// A file that is open, and its format.
pub(crate) struct Input<'a> {
    name: String,
    content: Box<dyn Read + 'a>,
    compressed: bool,
    format: Format,
    /// How the format was found.
    by: &'static str,
}

impl<'a> Input<'a> {
    /// Opens a file, or takes standard input for `-`.
    pub(crate) fn open(
        file: &OsStr,
        stdin: impl Read + 'a,
        format: Option<Format>,
    ) -> Result<Self, String> {
        let (name, raw): (_, Box<dyn Read + 'a>) = if file == "-" {
            ("standard input".to_owned(), Box::new(stdin))
        } else {
            let name = Path::new(file).display().to_string();
            let raw = open_file(file).map_err(|error| format!("{name}: {error}"))?;
            (name, Box::new(raw))
        };
        let named = Format::of_name(&file.to_string_lossy());
        Input::of(name, raw, format, named)
    }

    fn of(
        name: String,
        raw: Box<dyn Read + 'a>,
        given: Option<Format>,
        named: Option<Format>,
    ) -> Result<Self, String> {
        let failed = |error| format!("{name}: {error}");
        let (head, raw) = peek(raw, 4).map_err(failed)?;
        if head.is_empty() {
            return Err(format!("{name}: it is empty"));
        }
        let compressed = is_zstd(&head);
        let content: Box<dyn Read + 'a> =
            if compressed { Box::new(Zstd::new(BufReader::new(raw))) } else { Box::new(raw) };
        let (content, format, by) = match (given, named) {
            (Some(format), _) => (content, format, "as told"),
            (None, Some(format)) => (content, format, "by its name"),
            (None, None) => {
                let (head, content) = peek(content, HEAD).map_err(failed)?;
                if let Some(kind) = other_compression(&head) {
                    return Err(format!("{name}: compressed with {kind}, and only zstd is known"));
                }
                let content: Box<dyn Read + 'a> = Box::new(content);
                (content, Format::of_content(&head), "by its content")
            }
        };
        Ok(Input { name, content, compressed, format, by })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn read(self) -> Result<Trace, String> {
        let Input { name, content, format, .. } = self;
        read(content, format).map_err(|error| format!("{name}, read as {format}: {error}"))
    }
}

impl fmt::Display for Input<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let compressed = if self.compressed { ", compressed with zstd" } else { "" };
        write!(f, "{}: {}, {}{compressed}", self.name, self.format, self.by)
    }
}

fn open_file(file: &OsStr) -> std::io::Result<File> {
    let file = File::open(file)?;
    if file.metadata()?.is_dir() {
        return Err(std::io::ErrorKind::IsADirectory.into());
    }
    Ok(file)
}

/// What would else be taken for binary keys.
fn other_compression(head: &[u8]) -> Option<&'static str> {
    let kinds: [(&str, &[u8]); 3] =
        [("gzip", &[0x1F, 0x8B, 8]), ("xz", b"\xFD7zXZ\0"), ("bzip2", b"BZh")];
    kinds.into_iter().find(|(_, magic)| head.starts_with(magic)).map(|(kind, _)| kind)
}

/// The first bytes, and all of them again.
fn peek<R: Read>(mut input: R, bytes: u64) -> std::io::Result<(Vec<u8>, impl Read)> {
    let mut head = Vec::new();
    input.by_ref().take(bytes).read_to_end(&mut head)?;
    Ok((head.clone(), Cursor::new(head).chain(input)))
}
