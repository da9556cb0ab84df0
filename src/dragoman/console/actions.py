"""What a person may do in the console: restart, enable, disable and examine servers, approve, cancel tasks.

Nothing here adds a command or changes one. An approval is of exactly what the page has shown: it names its
fingerprint, and nothing is approved if that is another one meanwhile.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Any

from dragoman.console.desk import cleaned
from dragoman.errors import DragomanError, UnknownServerError
from dragoman.struct import Struct
from dragoman.trust.encoding import encoded
from dragoman.visible import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from dragoman.console.desk import Desk
    from dragoman.model import Always, ServerSpec
    from dragoman.trust.approval_store import Approvals, Look


class _Shown(Struct, kw_only=True):
    """An entry of a project as a person has seen it."""

    fingerprint: str
    look: Look


class Actions:
    """The actions of the visitors of one desk."""

    def __init__(self, desk: Desk) -> None:
        """Act on the manager of a desk."""
        self._desk = desk
        self._shown: dict[str, _Shown] = {}
        """The entries of the project that were shown last, by server."""

    async def restart(self, name: str) -> dict[str, Any]:
        """Restart a server."""
        await self._desk.mcp.restart(name)
        return self._state(name)

    async def enable(self, name: str) -> dict[str, Any]:
        """Enable a server until the configuration is read again."""
        await self._desk.mcp.enable(name)
        return self._state(name)

    async def disable(self, name: str) -> dict[str, Any]:
        """Disable a server until the configuration is read again."""
        await self._desk.mcp.disable(name)
        return self._state(name)

    async def doctor(self, name: str) -> dict[str, Any]:
        """Connect to a server once more, and say what is wrong with it and what to do."""
        from dragoman.diagnosis.doctor import diagnose
        from dragoman.server.late_import import late_import_module

        self._desk.mcp.status([name])  # Raises for an unknown name.
        spec = self._desk.parts.supervisors[name].spec
        await late_import_module("dragoman.server.connection")
        found = await diagnose(spec, self._desk.mcp.settings)
        return cleaned(
            {
                "ok": found.ok,
                "cause": found.explanation.cause if found.explanation is not None else "",
                "next_step": found.explanation.next_step if found.explanation is not None else "",
                "hints": list(found.hints),
                "stages": [encoded(stage) for stage in found.stages],
                "stderr": found.stderr.splitlines()[-20:],
            }
        )

    async def trust(self) -> dict[str, Any]:
        """Return what waits for an approval: changed definitions, and entries of the project."""
        mcp = self._desk.mcp
        changes: list[dict[str, Any]] = []
        for name in mcp.status():
            found = mcp.trust.changes(name)
            if found:
                changes.append(
                    {
                        "server": shown(name),
                        "fingerprint": found.fingerprint,
                        "is_withheld": found.is_withheld,
                        "texts": [shown(line) for line in found.texts],
                    }
                )
        looks = await asyncio.to_thread(self._looks) if self._desk.is_operator else []
        self._shown = {one.look.spec.name: one for one in looks if one.look.error is not None}
        return {"changes": changes, "entries": [self._entry(one) for one in looks]}

    def _entry(self, one: _Shown) -> dict[str, Any]:
        from dragoman.trust.approvals import question

        look = one.look
        text = question(look.spec, self._desk.parts.root, look.evidence, look.changes)
        state = "approved" if look.error is None else "new" if look.approval is None else "changed"
        return {
            "server": shown(look.spec.name),
            "state": state,
            "fingerprint": one.fingerprint,
            "text": shown(text),
        }

    def _looks(self) -> list[_Shown]:
        from dragoman.trust.approvals import fingerprint
        from dragoman.trust.layers import in_question

        parts = self._desk.parts
        settings = parts.settings
        found: list[_Shown] = []
        for spec in in_question(settings):
            look = self._approvals().look(spec, parts.root, settings.inputs)
            mark = hashlib.sha256(f"{fingerprint(spec, look.evidence)}".encode()).hexdigest()
            found.append(_Shown(fingerprint=mark, look=look))
        return found

    def _approvals(self) -> Approvals:
        from dragoman.config.load import approvals

        return approvals(env=self._desk.parts.given.env)

    async def approve_changes(self, name: str, fingerprint: str) -> dict[str, Any]:
        """Approve the changed definitions of a server, if they are those that were shown."""
        await self._desk.mcp.trust.approve(name, fingerprint=fingerprint)
        self._desk.feed.touch(name)
        return self._state(name)

    async def approve_entry(self, name: str, fingerprint: str) -> dict[str, Any]:
        """Approve a server of the project exactly as it was shown, and start it.

        Raises:
            DragomanError: It was not shown, or the fingerprint is another one.
        """
        one = self._shown.get(name)
        if one is None or one.fingerprint != fingerprint:
            msg = f"`{shown(name)}` is not what was shown any more"
            raise DragomanError(msg, hint="look at it again")
        # Exactly what was shown, even if a file has changed since.
        approve = self._approvals().approve
        await asyncio.to_thread(approve, one.look.spec, self._desk.parts.root, one.look.evidence)
        del self._shown[name]
        if self._is_in_use(one.look.spec):
            await self._desk.mcp.restart(name)
        else:
            await self._desk.mcp.reload()
        return self._state(name)

    def _is_in_use(self, spec: ServerSpec) -> bool:
        supervisor = self._desk.parts.supervisors.get(spec.name)
        return supervisor is not None and supervisor.spec.origin == spec.origin

    async def answer(self, identifier: str, *, allow: bool, always: Always | None) -> dict[str, Any]:
        """Answer a call that waits in the inbox; with `always`, the rule that was shown is written too.

        Raises:
            DragomanError: The visitor has no inbox, or may only deny; or as `mcp.trust.answer`.
        """
        # The token of a client is held by the program that makes the calls: it must not approve them itself.
        if not self._desk.has_inbox or ((allow or always is not None) and not self._desk.is_operator):
            msg = "only the operator of the program can do this"
            raise DragomanError(msg, hint="answer with `dragoman approvals`, or by the webhook")
        found = await self._desk.mcp.trust.answer(identifier, allow=allow, always=always, by="the console")
        return {"state": found.state, "answered_by": shown(found.answered_by)}

    async def cancel_task(self, task: str) -> dict[str, Any]:
        """Ask a server to cancel a task."""
        await self._desk.mcp.tasks.cancel(task)
        return {"cancelled": True}

    def _state(self, name: str) -> dict[str, Any]:
        self._desk.feed.touch(name)
        try:
            status = self._desk.mcp.status([name])[name]
        except UnknownServerError:
            return {"state": "unknown"}
        return {"state": status.state.value, "tools": status.tools}

    def of_server(self) -> Mapping[str, Callable[[str], Coroutine[Any, Any, dict[str, Any]]]]:
        """Return the actions on one server, by the last part of their path."""
        users = {"restart": self.restart}
        if not self._desk.is_operator:
            return users
        return {**users, "enable": self.enable, "disable": self.disable, "doctor": self.doctor}
