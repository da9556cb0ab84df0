from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.tools.result.render import image_size, image_type

pytestmark = pytest.mark.requirement("otter-p1.images")

PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + struct.pack(">II", 64, 48)
GIF = b"GIF89a" + struct.pack("<HH", 10, 20)
JPEG = (
    b"\xff\xd8\xff\xe0"
    + struct.pack(">H", 4)
    + b"ab\xff\xff\xd0\xff\xc4"
    + struct.pack(">H", 2)
    + b"\xff\xc0"
    + struct.pack(">HBHH", 8, 8, 30, 40)
    + b"rest"
)
RIFF = b"RIFF\x00\x00\x00\x00WEBP"
LOSSY = RIFF + b"VP8 " + bytes(7) + b"\x9d\x01\x2a" + struct.pack("<HH", 176, 144 | 0x4000)
LOSSLESS = RIFF + b"VP8L" + bytes(4) + b"\x2f" + struct.pack("<I", (386 - 1) | (395 - 1) << 14)
EXTENDED = RIFF + b"VP8X" + bytes(8) + (400 - 1).to_bytes(3, "little") + (300 - 1).to_bytes(3, "little")


@pytest.mark.parametrize(
    ("data", "kind", "size"),
    [
        (PNG, "image/png", "64x48"),
        (GIF, "image/gif", "10x20"),
        (JPEG, "image/jpeg", "40x30"),
        (LOSSY, "image/webp", "176x144"),
        (LOSSLESS, "image/webp", "386x395"),
        (EXTENDED, "image/webp", "400x300"),
        (PNG[:20], "image/png", ""),
        (GIF[:8], "image/gif", ""),
        (JPEG[:8], "image/jpeg", ""),
        (LOSSY[:28], "image/webp", ""),
        (LOSSLESS[:22], "image/webp", ""),
        (EXTENDED[:26], "image/webp", ""),
        (b"\xff\xd8plain", "image/jpeg", ""),
        (b"RIFFwebp", "", ""),
        (b"<svg/>", "", ""),
        (b"", "", ""),
    ],
)
def test_header_tells_type_and_size(data: bytes, kind: str, size: str) -> None:
    assert (image_type(data), image_size(data)) == (kind, size)


@given(
    st.binary(), st.sampled_from([b"", PNG[:8], GIF[:6], JPEG[:2], LOSSY[:16], LOSSLESS[:21], EXTENDED[:16]])
)
def test_any_bytes_have_a_size_or_none(data: bytes, head: bytes) -> None:
    assert isinstance(image_size(head + data), str)
