"""Markdown in pieces: however it is cut, the same blocks come out, and what came out never changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dragoman.cli.session.render_turn import Block, Blocks

PAGE = """# Head
One
paragraph.

Before a list:
1. one
1. two
   goes on

   in two parts
1. three

- a
- b
  ```py
  x = 1
  ```

```python
def f():

    return 1
```
| a | b |
|---|---|
| 1 | 2 |

> said
> so

The end"""


def in_pieces(text: str, size: int) -> list[Block]:
    blocks = Blocks()
    found = [block for at in range(0, len(text), size) for block in blocks.feed(text[at : at + size])]
    return found + blocks.end()


def test_a_page_comes_out_block_by_block() -> None:
    assert [(block.source.strip(), block.follows) for block in in_pieces(PAGE, 1)] == [
        ("# Head", False),
        ("One\nparagraph.", False),
        ("Before a list:", False),
        ("1. one", False),
        ("2. two\n   goes on\n\n   in two parts", True),
        ("3. three", True),
        ("- a", False),
        ("- b\n  ```py\n  x = 1\n  ```", True),
        ("def f():", False),
        ("", True),
        ("return 1", True),
        ("| a | b |\n|---|---|\n| 1 | 2 |", False),
        ("> said\n> so", False),
        ("The end", False),
    ]


def test_code_comes_line_by_line_with_its_language_and_an_open_fence_is_no_end() -> None:
    blocks = Blocks()
    assert blocks.feed("~~~ sh x\nls\n```\n") == [
        Block("code", "ls", follows=False, language="sh"),
        Block("code", "```", follows=True, language="sh"),
    ]
    assert blocks.feed("cd") == []
    assert blocks.rest == Block("code", "cd", follows=True, language="sh")
    assert blocks.end() == [Block("code", "cd", follows=True, language="sh")]
    assert blocks.rest is None


def test_what_may_still_change_is_held_back() -> None:
    blocks = Blocks()
    assert blocks.feed("a **bo") == []
    assert blocks.feed("ld** word\nand more\n") == []
    assert blocks.rest == Block("text", "a **bold** word\nand more\n")
    assert [block.source for block in blocks.feed("\n")] == ["a **bold** word\nand more"]
    assert blocks.rest is None


def test_a_list_that_begins_at_another_number_goes_on_from_it() -> None:
    blocks = Blocks()
    assert [block.source for block in blocks.feed("8. a\n8. b\n8. c\n")] == ["8. a", "9. b"]
    assert blocks.rest == Block("text", "10. c\n", follows=True)


LINES = st.sampled_from([*PAGE.splitlines(), "```", "~~~~", "    code", "===", "1) x", "* * *", "<b>", "\t"])


@given(st.lists(LINES, max_size=12).map("\n".join), st.integers(1, 30))
def test_the_blocks_do_not_depend_on_how_the_text_was_cut(text: str, size: int) -> None:
    assert in_pieces(text, size) == in_pieces(text, 1)


@given(st.text(max_size=200))
def test_no_word_is_lost_and_nothing_breaks(text: str) -> None:
    blocks = in_pieces(text, 3)
    kept = "".join(block.source for block in blocks)
    for word in text.split():
        if word.isalpha() and "```" not in text and "~~~" not in text:
            assert word in kept
