//! A filter as bytes. The format is described in the module's documentation.

use std::convert::Infallible;
use std::io::{self, Read, Write};

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::block::{BYTES, Block, WORDS, room};
use super::error::SnapshotError;
use super::filter::Filter;
use super::frozen::FrozenFilter;

const MAGIC: [u8; 8] = *b"\x89SWBLOOM";
const VERSION: u32 = 1;
/// Hash function, words in a block, logarithm of the bits of a word, zero.
const SHAPE: [u8; 4] = [1, WORDS as u8, 6, 0];
const HEADER: usize = 64;
/// Offset of the part of the header that is zero.
const UNUSED: usize = 40;
const CHECKSUM: usize = 8;

struct Header {
    seed: u64,
    blocks: u64,
    items: u64,
}

impl Header {
    fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&SHAPE);
        bytes[16..24].copy_from_slice(&self.seed.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.blocks.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.items.to_le_bytes());
        bytes
    }

    /// Reads a header from the beginning of some bytes.
    fn decode(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let known = bytes.len().min(MAGIC.len());
        if bytes[..known] != MAGIC[..known] {
            return Err(SnapshotError::Foreign);
        }
        let Some(header) = bytes.first_chunk::<HEADER>() else {
            let expected = (HEADER + BYTES + CHECKSUM) as u64;
            return Err(SnapshotError::Truncated { expected, found: bytes.len() as u64 });
        };
        let version = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        if version != VERSION {
            return Err(SnapshotError::Version(version));
        }
        let this = Header {
            seed: word(&header[16..]),
            blocks: word(&header[24..]),
            items: word(&header[32..]),
        };
        let unused = header[UNUSED..].iter().any(|&byte| byte != 0);
        if header[12..16] != SHAPE || unused || this.blocks == 0 || this.items == 0 {
            return Err(SnapshotError::Header);
        }
        Ok(this)
    }

    /// The length of the whole snapshot.
    fn expected(&self) -> Result<u64, SnapshotError> {
        let blocks = self.blocks.checked_mul(BYTES as u64).filter(|&bytes| bytes < 1 << 62);
        Ok(blocks.ok_or(SnapshotError::Header)? + (HEADER + CHECKSUM) as u64)
    }
}

/// The first eight bytes as a number.
fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(*bytes.first_chunk().expect("the caller gives eight bytes or more"))
}

fn decode_block(bytes: &[u8; BYTES]) -> Block {
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = self::word(bytes);
    }
    Block::new(words)
}

impl Filter {
    /// Returns the filter as bytes, with all that is needed to use it elsewhere; the module's
    /// documentation has the format. Allocates them. Keys that are inserted meanwhile may be in it or not.
    ///
    /// ```
    /// use seawall::bloom::{Filter, SnapshotError, plan};
    ///
    /// let filter = Filter::with_seed(&plan(100, 0.01)?, 7)?;
    /// filter.insert("key");
    /// let mut bytes = filter.to_bytes();
    /// assert!(Filter::from_bytes(&bytes)?.contains("key"));
    /// bytes[70] ^= 1;
    /// assert_eq!(Filter::from_bytes(&bytes).unwrap_err(), SnapshotError::Checksum);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn to_bytes(&self) -> Vec<u8> {
        collected(&self.header(), self.each_block())
    }

    /// Returns the filter that some bytes are.
    ///
    /// Allocates nothing before the length and the checksum have been found right. A filter that was
    /// saved some time ago does not know the keys that came later: see
    /// [`RebuildingFilter::from_filter`](super::RebuildingFilter::from_filter).
    ///
    /// # Errors
    ///
    /// [`SnapshotError`], if the bytes are not exactly one snapshot, of a version and layout that this
    /// version of the crate knows.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let header = Header::decode(bytes)?;
        let (expected, found) = (header.expected()?, bytes.len() as u64);
        if found < expected {
            return Err(SnapshotError::Truncated { expected, found });
        }
        if found > expected {
            return Err(SnapshotError::TooLong { expected, found });
        }
        let (content, checksum) = bytes.split_at(bytes.len() - CHECKSUM);
        if xxh3_64(content) != word(checksum) {
            return Err(SnapshotError::Checksum);
        }
        let content = &content[HEADER..];
        let no_room = SnapshotError::OutOfMemory { bytes: content.len() as u64 };
        let mut blocks = room(content.len() / BYTES).ok_or(no_room)?;
        blocks
            .extend(content.chunks_exact(BYTES).filter_map(<[u8]>::first_chunk).map(decode_block));
        Ok(Self::from_blocks(blocks, header.seed, header.items))
    }

    /// Writes what [`Self::to_bytes`] returns, in pieces of a few kilobytes at most, without allocating.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn write_to(&self, to: &mut impl Write) -> io::Result<()> {
        each_piece(&self.header(), self.each_block(), |piece| to.write_all(piece))
    }

    fn header(&self) -> Header {
        Header { seed: self.seed(), blocks: self.blocks() as u64, items: self.items() }
    }

    /// Reads what [`Self::write_to`] wrote, and nothing after it.
    ///
    /// Memory is taken as data arrives, never for a length that is only claimed. It reads block by block:
    /// a reader that is not in memory should be buffered, and one of a stranger's limited
    /// ([`Read::take`]).
    ///
    /// # Errors
    ///
    /// Those of the reader, and [`io::ErrorKind::InvalidData`] with a [`SnapshotError`] inside.
    pub fn read_from(from: &mut impl Read) -> io::Result<Self> {
        let mut header = [0; HEADER];
        from.read_exact(&mut header)?;
        let mut sum = Xxh3::new();
        sum.update(&header);
        let header = Header::decode(&header).map_err(invalid)?;
        header.expected().map_err(invalid)?;
        let mut blocks = Vec::new();
        for _ in 0..header.blocks {
            let mut block = [0; BYTES];
            from.read_exact(&mut block)?;
            sum.update(&block);
            if blocks.try_reserve(1).is_err() {
                let bytes = header.blocks * BYTES as u64;
                return Err(invalid(SnapshotError::OutOfMemory { bytes }));
            }
            blocks.push(decode_block(&block));
        }
        let mut checksum = [0; CHECKSUM];
        from.read_exact(&mut checksum)?;
        if sum.digest() != u64::from_le_bytes(checksum) {
            return Err(invalid(SnapshotError::Checksum));
        }
        Ok(Self::from_blocks(blocks, header.seed, header.items))
    }
}

impl FrozenFilter {
    /// Returns what [`Filter::to_bytes`] returns for the filter that it was made from.
    pub fn to_bytes(&self) -> Vec<u8> {
        collected(&self.header(), self.each_block())
    }

    /// Returns the filter that some bytes are, as [`Filter::from_bytes`].
    ///
    /// # Errors
    ///
    /// Those of [`Filter::from_bytes`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SnapshotError> {
        Filter::from_bytes(bytes).map(Filter::freeze)
    }

    /// Writes what [`Self::to_bytes`] returns, as [`Filter::write_to`].
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn write_to(&self, to: &mut impl Write) -> io::Result<()> {
        each_piece(&self.header(), self.each_block(), |piece| to.write_all(piece))
    }

    /// Reads what [`Self::write_to`] wrote, as [`Filter::read_from`].
    ///
    /// # Errors
    ///
    /// Those of [`Filter::read_from`].
    pub fn read_from(from: &mut impl Read) -> io::Result<Self> {
        Filter::read_from(from).map(Filter::freeze)
    }

    fn header(&self) -> Header {
        Header { seed: self.seed(), blocks: self.blocks() as u64, items: self.items() }
    }
}

/// Hands out a snapshot piece by piece.
fn each_piece<E>(
    header: &Header,
    blocks: impl Iterator<Item = [u64; WORDS]>,
    mut put: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let header = header.encode();
    let mut checksum = Xxh3::new();
    checksum.update(&header);
    put(&header)?;
    let mut piece = [0; 64 * BYTES];
    let mut filled = 0;
    for words in blocks {
        for word in words {
            piece[filled..filled + 8].copy_from_slice(&word.to_le_bytes());
            filled += 8;
        }
        if filled == piece.len() {
            checksum.update(&piece);
            put(&piece)?;
            filled = 0;
        }
    }
    checksum.update(&piece[..filled]);
    put(&piece[..filled])?;
    put(&checksum.digest().to_le_bytes())
}

fn collected(header: &Header, blocks: impl Iterator<Item = [u64; WORDS]>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + header.blocks as usize * BYTES + CHECKSUM);
    let Ok(()) = each_piece(header, blocks, |piece| -> Result<(), Infallible> {
        bytes.extend_from_slice(piece);
        Ok(())
    });
    bytes
}

fn invalid(error: SnapshotError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
