import struct
import zlib
from collections.abc import Iterator

from dragoman.demo.studio import solid_png


def chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Take a PNG apart, checking every checksum."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    position = 8
    while position < len(png):
        (length,) = struct.unpack_from(">I", png, position)
        kind = png[position + 4 : position + 8]
        data = png[position + 8 : position + 8 + length]
        assert struct.unpack_from(">I", png, position + 8 + length) == (zlib.crc32(kind + data),)
        yield kind, data
        position += 12 + length


def test_image_has_the_size_and_colour_asked_for() -> None:
    parts = dict(chunks(solid_png((1, 2, 3), width=3, height=2)))
    assert list(parts) == [b"IHDR", b"IDAT", b"IEND"]
    assert struct.unpack(">IIBBBBB", parts[b"IHDR"]) == (3, 2, 8, 2, 0, 0, 0)
    assert zlib.decompress(parts[b"IDAT"]) == (b"\0" + b"\1\2\3" * 3) * 2
