"""Markdown that is still coming, cut into blocks that will not change any more. Pure.

What comes later never changes a block that was given out, so it can be printed for good: a paragraph ends at
a blank line, an item of a list at the next one, code line by line. Only what a reader would see change is
held back, and `rest` shows it meanwhile.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from markdown_it import MarkdownIt

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from markdown_it.token import Token

_FENCE = re.compile(r" {0,3}(?P<mark>`{3,}+|~{3,}+)[ \t]*+(?P<language>[^\s`]*+)[^`\n]*+\n")
_NUMBER = re.compile(r"\A(\s*+)\d++(?=[.)])")
PIECE = 4_096
"""How much text is taken in at once."""
MAX_HELD = 16_384
"""A block that is longer is given out in pieces: it is parsed again with each line that comes."""
_LISTS = frozenset({"bullet_list_open", "ordered_list_open"})
_SINGLE_LINE = frozenset({"heading_open", "hr"})
_ENDED_BY_BLANK = frozenset({"paragraph_open", "table_open", "blockquote_open"})


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of markdown that stands by itself."""

    kind: Literal["text", "code"]
    source: str
    """Markdown, or one line of code without its end."""
    follows: bool = False
    """Whether it belongs to the block before it: no empty line between them."""
    language: str = ""
    """Of code, as it was announced."""


class Blocks:
    """Takes text in as it comes, and gives blocks out as they are done."""

    def __init__(self) -> None:
        self._parser = MarkdownIt("commonmark").enable("table").enable("strikethrough")
        self._begun = ""
        self._fence = ""
        """The mark that ends the code that is open; empty: none is."""
        self._language = ""
        self._follows = False
        self._number: int | None = None
        """Of the next item, in a list that numbers them."""

    @property
    def rest(self) -> Block | None:
        """What has come and may still change."""
        if not self._begun.strip():
            return None
        if self._fence:
            return Block("code", self._begun.rstrip("\n"), self._follows, self._language)
        return Block("text", self._numbered(self._begun), self._follows)

    def feed(self, text: str) -> list[Block]:
        """Take in what came, and return what is done."""
        done: list[Block] = []
        # Each block that is done costs as much as all that has come behind it.
        for start in range(0, len(text), PIECE):
            piece = text[start : start + PIECE]
            self._begun += piece
            done += self._done() if "\n" in piece else ()
            if len(self._begun) > MAX_HELD:
                kept, newline, self._begun = self._begun.rpartition("\n")
                kept, self._begun = (kept, self._begun) if newline else (self._begun, "")
                kind: Literal["text", "code"] = "code" if self._fence else "text"
                done.append(
                    Block(kind, self._numbered(kept), self._follows, self._language if self._fence else "")
                )
                self._follows = True
        return done

    def end(self) -> list[Block]:
        """Return what is left: nothing else will come."""
        done = self.feed("\n") if self._begun else []
        last, self._begun, self._fence = self.rest, "", ""
        return [*done, last] if last is not None else done

    def _done(self) -> Iterator[Block]:
        before = None
        while before != (self._begun, self._fence):
            before = (self._begun, self._fence)
            if self._fence:
                yield from self._code()
            else:
                yield from self._text()

    def _code(self) -> Iterator[Block]:
        while "\n" in self._begun:
            line, _, self._begun = self._begun.partition("\n")
            stripped = line.strip()
            if stripped.startswith(self._fence) and not stripped.strip(self._fence[0]):
                self._fence, self._follows = "", False
                return
            yield Block("code", line.rstrip("\r"), self._follows, self._language)
            self._follows = True

    def _text(self) -> Iterator[Block]:
        """Give out every block but the last; of a list every item but the last."""
        lines = [f"{line}\n" for line in self._begun.split("\n")[:-1]]
        tokens, tops = self._parsed(lines)
        for at, token in enumerate(tops):
            start, stop = token.map or (0, 0)
            is_last = at == len(tops) - 1
            if token.type == "fence" and (opening := _FENCE.match(lines[start])):
                self._fence, self._language = opening["mark"], opening["language"]
                self._follows, self._number = False, None
                self._drop(lines, start + 1)
                return
            if token.type in _LISTS:
                kept = yield from self._items(token, tokens, lines, is_last=is_last)
                if is_last:
                    self._drop(lines, kept)
                    return
            elif not is_last or _is_over(token, lines[stop - 1 :]):
                yield Block("text", "".join(lines[start:stop]).strip("\n"), self._follows)
            else:
                self._drop(lines, start)
                return
            self._follows, self._number = False, None
        self._drop(lines, len(lines))

    def _parsed(self, lines: Sequence[str]) -> tuple[list[Token], list[Token]]:
        """Return the tokens, and those of blocks, up to the first code: what follows it is parsed later."""
        code = next((at for at, line in enumerate(lines) if _FENCE.match(line)), len(lines))
        for end in dict.fromkeys((code + 1, len(lines))):
            tokens = self._parser.parse("".join(lines[:end]))
            tops = [token for token in tokens if token.level == 0 and token.nesting >= 0 and token.map]
            # Code within a list is part of the list.
            if end >= len(lines) or any(token.type == "fence" for token in tops):
                return tokens, tops
        return [], []

    def _items(
        self, token: Token, tokens: Sequence[Token], lines: Sequence[str], *, is_last: bool
    ) -> Generator[Block, None, int]:
        """Give out the items of a list; returns the line that the first one held back begins at."""
        first = tokens.index(token)
        starts: list[int] = []
        for inner in tokens[first + 1 :]:
            if inner.level == 0:
                break
            if inner.type == "list_item_open" and inner.level == 1 and inner.map:
                starts.append(inner.map[0])
        if token.type == "ordered_list_open" and self._number is None:
            self._number = int(token.attrGet("start") or 1)
        stop = (token.map or (0, 0))[1]
        for start, end in zip(starts, [*starts[1:], None], strict=True):
            if end is None and is_last:
                return start
            source = "".join(lines[start : stop if end is None else end]).rstrip("\n")
            yield Block("text", self._numbered(source), self._follows)
            self._follows = True
            if self._number is not None:
                self._number += 1
        return stop

    def _numbered(self, source: str) -> str:
        """Write an item with its own number: alone it would begin to count anew."""
        if self._number is None:
            return source
        return _NUMBER.sub(rf"\g<1>{self._number}", source, count=1)

    def _drop(self, lines: Sequence[str], count: int) -> None:
        self._begun = self._begun[sum(map(len, lines[:count])) :]


def _is_over(token: Token, lines: Sequence[str]) -> bool:
    """Tell whether nothing that comes can become part of the last block."""
    if token.type in _SINGLE_LINE:
        return True
    return token.type in _ENDED_BY_BLANK and bool(lines) and not lines[-1].strip()
