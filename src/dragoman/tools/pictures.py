"""What the bytes of an image say about it: its real type and its size in pixels. Never decodes one."""

from __future__ import annotations

_PNG = b"\x89PNG\r\n\x1a\n"
_GIF = (b"GIF87a", b"GIF89a")
_JPEG = b"\xff\xd8"
# Frame headers of JPEG hold the size; the three left out of the range are tables, not frames.
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_STANDALONE = frozenset({0x01, *range(0xD0, 0xD8)})


def image_type(data: bytes) -> str:
    """Return the media type that the first bytes tell, or nothing."""
    if data.startswith(_PNG):
        return "image/png"
    if data.startswith(_GIF):
        return "image/gif"
    if data.startswith(_JPEG):
        return "image/jpeg"
    return "image/webp" if _is_webp(data) else ""


def image_size(data: bytes) -> str:
    """Read the size of a PNG, GIF, JPEG or WebP from its header, as `64x64`; nothing if it has none."""
    if data.startswith(_PNG) and data[12:16] == b"IHDR" and len(data) >= 24:
        return f"{int.from_bytes(data[16:20])}x{int.from_bytes(data[20:24])}"
    if data.startswith(_GIF) and len(data) >= 10:
        return f"{int.from_bytes(data[6:8], 'little')}x{int.from_bytes(data[8:10], 'little')}"
    if _is_webp(data):
        return _webp_size(data)
    return _jpeg_size(data) if data.startswith(_JPEG) else ""


def _is_webp(data: bytes) -> bool:
    return data[:4] == b"RIFF" and data[8:12] == b"WEBP"


def _webp_size(data: bytes) -> str:
    """Read the size from the first chunk: plain (`VP8 `), lossless (`VP8L`) or extended (`VP8X`)."""
    kind = data[12:16]
    if kind == b"VP8X" and len(data) >= 30:
        width, height = data[24:27], data[27:30]
        return f"{int.from_bytes(width, 'little') + 1}x{int.from_bytes(height, 'little') + 1}"
    if kind == b"VP8L" and len(data) >= 25 and data[20] == 0x2F:
        bits = int.from_bytes(data[21:25], "little")
        return f"{(bits & 0x3FFF) + 1}x{(bits >> 14 & 0x3FFF) + 1}"
    if kind == b"VP8 " and len(data) >= 30 and data[23:26] == b"\x9d\x01\x2a":
        width, height = (int.from_bytes(data[at : at + 2], "little") & 0x3FFF for at in (26, 28))
        return f"{width}x{height}"
    return ""


def _jpeg_size(data: bytes) -> str:
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker in _JPEG_FRAMES:
            height, width = data[at + 5 : at + 7], data[at + 7 : at + 9]
            return f"{int.from_bytes(width)}x{int.from_bytes(height)}"
        if marker == 0xFF:
            at += 1
        elif marker in _JPEG_STANDALONE:
            at += 2
        else:
            at += 2 + max(2, int.from_bytes(data[at + 2 : at + 4]))
    return ""
