//! Decompression: gzip, bzip2, xz and zstd, by their first bytes.
//!
//! Concatenated members (gzip), streams (bzip2, xz) and frames (zstd) are read one after the other,
//! as their own tools do.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use bzip2::bufread::MultiBzDecoder;
use flate2::bufread::GzDecoder;
use liblzma::bufread::XzDecoder;

/// Bytes of the packed content that are read at a time.
const PACKED_BYTES: usize = 1 << 16;
/// The memory limit of xz streams. `xz -9` needs 65 MiB; a forged header may ask for 4 GiB.
const XZ_MEMORY_BYTES_MAX: u64 = 256 << 20;
/// The largest window of zstd, 2 GiB: that of `zstd --long=31`. Its memory is used only as far as
/// there is content.
const ZSTD_WINDOW_LOG_MAX: u32 = 31;

/// The length of the longest magic number below.
const MAGIC_BYTES: u64 = 10;
const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
const XZ_MAGIC: &[u8] = &[0xfd, b'7', b'z', b'X', b'Z', 0];
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// A zstd file may begin with a skippable frame. The low half of its first byte is arbitrary.
const ZSTD_SKIPPABLE_MAGIC: &[u8] = &[0x2a, 0x4d, 0x18];
/// What follows `BZh` and the size of blocks: the magic number of a block, or of the end of an
/// empty stream.
const BZIP2_BLOCK_MAGIC: &[u8] = &[0x31, 0x41, 0x59, 0x26, 0x53, 0x59];
const BZIP2_END_MAGIC: &[u8] = &[0x17, 0x72, 0x45, 0x38, 0x50, 0x90];

/// The content of `reader`, without the compression that its first bytes show.
pub(super) fn decoded<'a>(mut reader: Box<dyn Read + 'a>) -> io::Result<Box<dyn Read + 'a>> {
    let mut magic = Vec::new();
    (&mut reader).take(MAGIC_BYTES).read_to_end(&mut magic)?;
    let is_gzip = magic.starts_with(GZIP_MAGIC);
    let is_xz = magic.starts_with(XZ_MAGIC);
    let (is_zstd, is_bzip2) = (is_zstd(&magic), is_bzip2(&magic));
    let whole = Cursor::new(magic).chain(reader);
    let packed = |whole| BufReader::with_capacity(PACKED_BYTES, whole);
    Ok(if is_gzip {
        Box::new(Gzip::of(packed(whole)))
    } else if is_xz {
        let flags = liblzma::stream::CONCATENATED;
        let stream = liblzma::stream::Stream::new_stream_decoder(XZ_MEMORY_BYTES_MAX, flags)?;
        Box::new(XzDecoder::new_stream(packed(whole), stream))
    } else if is_zstd {
        let mut decoder = zstd::Decoder::with_buffer(packed(whole))?;
        decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
        Box::new(decoder)
    } else if is_bzip2 {
        Box::new(MultiBzDecoder::new(packed(whole)))
    } else {
        Box::new(whole)
    })
}

fn is_zstd(magic: &[u8]) -> bool {
    let skippable =
        magic.len() >= 4 && magic[0] >> 4 == 5 && magic[1..].starts_with(ZSTD_SKIPPABLE_MAGIC);
    magic.starts_with(ZSTD_MAGIC) || skippable
}

fn is_bzip2(magic: &[u8]) -> bool {
    let blocks = magic.strip_prefix(b"BZh").and_then(<[u8]>::split_first);
    blocks.is_some_and(|(level, rest)| {
        (b'1'..=b'9').contains(level) && [BZIP2_BLOCK_MAGIC, BZIP2_END_MAGIC].contains(&rest)
    })
}

/// The members of a gzip file, one after the other. Zeros may follow the last one, as where a tape
/// or a device was written in whole blocks.
struct Gzip<R> {
    /// `None` after the last member.
    decoder: Option<GzDecoder<R>>,
}

impl<R: BufRead> Gzip<R> {
    fn of(reader: R) -> Gzip<R> {
        Gzip {
            decoder: Some(GzDecoder::new(reader)),
        }
    }
}

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while let Some(decoder) = &mut self.decoder {
            let read = decoder.read(out)?;
            if read > 0 || out.is_empty() {
                return Ok(read);
            }
            let mut reader = self.decoder.take().expect("there is one").into_inner();
            let zeros = skip_zeros(&mut reader)?;
            if reader.fill_buf()?.is_empty() {
                break;
            }
            if zeros {
                let problem = "bytes behind the zeros after the last gzip member";
                return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
            }
            self.decoder = Some(GzDecoder::new(reader));
        }
        Ok(0)
    }
}

/// Skips zeros. Returns whether there were any.
fn skip_zeros(reader: &mut impl BufRead) -> io::Result<bool> {
    let mut any = false;
    loop {
        let found = reader.fill_buf()?;
        let zeros = found.iter().take_while(|byte| **byte == 0).count();
        let all = zeros == found.len();
        any |= zeros > 0;
        reader.consume(zeros);
        if zeros == 0 || !all {
            return Ok(any);
        }
    }
}
