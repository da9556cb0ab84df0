"""What runs the pages can fail: it sees a wrong line, a wrong exit code, and a configuration with a problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.docs.pages import all_blocks
from tests.docs.running import Reader, matches

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a\nb\n", "a\nb", True),
        ("a\nb\n", "a\nb\nc", False),
        ("a\n…\n", "a\nb\nc", True),
        ("a\n…\nd\n", "a\nb\nc", False),
        ("in … there\n", "in the folder there", True),
        ("in … there\n", "in the folder\nthere", False),
        ("took 5 ms\n", "took 1.2 s", True),
        ("took 5 ms\n", "took 5 MB", False),
        ("a   b\n", "a       b", True),
        ("a b\n", "a  b", False),
        ("4.5 is not a duration\n", "5.5 is not a duration", False),
    ],
)
def test_what_is_shown_is_compared_with_what_is_printed(shown: str, printed: str, *, same: bool) -> None:
    assert matches(shown, printed) is same


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        ("```console\n$ echo no\nyes\n```\n", "the page shows\nyes"),
        ("```console\n$ false\n```\n", "ended with 1"),
        ("```console\n$ true  # exit 3\n```\n", "ended with 0"),
        ("```sh\ntrue\nfalse\n```\n", "`false` ended with 1"),
        ("```python\nraise SystemExit(4)\n```\n", "line 1, python"),
        ("```python\nprint(1)\n```\n\n```text\n2\n```\n", "line 5, text"),
        ('```toml\n[mcp.servers.one]\nargs = ["x"]\n```\n', "line 1, toml"),
        ("```ruby\nputs 1\n```\n", "nothing runs a block of `ruby`"),
    ],
)
def test_a_page_that_is_wrong_fails(page: str, reason: str, tmp_path: Path, home: Path) -> None:
    with pytest.raises(AssertionError) as failed:
        Reader(tmp_path, home).follow(all_blocks(page))
    assert reason in str(failed.value)


def test_a_reader_keeps_folder_variables_and_answers(tmp_path: Path, home: Path) -> None:
    page = """\
```sh
mkdir deep && cd deep
export COLOUR=violet
```

<!-- file: note.txt -->
```text
It is written here.
```

```console
$ cat note.txt && echo $COLOUR
It is written here.
violet
$ printf 'Sure? [y/N]: '; read answer; echo "you said $answer"
Sure? [y/N]: y
you said y
$ printf 'a\\rb\\n'; seq -s , 60
b
1,2,3,…,59,60
```
"""
    Reader(tmp_path, home).follow(all_blocks(page))
    assert (tmp_path / "deep/note.txt").read_text("utf-8") == "It is written here.\n"
