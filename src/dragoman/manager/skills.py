"""Skills (SEP-2640): instructions for agents that servers publish, verified and approved before use.

A skill is known by its server and its URI, never by its name. Nothing of it is read before it is loaded. What
is loaded must have the size and the digest that the server listed, and the frontmatter that was shown; a file
that is not listed is not read. A person approves each skill with its exact list of files: if that changes,
the approval is void. Skills are text of a server for a model, so they are sanitized and name their server.
Fields that ask for rights (`allowed-tools`) have no effect.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import inspect
import json
import re
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from dragoman.errors import CallDeniedError, DragomanError, ServerError, ToolFailedError
from dragoman.model import CallRequest, Skill, SkillFile, ToolDef
from dragoman.storage.files import StoredFile, data_folder
from dragoman.trust.addresses import split_url
from dragoman.trust.sanitizing import for_log, for_model

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping
    from pathlib import Path

    from dragoman.manager.resources import Resources
    from dragoman.model import ApprovalHandler
    from dragoman.server.protocol.session import Session
    from dragoman.trust.limits import Limits

    _Run: TypeAlias = Callable[..., Awaitable[str]]

MAX_FILES = 512
MAX_BYTES = 16 * 2**20
"""The limits of the specification: what every host must accept."""
MAX_LINE = 300
MAX_NAME = 64
MAX_URI = 512
MAX_FRONTMATTER = 16 * 1024
"""Characters of the frontmatter; the specification allows 1,024 for a description."""
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[!#-;=?-\[\]_a-z~]+")
"""No space, line end or quote: a model reads URIs in the system prompt."""
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_FRONTMATTER = re.compile(r"\A---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)


class Skills:
    """The skills of the connected servers."""

    def __init__(
        self,
        resources: Resources,
        *,
        key: Callable[[str], str],
        limits: Callable[[str], Limits],
        approval: ApprovalHandler | None,
        folder: Path | None = None,
    ) -> None:
        """Use the servers of a manager.

        Args:
            resources: Asks servers, and checks what may be read.
            key: Returns the fingerprint of a server's entry.
            limits: Returns the limits of a server.
            approval: Asks a person whether a skill may be loaded.
            folder: Where approvals are kept; the user's data folder by default.
        """
        self._resources = resources
        self._key = key
        self._limits = limits
        self._approval = approval
        self._folder = folder
        self._held: dict[tuple[str, str], Skill] = {}
        """The entries from which skills were loaded."""

    def servers(self) -> list[str]:
        """Return the connected servers that have skills; this asks none of them."""
        return self._resources.skill_servers()

    async def all(self, server: str | None = None) -> list[Skill]:
        """Return the listed skills of a server, or of all connected ones; unusable ones have a `problem`."""
        found: list[Skill] = []
        for name in [server] if server is not None else self._resources.connected():
            try:
                entries = await self._resources.ask(
                    name, lambda session, at=name: self._entries(session, at), "skills"
                )
            except DragomanError:
                if server is not None:
                    raise
                continue
            found += [self._with_approval(read_entry(name, entry)) for entry in entries]
        return found

    async def get(self, server: str, uri: str) -> Skill:
        """Return the current entry of one skill, listed or not.

        Raises:
            ServerError: The server has no such skill, or its entry is not valid.
        """

        async def ask(session: Session) -> dict[str, Any]:
            if session.skill_settings is None:
                msg = f"server `{server}` has no skills"
                raise ServerError(msg, server=server)
            return await session.get_skill(uri)

        skill = self._with_approval(read_entry(server, await self._resources.ask(server, ask, uri)))
        if skill.uri == uri:
            return skill
        # Some servers answer `skills/get` with nothing, and list the skill.
        for listed in await self.all(server):
            if listed.uri == uri:
                return listed
        msg = f"server `{server}` answered with another skill than `{uri}`"
        raise ServerError(msg, server=server)

    async def load(self, server: str, uri: str) -> str:
        """Return the instructions of a skill for a model, after approval and verification.

        Raises:
            CallDeniedError: The skill is not approved.
            ServerError: Its content is not what the server listed.
        """
        skill = await self.get(server, uri)
        self._check_usable(skill)
        await self._permit(skill)
        text = (await self._read(skill, uri)).decode()
        # In a thread, as the cleaning below: the file may have 16 MiB.
        if await asyncio.to_thread(frontmatter_of, text) != dict(skill.frontmatter):
            msg = f"the skill `{uri}` of server `{server}` does not begin with the frontmatter that it lists"
            raise ServerError(msg, server=server, hint="it is not loaded")
        self._held[server, uri] = skill
        files = [one.uri for one in skill.files if one.uri != uri]
        head = f"[skill `{skill.name}` of MCP server `{server}`: text of that server, not of the user]"
        listed = f"\nIts files: {', '.join(for_log(file, MAX_LINE) for file in files)}" if files else ""
        return await asyncio.to_thread(for_model, f"{head}\n{text}{listed}")

    async def read(self, server: str, uri: str, file: str) -> str:
        """Return a file of a loaded skill: its URI, or a path relative to the skill.

        Raises:
            ServerError: The skill is not loaded, does not list the file, or the content is another.
        """
        skill = self._held.get((server, uri))
        if skill is None:
            msg = f"the skill `{uri}` of server `{server}` is not loaded"
            raise ServerError(msg, server=server, hint="load it first")
        wanted = file if "://" in file else f"{skill.root}/{file.removeprefix('./')}"
        text = (await self._read(skill, wanted)).decode("utf-8", "replace")
        return await asyncio.to_thread(for_model, text)

    async def directory(self, server: str, uri: str, folder: str = "") -> list[str]:
        """Return the URIs in a folder of a loaded skill: those that its entry lists.

        Raises:
            ServerError: The skill is not loaded, or the server cannot list the folder of a dynamic skill.
        """
        skill = self._held.get((server, uri))
        if skill is None:
            msg = f"the skill `{uri}` of server `{server}` is not loaded"
            raise ServerError(msg, server=server, hint="load it first")
        place = f"{skill.root}/{folder}".rstrip("/")
        if not skill.is_dynamic:
            return [one.uri for one in skill.files if one.uri.startswith(f"{place}/")]

        async def ask(session: Session) -> list[dict[str, Any]]:
            if (session.skill_settings or {}).get("directoryRead") is not True:
                msg = f"server `{server}` does not list directories"
                raise ServerError(msg, server=server)
            return await session.read_directory(place, self._limits(server))

        found = await self._resources.ask(server, ask, place)
        return [one["uri"] for one in found if isinstance(one.get("uri"), str)]

    async def approve(self, server: str, uri: str) -> Skill:
        """Approve a skill with its current files.

        Raises:
            ServerError: It is not usable.
        """
        skill = await self.get(server, uri)
        self._check_usable(skill)
        await asyncio.to_thread(self._remember, skill)
        return skill.replace(is_approved=True)

    async def _entries(self, session: Session, server: str) -> list[dict[str, Any]]:
        if session.skill_settings is None:
            return []
        return await session.list_skills(self._limits(server))

    async def _permit(self, skill: Skill) -> None:
        if skill.is_approved:
            return
        if self._approval is not None:
            request = CallRequest(
                server=skill.server,
                tool=skill.uri,
                original_name=skill.name,
                arguments={"description": skill.description, "files": [one.uri for one in skill.files]},
                kind="skill",
                reason="a skill of a server tells a model what to do",
            )
            answer = self._approval(request)
            if (await answer if inspect.isawaitable(answer) else answer) is True:
                # A dynamic skill can change at any time, so its approval is for this once.
                if not skill.is_dynamic:
                    await asyncio.to_thread(self._remember, skill)
                return
        msg = f"the skill `{skill.name}` of server `{skill.server}` is not approved"
        hint = f"review it and run `dragoman skills {quote(skill.server)} --approve {quote(skill.uri)}`"
        raise CallDeniedError(msg, tool=skill.uri, server=skill.server, rule="skill", hint=hint)

    async def _read(self, skill: Skill, uri: str) -> bytes:
        """Read a file of a skill from the skill's own server, and verify it."""
        listed = next((one for one in skill.files if one.uri == uri), None)
        if listed is None and not skill.is_dynamic:
            raise _mismatch(skill, uri, "the skill does not list this file")
        await self._resources.permit(uri, skill.server)
        raw = await self._resources.ask(skill.server, lambda session: session.read_resource(uri), uri)
        data = _content(raw, uri)
        if data is None:
            raise _mismatch(skill, uri, "the server sent no such file")
        if len(data) > MAX_BYTES:
            raise _mismatch(skill, uri, "it is larger than 16 MiB")
        if listed is not None:
            if len(data) != listed.size:
                raise _mismatch(skill, uri, f"it has {len(data)} bytes instead of {listed.size}")
            if f"sha256:{hashlib.sha256(data).hexdigest()}" != listed.digest:
                raise _mismatch(skill, uri, "its digest is another")
        return data

    def _check_usable(self, skill: Skill) -> None:
        if skill.problem:
            msg = f"the skill `{skill.uri}` of server `{skill.server}` cannot be used: {skill.problem}"
            raise ServerError(msg, server=skill.server)

    def _with_approval(self, skill: Skill) -> Skill:
        known = self._approvals().get(self._identity(skill))
        return skill.replace(is_approved=known is not None and known == content_hash(skill))

    def _identity(self, skill: Skill) -> str:
        return f"{self._key(skill.server)} {skill.uri}"

    @property
    def _file(self) -> StoredFile[dict[str, str]]:
        path = (self._folder or data_folder()) / "skills.json"
        return StoredFile(path, load=_approvals, dump=partial(json.dumps, indent=1), empty=dict)

    def _approvals(self) -> dict[str, str]:
        return self._file.content() or {}

    def _remember(self, skill: Skill) -> None:
        self._file.change(lambda known: {**known, self._identity(skill): content_hash(skill)})


def _approvals(text: str) -> dict[str, str]:
    raw: object = json.loads(text)
    if not isinstance(raw, dict):
        msg = "it is not a JSON object"
        raise ValueError(msg)  # noqa: TRY004 -- the content of the file is wrong, not a type
    return cast("dict[str, str]", raw)


def content_hash(skill: Skill) -> str:
    """Return what an approval is bound to: the files of a skill with their digests, and its frontmatter."""
    content = [sorted((one.uri, one.digest, one.size) for one in skill.files), dict(skill.frontmatter)]
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def read_entry(server: str, entry: Mapping[str, Any]) -> Skill:
    """Turn a raw entry into a skill; what is wrong with it is its `problem`."""
    uri, raw, listed = entry.get("uri"), entry.get("frontmatter"), entry.get("resources")
    frontmatter = cast("dict[str, Any]", raw) if isinstance(raw, dict) else {}
    name, description = frontmatter.get("name"), frontmatter.get("description")
    files: list[SkillFile] = []
    problem = ""
    if not isinstance(uri, str) or not uri.endswith("/SKILL.md"):
        problem = "its URI does not end with `/SKILL.md`"
    elif len(uri) > MAX_URI or not _URI.fullmatch(uri):
        problem = f"its URI is not valid, or longer than {MAX_URI} characters"
    elif not isinstance(name, str) or not isinstance(description, str):
        problem = "its frontmatter has no name or no description"
    elif len(name) > MAX_NAME or not _NAME.fullmatch(name) or _last_segment(uri) != name:
        problem = f"its name `{for_log(name, 80)}` is not the name of its folder"
    elif isinstance(listed, list):
        files, problem = _files(cast("list[object]", listed), uri)
    elif listed != "dynamic":
        problem = "it lists no files"
    return Skill(
        server=server,
        uri=uri if isinstance(uri, str) else "",
        name=name if isinstance(name, str) else "",
        description=_one_line(description) if isinstance(description, str) else "",
        frontmatter=frontmatter,
        files=tuple(files),
        is_dynamic=listed == "dynamic",
        problem=problem,
    )


def _one_line(text: str) -> str:
    return for_model(" ".join(text[: 8 * MAX_LINE].split()), MAX_LINE)


def _files(listed: list[object], uri: str) -> tuple[list[SkillFile], str]:
    root = uri.removesuffix("/SKILL.md")
    files: list[SkillFile] = []
    for one in listed:
        fields = cast("dict[str, Any]", one) if isinstance(one, dict) else {}
        at, digest, size = fields.get("uri"), fields.get("digest"), fields.get("size")
        if not isinstance(at, str) or not at.startswith(f"{root}/") or ".." in at.split("/"):
            return [], "it lists a file outside of its folder"
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            return [], f"`{for_log(at, 80)}` has no SHA-256 digest"
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            return [], f"`{for_log(at, 80)}` has no size"
        files.append(SkillFile(uri=at, digest=digest, size=size))
    if len({one.uri for one in files}) != len(files) or uri not in {one.uri for one in files}:
        return [], "its list of files is not complete, or has a file twice"
    if len(files) > MAX_FILES or sum(one.size for one in files) > MAX_BYTES:
        return [], f"it has more than {MAX_FILES} files, or more than 16 MiB"
    return files, ""


def _last_segment(uri: str) -> str:
    parts = split_url(uri.removesuffix("/SKILL.md"))
    return "" if parts is None else f"{parts.netloc}{parts.path}".rpartition("/")[2]


def frontmatter_of(text: str) -> dict[str, Any] | None:
    """Return the frontmatter of a `SKILL.md` as JSON has it; `None` if it has none that can be used.

    One with aliases cannot: a few hundred bytes would become gigabytes as JSON.
    """
    import yaml

    from dragoman.config import yaml_nodes

    match = _FRONTMATTER.match(text[:MAX_FRONTMATTER])
    if match is None:
        return None
    try:
        loaded, _ = yaml_nodes.load(match[1], has_aliases=False)
        # As JSON: dates become texts, as servers render them.
        found: object = json.loads(json.dumps(loaded, default=str))
    except (yaml.YAMLError, ValueError, TypeError, RecursionError):  # a key may be a date
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def _content(raw: Mapping[str, Any], uri: str) -> bytes | None:
    for entry in cast("list[object]", raw.get("contents") or []):
        if isinstance(entry, dict):
            content = cast("dict[str, Any]", entry)
            if content.get("uri") != uri:
                continue
            if isinstance(text := content.get("text"), str):
                return text.encode("utf-8", "surrogatepass")
            try:
                return base64.b64decode(str(content.get("blob", "")), validate=True)
            except binascii.Error:
                return None
    return None


def _mismatch(skill: Skill, uri: str, why: str) -> ServerError:
    msg = f"`{uri}` of the skill `{skill.name}` (server `{skill.server}`) is not used: {why}"
    return ServerError(msg, server=skill.server, hint="the skill may have changed: load it again")


def skill_line(skill: Skill) -> str:
    """Return what a model is told about a skill before it loads it."""
    # On one line: a line of its own could pass for one of ours.
    described = " ".join(skill.description.split())
    return f"- {skill.name} ({for_log(skill.uri, None)}, server `{skill.server}`): {described}"


def skill_tools(skills: Skills, servers: Callable[[], Collection[str]] | None = None) -> list[ToolDef]:
    """Return `list_skills`, `load_skill` and `read_skill_file` over the connected servers.

    Args:
        skills: The skills of a manager.
        servers: Returns the servers whose skills may be used; by default all.
    """

    def check(server: str) -> None:
        if servers is not None and server not in servers():
            msg = f"server `{for_log(server, 80)}` has no skills for this agent"
            raise ServerError(msg, server=server, hint="`list_skills` shows the skills")

    async def list_skills(server: str | None = None) -> str:
        if server is not None:
            check(server)
        found = await skills.all(server)
        known = None if servers is None else servers()
        usable = [one for one in found if not one.problem and (known is None or one.server in known)]
        return "\n".join(map(skill_line, usable)) or "no skills"

    async def load_skill(server: str, uri: str) -> str:
        check(server)
        return await skills.load(server, uri)

    async def read_skill_file(server: str, uri: str, file: str) -> str:
        check(server)
        return await skills.read(server, uri, file)

    text = {"type": "string"}
    return [
        _tool(
            "list_skills",
            "List the skills of the connected servers, one line each.",
            {"server": text},
            list_skills,
        ),
        _tool(
            "load_skill",
            "Load the instructions of a skill, by its server and URI as `list_skills` shows them.",
            {"server": text, "uri": text},
            load_skill,
        ),
        _tool(
            "read_skill_file",
            "Read a file of a loaded skill, by its path in the skill.",
            {"server": text, "uri": text, "file": text},
            read_skill_file,
        ),
    ]


def _tool(name: str, description: str, properties: dict[str, Any], func: _Run) -> ToolDef:
    async def run(**arguments: Any) -> str:
        try:
            return await func(**arguments)
        except CallDeniedError:
            raise
        except DragomanError as exc:
            msg = f"`{name}` failed: {exc}"
            raise ToolFailedError(msg, tool=name) from exc

    required = [] if name == "list_skills" else list(properties)
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return ToolDef(
        name=name,
        description=description,
        input_schema=schema,
        func=run,
        # Whether a skill may be loaded is asked where it is loaded.
        annotations={"readOnlyHint": True},
        source="builtin",
    )
