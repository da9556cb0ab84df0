"""Tasks with several steps: as calls that a model makes itself, and as a program."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FILES = 25
LINES = 150
CHAIN = 16
COMMITS = 12
LEVELS = ("INFO", "WARN", "ERROR")
USERS = ("ada", "bob", "eve", "kim")
ZONES = ("Europe/Rome", "Asia/Tokyo", "America/New_York", "Australia/Sydney", "Africa/Cairo", "Asia/Kolkata")

Steps = "Generator[list[tuple[str, dict[str, Any]]], list[str], object]"


@dataclass(frozen=True)
class Task:
    """One task."""

    question: str
    steps: Callable[[str], Any]
    """Yields the calls of a turn, gets their texts, and returns the answer."""
    program: str
    """`ROOT` stands for the folder."""


def fill(root: Path) -> None:
    """Write the files and the repository that the tasks are about."""
    logs = root / "logs"
    logs.mkdir()
    for file in range(FILES):
        lines = [
            f"{n:03} {LEVELS[(n * 7 + file) % 3]} {USERS[(n + file * 3) % 4]} took {(n * file) % 97} ms for /page/{n % 11}"
            for n in range(LINES)
        ]
        (logs / f"day{file:02}.log").write_text("\n".join(lines) + "\n")
    chain = root / "chain"
    chain.mkdir()
    for step in range(CHAIN):
        filler = "\n".join(f"note {n} of step {step}: nothing to see here" for n in range(60))
        text = f"value: {step * step + 3}\n{filler}\nnext: {(step + 5) % CHAIN if step else 5}.txt\n"
        (chain / f"{step}.txt").write_text(text)
    deep = root / "deep"
    for level in range(8):
        deep = deep / f"level{level}"
        deep.mkdir(parents=True)
        for other in range(30):
            (deep / f"empty{other}.txt").write_text("")
    (deep / "treasure.txt").write_text("gold\n")
    repo = root / "repo"
    repo.mkdir()

    def git(*arguments: str, **env: str) -> None:
        names = {"GIT_AUTHOR_NAME": "Ada", "GIT_AUTHOR_EMAIL": "a@x", "GIT_COMMITTER_NAME": "Ada"}
        names |= {"GIT_COMMITTER_EMAIL": "a@x", **env}
        subprocess.run(
            ["git", *arguments], cwd=repo, check=True, capture_output=True, env={**os.environ, **names}
        )

    git("init", "-q", "-b", "main")
    for number in range(COMMITS):
        (repo / f"file{number % 5}.py").write_text("\n".join(f"x{n} = {n * number}" for n in range(120)))
        git("add", "-A")
        git("commit", "-q", "-m", f"change {number}", GIT_AUTHOR_NAME=USERS[number % 4])


def _content(text: str) -> str:
    return text


# ── Loops over files

_LIST = (
    "names = [line.split()[-1] for line in fs.list_directory(path=ROOT + '/logs')['content'].splitlines()]\n"
)
_READ = "texts = {name: fs.read_text_file(path=ROOT + '/logs/' + name)['content'] for name in names}\n"
_ROWS = "rows = [line.split() for text in texts.values() for line in text.splitlines()]\n"


def _over_logs(judge: Callable[[dict[str, str]], object]) -> Callable[[str], Any]:
    def steps(root: str) -> Any:
        (listed,) = yield [("mcp_fs_list_directory", {"path": f"{root}/logs"})]
        names = [line.split()[-1] for line in listed.splitlines()]
        read = yield [("mcp_fs_read_text_file", {"path": f"{root}/logs/{name}"}) for name in names]
        return judge(dict(zip(names, read, strict=True)))

    return steps


def _rows(texts: dict[str, str]) -> list[list[str]]:
    return [line.split() for text in texts.values() for line in text.splitlines()]


def _loop(question: str, judge: Callable[[dict[str, str]], object], expression: str) -> Task:
    return Task(question, _over_logs(judge), f"{_LIST}{_READ}{_ROWS}print({expression})")


LOOPS = {
    "errors": _loop(
        "How many ERROR lines do the logs have?",
        lambda texts: sum(row[1] == "ERROR" for row in _rows(texts)),
        "sum(row[1] == 'ERROR' for row in rows)",
    ),
    "total time": _loop(
        "How many milliseconds did all requests in the logs take?",
        lambda texts: sum(int(row[4]) for row in _rows(texts)),
        "sum(int(row[4]) for row in rows)",
    ),
    "slowest": _loop(
        "What was the slowest request, in milliseconds?",
        lambda texts: max(int(row[4]) for row in _rows(texts)),
        "max(int(row[4]) for row in rows)",
    ),
    "users": _loop(
        "Which users are in the logs?",
        lambda texts: " ".join(sorted({row[2] for row in _rows(texts)})),
        "' '.join(sorted({row[2] for row in rows}))",
    ),
    "busiest user": _loop(
        "Which user made most requests with WARN?",
        lambda texts: max(
            sorted(USERS), key=Counter(r[2] for r in _rows(texts) if r[1] == "WARN").__getitem__
        ),
        "max(sorted({row[2] for row in rows}), key=lambda user: sum(r[2] == user and r[1] == 'WARN' for r in rows))",
    ),
    "pages": _loop(
        "How many different pages do the logs name?",
        lambda texts: len({row[-1] for row in _rows(texts)}),
        "len({row[-1] for row in rows})",
    ),
    "worst day": _loop(
        "Which log has the largest total time?",
        lambda texts: max(
            texts, key=lambda name: sum(int(line.split()[4]) for line in texts[name].splitlines())
        ),
        "max(texts, key=lambda name: sum(int(line.split()[4]) for line in texts[name].splitlines()))",
    ),
    "lines": _loop(
        "How many lines do the logs have in all?",
        lambda texts: len(_rows(texts)),
        "len(rows)",
    ),
    "errors of eve": _loop(
        "How many ERROR lines are about eve?",
        lambda texts: sum(row[1:3] == ["ERROR", "eve"] for row in _rows(texts)),
        "sum(row[1:3] == ['ERROR', 'eve'] for row in rows)",
    ),
    "mean": _loop(
        "What is the mean time of a request, rounded down?",
        lambda texts: sum(int(row[4]) for row in _rows(texts)) // len(_rows(texts)),
        "sum(int(row[4]) for row in rows) // len(rows)",
    ),
}

# ── Chains: each call needs the one before


def _follow(judge: Callable[[list[str]], object], start: str, most: int) -> Callable[[str], Any]:
    def steps(root: str) -> Any:
        texts: list[str] = []
        name = start
        for _ in range(most):
            (text,) = yield [("mcp_fs_read_text_file", {"path": f"{root}/chain/{name}"})]
            texts.append(text)
            name = next(line for line in text.splitlines() if line.startswith("next: ")).removeprefix(
                "next: "
            )
        return judge(texts)

    return steps


def _values(texts: list[str]) -> list[int]:
    return [int(text.splitlines()[0].removeprefix("value: ")) for text in texts]


def _chain(
    question: str, judge: Callable[[list[str]], object], expression: str, start: str, most: int
) -> Task:
    program = (
        f"name = '{start}'\nvalues = []\nfor _ in range({most}):\n"
        "    text = fs.read_text_file(path=ROOT + '/chain/' + name)['content']\n"
        "    lines = text.splitlines()\n"
        "    values.append(int(lines[0].split()[1]))\n"
        "    name = [line for line in lines if line.startswith('next: ')][0].split()[1]\n"
        f"print({expression})"
    )
    return Task(question, _follow(judge, start, most), program)


def _descend(root: str) -> Any:
    path = f"{root}/deep"
    while True:
        (listed,) = yield [("mcp_fs_list_directory", {"path": path})]
        folders = [line.split()[-1] for line in listed.splitlines() if line.startswith("[DIR]")]
        if not folders:
            break
        path += f"/{folders[0]}"
    (text,) = yield [("mcp_fs_read_text_file", {"path": f"{path}/treasure.txt"})]
    return text.strip()


CHAINS = {
    "follow all": _chain(
        "Follow the notes from 0.txt: what is the sum of the values?",
        lambda t: sum(_values(t)),
        "sum(values)",
        "0.txt",
        CHAIN,
    ),
    "follow from 3": _chain(
        "Follow ten notes from 3.txt: which is the largest value?",
        lambda t: max(_values(t)),
        "max(values)",
        "3.txt",
        10,
    ),
    "follow from 7": _chain(
        "Follow twelve notes from 7.txt: what is the last value?",
        lambda t: _values(t)[-1],
        "values[-1]",
        "7.txt",
        12,
    ),
    "follow from 1": _chain(
        "Follow fourteen notes from 1.txt: list the odd values.",
        lambda t: [v for v in _values(t) if v % 2],
        "[v for v in values if v % 2]",
        "1.txt",
        14,
    ),
    "descend": Task(
        "What is in the treasure at the bottom of the folders?",
        _descend,
        (
            "path = ROOT + '/deep'\nwhile True:\n"
            "    listed = fs.list_directory(path=path)['content'].splitlines()\n"
            "    folders = [line.split()[-1] for line in listed if line.startswith('[DIR]')]\n"
            "    if not folders:\n        break\n    path += '/' + folders[0]\n"
            "print(fs.read_text_file(path=path + '/treasure.txt')['content'].strip())"
        ),
    ),
}

# ── Commits


def _hashes(text: str) -> list[str]:
    found = [line.split()[1].strip("'\"") for line in text.splitlines() if line.startswith("Commit: ")]
    return [one[:40] for one in found]


def _shown(judge: Callable[[list[str]], object]) -> Callable[[str], Any]:
    def steps(root: str) -> Any:
        repo = f"{root}/repo"
        (log,) = yield [("mcp_git_git_log", {"repo_path": repo, "max_count": 50})]
        texts = yield [("mcp_git_git_show", {"repo_path": repo, "revision": one}) for one in _hashes(log)]
        return judge(texts)

    return steps


_COMMITS = (
    "log = git.git_log(repo_path=ROOT + '/repo', max_count=50)\n"
    "hashes = [line.split()[1].strip(\"'\\\"\")[:40] for line in log.splitlines() if line.startswith('Commit: ')]\n"
    "texts = [git.git_show(repo_path=ROOT + '/repo', revision=one) for one in hashes]\n"
)
COMMITTED = {
    "added lines": Task(
        "How many lines were added in all commits?",
        _shown(lambda texts: sum(line.startswith("+x") for text in texts for line in text.splitlines())),
        f"{_COMMITS}print(sum(line.startswith('+x') for text in texts for line in text.splitlines()))",
    ),
    "removed lines": Task(
        "How many lines were removed in all commits?",
        _shown(lambda texts: sum(line.startswith("-x") for text in texts for line in text.splitlines())),
        f"{_COMMITS}print(sum(line.startswith('-x') for text in texts for line in text.splitlines()))",
    ),
    "touched": Task(
        "How many commits touched file3.py?",
        _shown(lambda texts: sum("file3.py" in text for text in texts)),
        f"{_COMMITS}print(sum('file3.py' in text for text in texts))",
    ),
    "largest": Task(
        "How many lines has the largest commit?",
        _shown(
            lambda texts: max(sum(line[:2] in ("+x", "-x") for line in text.splitlines()) for text in texts)
        ),
        f"{_COMMITS}print(max(sum(line[:2] in ('+x', '-x') for line in text.splitlines()) for text in texts))",
    ),
}

# ── Small results: clocks and laws


def _clocks(judge: Callable[[dict[str, str]], object]) -> Callable[[str], Any]:
    def steps(_root: str) -> Any:
        asked = [{"source_timezone": "UTC", "time": "12:00", "target_timezone": zone} for zone in ZONES]
        texts = yield [("mcp_time_convert_time", one) for one in asked]
        return judge(
            {zone: json.loads(text)["time_difference"] for zone, text in zip(ZONES, texts, strict=True)}
        )

    return steps


_CLOCKS = (
    f"found = {{zone: time_server.convert_time(source_timezone='UTC', time='12:00', "
    f"target_timezone=zone)['time_difference'] for zone in {ZONES!r}}}\n"
)


def _laws(judge: Callable[[list[Any]], object]) -> Callable[[str], Any]:
    def steps(_root: str) -> Any:
        texts = yield [("mcp_law_search_statutes", {"query": one, "limit": 5}) for one in WORDS]
        return judge([one for text in texts for one in _results(text)])

    return steps


def _results(text: str) -> list[Any]:
    return json.JSONDecoder().raw_decode(text[text.index("{") :])[0]["results"]


WORDS = ("deposit", "rent", "notice", "wage", "holiday", "contract", "working time", "termination", "repair")
_LAWS = (
    f"found = [one for word in {WORDS!r} for one in law.search_statutes(query=word, limit=5)['results']]\n"
)
SMALL = {
    "farthest": Task(
        "Which of these zones is farthest ahead of UTC?",
        _clocks(lambda found: max(found, key=lambda zone: float(found[zone].rstrip("h")))),
        f"{_CLOCKS}print(max(found, key=lambda zone: float(found[zone].rstrip('h'))))",
    ),
    "half hours": Task(
        "Which of these zones are not whole hours from UTC?",
        _clocks(lambda found: [zone for zone in found if float(found[zone].rstrip("h")) % 1]),
        f"{_CLOCKS}print([zone for zone in found if float(found[zone].rstrip('h')) % 1])",
    ),
    "articles": Task(
        "How many different articles do the searches find?",
        _laws(lambda found: len({(one["law"], one["article"]) for one in found})),
        f"{_LAWS}print(len({{(one['law'], one['article']) for one in found}}))",
    ),
    "laws": Task(
        "Which laws do the searches find?",
        _laws(lambda found: sorted({one["law"] for one in found})),
        f"{_LAWS}print(sorted({{one['law'] for one in found}}))",
    ),
    "longest article": Task(
        "How long is the longest article that the searches find?",
        _laws(lambda found: max(len(one["text"]) for one in found)),
        f"{_LAWS}print(max(len(one['text']) for one in found))",
    ),
}

TASKS = {**LOOPS, **CHAINS, **COMMITTED, **SMALL}
