"""Compresses the blocks of Avro files, by the codec names of Avro's specification."""

from __future__ import annotations

import bz2
import lzma
import zlib
from typing import Final

import pyarrow as pa

from penstock.base.errors import FormatError

#: Avro's deflated blocks have no header.
_RAW_DEFLATE: Final = -15
_CHECKSUM_BYTES: Final = 4
_VARINT_BYTES_MAX: Final = 5


def compress_block(data: bytes, codec: str) -> bytes:
    """Compress a block for a file. Raises `FormatError` for a codec unknown to Avro."""
    match codec:
        case "null":
            return data
        case "deflate":
            deflating = zlib.compressobj(wbits=_RAW_DEFLATE)
            return deflating.compress(data) + deflating.flush()
        case "snappy":
            compressed: bytes = pa.compress(data, "snappy", asbytes=True)
            return compressed + zlib.crc32(data).to_bytes(_CHECKSUM_BYTES, "big")
        case "bzip2":
            return bz2.compress(data)
        case "xz":
            return lzma.compress(data)
        case "zstandard":
            result: bytes = pa.compress(data, "zstd", asbytes=True)
            return result
    raise FormatError(f"Avro has no codec {codec!r}")


def decompress_block(data: bytes, codec: str) -> bytes:
    """Decompress a block of a file. Raises `FormatError` for damaged bytes and unknown codecs."""
    try:
        match codec:
            case "null":
                return data
            case "deflate":
                return zlib.decompress(data, _RAW_DEFLATE)
            case "snappy":
                return _snappy(data)
            case "bzip2":
                return bz2.decompress(data)
            case "xz":
                return lzma.decompress(data)
            case "zstandard":
                # A block need not state its uncompressed size.
                decompressed: bytes = pa.CompressedInputStream(pa.BufferReader(data), "zstd").read()
                return decompressed
    except (zlib.error, lzma.LZMAError, EOFError, OSError, ValueError, pa.ArrowException) as error:
        raise FormatError(f"it cannot be decompressed by {codec}: {error}") from error
    raise FormatError(f"Avro has no codec {codec!r}")


def _snappy(data: bytes) -> bytes:
    compressed, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    size = 0
    for index, byte in enumerate(compressed[:_VARINT_BYTES_MAX]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            break
    decompressed: bytes = pa.decompress(compressed, size, "snappy", asbytes=True)
    if zlib.crc32(decompressed).to_bytes(_CHECKSUM_BYTES, "big") != checksum:
        raise ValueError("its checksum is another one")
    return decompressed
