"""A skill for coding agents: how to find and call the tools of every server from the shell.

An agent reads the name and the description of a skill with every request, and the rest when a task needs it.
So all servers together cost it a few lines, and their tools nothing until then.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dragoman.errors import ConfigError
from dragoman.model import json_object
from dragoman.storage.files import StoredFile, read_regular, state_folder, write_atomically
from dragoman.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dragoman.model import Settings

NAME = "dragoman"
FILE = "SKILL.md"
SHARED = "agents"
"""The folder that many agents read besides their own."""
FOLDERS = {
    SHARED: "~/.agents/skills",
    "claude-code": "${CLAUDE_CONFIG_DIR:-~/.claude}/skills",
    "cline": "~/.cline/skills",
    "codex": "~/.agents/skills",
    "copilot-cli": "~/.copilot/skills",
    "crush": "~/.config/crush/skills",
    "cursor": "~/.cursor/skills",
    "gemini": "~/.gemini/skills",
    "goose": "~/.config/goose/skills",
    "kiro": "~/.kiro/skills",
    "opencode": "~/.config/opencode/skills",
    "roo": "~/.roo/skills",
    "vscode": "~/.copilot/skills",
    "windsurf": "~/.codeium/windsurf/skills",
}
"""Where each agent looks for skills of the user."""
SHORT = {"claude": "claude-code", "copilot": "copilot-cli"}
"""What people call them."""
MAX_BYTES = 64 * 1024
NAMES_CHARS = 300
"""Characters for the names of servers in the description, which an agent reads with every request."""

_DESCRIPTION = (
    "Find and call the tools of the MCP servers on this machine from the shell. Use it when a task needs a "
    "service, an application or data that none of your own tools reaches{servers}."
)
_TEXT = """\
---
name: {name}
description: {description}
---

# MCP tools from the shell

`{program}` starts the servers, checks arguments, and asks the user where a rule says so.

1. Find tools by what they do; two or three phrases find more than one:

   ```sh
   {program} tools --search "TASK" --json
   ```

   `found` has `server`, `tool`, `description` and `signature`, the best first.

2. Look at the parameters if the signature is not enough:

   ```sh
   {program} tools SERVER --schema --json
   ```

3. Call the tool, with arguments by name or as one JSON object:

   ```sh
   {program} call SERVER TOOL NAME=VALUE
   {program} call SERVER TOOL '{{"NAME": "VALUE"}}' --json
   ```

   Several words in a value need quotes: `'query=two words'`. With `--json`, `success`, `text` and
   `structured` say what came back. An error names the argument that is wrong: correct it, and call again.

Servers stay running between calls once the daemon runs:

```sh
{program} daemon start
```

If a server is missing or broken:

```sh
{program} status --json
```

Never call a tool that changes something only to try it out. If a call is denied or needs the user's approval,
tell the user; do not look for a way around it.
"""


class WrittenSkill(Struct, kw_only=True):
    """One file of the skill."""

    agents: Sequence[str]
    """Whose folder it is in."""
    path: Path
    outcome: Literal["written", "unchanged", "removed"]


def skill_text(program: str, settings: Settings) -> str:
    """Return the skill.

    Args:
        program: What starts this program in a shell.
        settings: The configuration. Only servers of the user are named: the name of a project's server is a
            stranger's text.
    """
    ours = (spec for spec in settings.servers if spec.origin.scope in ("user", "system"))
    own = [spec.name for spec in ours if spec.enabled]
    shown: list[str] = []
    for name in own:
        if sum(map(len, shown)) + len(name) + 2 * len(shown) > NAMES_CHARS:
            break
        if name.isprintable() and not {'"', "\\", "`"} & set(name):
            shown.append(name)
    more = " and more" if len(shown) < len(own) else ""
    about = f": {', '.join(shown)}{more}" if shown else ""
    description = json.dumps(_DESCRIPTION.format(servers=about), ensure_ascii=False)
    return _TEXT.format(name=NAME, program=program, description=description)


def agents_here() -> list[str]:
    """Return the agents that are on this machine, by their folders; the shared folder if there are none."""
    found = [name for name in FOLDERS if name != SHARED and _folder(name).parent.is_dir()]
    return found or [SHARED]


def write_skill(agents: Iterable[str], text: str) -> list[WrittenSkill]:
    """Write the skill for these agents; a file that is as it should be stays untouched.

    Raises:
        ConfigError: A file was not written by this program, or was changed since; nothing is written then.
    """
    places = _places(agents)
    written = _written().content() or {}
    for path in places:
        now = _read(path)
        if now is not None and now != text and _digest(now) != written.get(str(path)):
            msg = f"`{path}` is not a file that `dragoman install --skill` has written, or was changed since"
            raise ConfigError(msg, source=str(path), hint="move it away, and run the command again")
    found: list[WrittenSkill] = []
    for path, names in places.items():
        is_new = _read(path) != text
        if is_new:
            _write(path, text)
        found.append(WrittenSkill(agents=names, path=path, outcome="written" if is_new else "unchanged"))
    _written().change(lambda old: {**old, **{str(path): _digest(text) for path in places}})
    return found


def remove_skill(agents: Iterable[str] = ()) -> list[WrittenSkill]:
    """Remove the files that `write_skill` has written, for these agents or for all; changed ones stay.

    Raises:
        ConfigError: A file has been changed since it was written; nothing is removed then.
    """
    written = _written().content() or {}
    places = _places(agents) or {Path(path): () for path in written}
    mine = {path: names for path, names in places.items() if str(path) in written}
    for path in mine:
        now = _read(path)
        if now is not None and _digest(now) != written[str(path)]:
            msg = f"`{path}` has been changed since `dragoman install --skill` wrote it"
            raise ConfigError(msg, source=str(path), hint="remove it yourself")
    for path in mine:
        path.unlink(missing_ok=True)
        if path.parent.is_dir() and not any(path.parent.iterdir()):
            path.parent.rmdir()
    gone = {str(path) for path in mine}
    _written().change(lambda old: {path: digest for path, digest in old.items() if path not in gone})
    return [WrittenSkill(agents=names, path=path, outcome="removed") for path, names in mine.items()]


def _places(agents: Iterable[str]) -> dict[Path, list[str]]:
    """Return the file for each agent; several may share one."""
    found: dict[Path, list[str]] = {}
    for name in dict.fromkeys(agents):
        found.setdefault(_folder(name) / NAME / FILE, []).append(name)
    return found


def _folder(agent: str) -> Path:
    text = FOLDERS[agent]
    if text.startswith("${"):
        variable, _, rest = text.removeprefix("${").partition(":-")
        usual, _, rest = rest.partition("}")
        text = (os.environ.get(variable) or usual) + rest
    return Path(text).expanduser()


def _read(path: Path) -> str | None:
    if path.is_symlink():
        return ""  # It belongs to who made the link, wherever it leads.
    try:
        return read_regular(path, MAX_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    except OSError as exc:
        msg = f"the file cannot be read: {exc.strerror}"
        raise ConfigError(msg, source=str(path)) from None


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode())
    except OSError as exc:
        msg = f"the file cannot be written: {exc.strerror}"
        raise ConfigError(msg, source=str(path)) from None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _written() -> StoredFile[dict[str, str]]:
    """Return the hashes of the files that were written, by path."""
    return StoredFile(state_folder() / "installed" / "skills.json", _load, json.dumps, dict)


def _load(text: str) -> dict[str, str]:
    return {path: digest for path, digest in json_object(json.loads(text)).items() if isinstance(digest, str)}
