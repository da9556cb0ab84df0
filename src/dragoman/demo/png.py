"""Plain PNG images of one colour, built with the standard library alone; nothing else of the format."""

import struct
import zlib

_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def solid_png(colour: tuple[int, int, int], *, width: int, height: int) -> bytes:
    """Draw a PNG of `width` by `height` pixels, all of the RGB `colour`."""
    # 8 bits a channel, colour type 2 (RGB), and the only compression, filter and interlace methods there are.
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    row = b"\x00" + bytes(colour) * width
    pixels = zlib.compress(row * height, 9)
    return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", pixels) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
