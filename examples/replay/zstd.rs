//! Decompression of zstd, frame after frame.

use std::io::{self, BufRead, ErrorKind, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Whether compressed data begins like this.
pub(crate) fn is_zstd(head: &[u8]) -> bool {
    let Some(magic) = head.first_chunk().map(|magic| u32::from_le_bytes(*magic)) else {
        return false;
    };
    // A frame, or one that is to be skipped.
    magic == 0xFD2F_B528 || magic & !0xF == 0x184D_2A50
}

/// Reads the content of all frames.
pub(crate) struct Zstd<R> {
    source: R,
    decoder: FrameDecoder,
    in_frame: bool,
    /// Bytes of the frame that were read.
    read: u64,
}

impl<R: BufRead> Zstd<R> {
    pub(crate) fn new(source: R) -> Self {
        Zstd { source, decoder: FrameDecoder::new(), in_frame: false, read: 0 }
    }

    fn begin_frame(&mut self) -> io::Result<()> {
        match self.decoder.reset(&mut self.source) {
            Ok(()) => {
                (self.in_frame, self.read) = (true, 0);
                Ok(())
            }
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length,
                ..
            })) => self.skip(length.into()),
            Err(error) => Err(bad(error)),
        }
    }

    fn skip(&mut self, length: u64) -> io::Result<()> {
        let skipped = io::copy(&mut self.source.by_ref().take(length), &mut io::sink())?;
        if skipped < length {
            return Err(bad("it ends in a frame that is to be skipped"));
        }
        Ok(())
    }

    /// The decoder leaves both checks to its caller.
    fn end_frame(&mut self) -> io::Result<()> {
        self.in_frame = false;
        let sum = self.decoder.get_checksum_from_data();
        if sum.is_some() && sum != self.decoder.get_calculated_checksum() {
            return Err(bad("a checksum is wrong"));
        }
        // Zero also stands for an unknown size.
        let promised = self.decoder.content_size();
        if promised > 0 && promised != self.read {
            return Err(bad(format!("{} bytes in place of {promised}", self.read)));
        }
        Ok(())
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.in_frame {
                if self.source.fill_buf()?.is_empty() {
                    return Ok(0);
                }
                self.begin_frame()?;
                continue;
            }
            let read = self.decoder.read(buffer)?;
            self.read += read as u64;
            if read > 0 {
                return Ok(read);
            }
            if self.decoder.is_finished() {
                self.end_frame()?;
            } else {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.source, one).map_err(bad)?;
            }
        }
    }
}

fn bad(error: impl ToString) -> io::Error {
    let error = error.to_string();
    io::Error::new(ErrorKind::InvalidData, format!("zstd, corrupt or cut short: {error}"))
}
