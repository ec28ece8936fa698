//! Traces with sizes: zstd streams of 16-byte little-endian records `u64 key, u32 size, u32 time`.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use super::Error;

const SUFFIX: &str = ".rec16.zst";
const RECORD: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub key: u64,
    /// At least 1.
    pub size: u32,
}

/// Not empty.
pub struct Trace {
    pub requests: Vec<Request>,
    /// Distinct keys.
    pub keys: u64,
    /// The sum of their sizes, each as it was requested first.
    pub bytes: u64,
    /// The greatest size of all requests.
    pub heaviest: u32,
}

/// Names and files of the traces in `folder`, by name.
pub fn list(folder: &Path) -> Result<Vec<(String, PathBuf)>, Error> {
    let mut found = Vec::new();
    for file in std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))? {
        let path = file?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if let Some(name) = name.and_then(|name| name.strip_suffix(SUFFIX)) {
            found.push((name.to_string(), path));
        }
    }
    found.sort();
    Ok(found)
}

pub fn read(path: &Path) -> Result<Trace, Error> {
    let fail = |error: Error| format!("{}: {error}", path.display());
    let requests = decode(path).map_err(fail)?;
    let Some(heaviest) = requests.iter().map(|request| request.size).max() else {
        return Err(fail("no requests".into()).into());
    };
    let mut first = HashMap::new();
    for request in &requests {
        first.entry(request.key).or_insert(request.size);
    }
    Ok(Trace {
        keys: first.len() as u64,
        bytes: first.values().map(|&size| u64::from(size)).sum(),
        heaviest,
        requests,
    })
}

fn decode(path: &Path) -> Result<Vec<Request>, Error> {
    let file = BufReader::new(File::open(path)?);
    parse(BufReader::new(ruzstd::decoding::StreamingDecoder::new(file)?))
}

/// Keeps nothing but the requests, so that a long trace is never in memory twice.
fn parse(mut stream: impl Read) -> Result<Vec<Request>, Error> {
    let mut requests = Vec::new();
    let mut record = Vec::with_capacity(RECORD);
    loop {
        record.clear();
        stream.by_ref().take(RECORD as u64).read_to_end(&mut record)?;
        if record.is_empty() {
            return Ok(requests);
        }
        let Ok(record) = <&[u8; RECORD]>::try_from(record.as_slice()) else {
            return Err("not a whole number of records".into());
        };
        let word = u128::from_le_bytes(*record);
        requests.push(Request { key: word as u64, size: ((word >> 64) as u32).max(1) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_in_order() {
        let mut bytes = Vec::new();
        for (key, size, time) in [(u64::MAX, 7u32, 1u32), (2, 0, u32::MAX), (3, u32::MAX, 0)] {
            bytes.extend(key.to_le_bytes());
            bytes.extend(size.to_le_bytes());
            bytes.extend(time.to_le_bytes());
        }
        let requests = parse(bytes.as_slice()).unwrap();
        let pairs: Vec<_> = requests.iter().map(|request| (request.key, request.size)).collect();
        assert_eq!(pairs, [(u64::MAX, 7), (2, 1), (3, u32::MAX)]);
        bytes.pop();
        assert!(parse(bytes.as_slice()).is_err());
    }
}
