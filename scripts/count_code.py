"""Count the files and the lines of code under src/: without blank lines, comments and docstrings.

Usage: python scripts/count_code.py [REVISION …]   (the working tree without one)
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOT_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}


def main(revisions: list[str]) -> None:
    """Print one line for each revision."""
    for revision in revisions or [""]:
        sources = at_revision(revision) if revision else in_tree()
        lines = sum(map(code_lines, sources))
        print(f"{revision or 'working tree':14} {len(sources):4} files {lines:7,} lines of code")


def in_tree() -> list[str]:
    """Return the sources as they are on disk."""
    return [path.read_text("utf-8") for path in sorted((ROOT / "src").rglob("*.py"))]


def at_revision(revision: str) -> list[str]:
    """Return the sources as they are in a commit."""
    names = git("ls-tree", "-r", "--name-only", revision, "src").splitlines()
    return [git("show", f"{revision}:{name}") for name in names if name.endswith(".py")]


def git(*arguments: str) -> str:
    """Return what a git command prints."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def code_lines(source: str) -> int:
    """Return how many lines of a source hold code; a string that stands alone is a docstring."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {
        line
        for token in tokens
        if token.type not in NOT_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
            case _:
                pass
    return len(lines)


if __name__ == "__main__":
    main(sys.argv[1:])
