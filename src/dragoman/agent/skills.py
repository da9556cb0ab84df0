"""The skills that a model is told of: a name and one line each; it loads one with a tool when it needs it.

Servers are asked for their list once, when a question finds them connected. Loading, approval and
verification belong to `dragoman.manager.skills`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from dragoman.errors import DragomanError
from dragoman.manager.skills import skill_line, skill_tools

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from dragoman.manager.skills import Skills
    from dragoman.model import Skill, ToolDef

logger = logging.getLogger("dragoman")

LIST_SECONDS = 5.0
"""How long a question waits for the lists of skills."""
MAX_SHOWN = 40
"""Skills that the model is told of at once; it can list the others."""
SKILL_TOOLS = frozenset({"list_skills", "load_skill", "read_skill_file"})


class SkillOffer:
    """The skills for one agent."""

    def __init__(self, skills: Skills, visible: Callable[[], Collection[str] | None]) -> None:
        """Offer skills.

        Args:
            skills: The skills of a manager.
            visible: Returns the servers that the agent may see; `None` for all.
        """
        self._skills = skills
        self._visible = visible
        self._asked: set[str] = set()

    def tools(self) -> list[ToolDef]:
        """Return the tools that list, load and read skills."""
        return skill_tools(self._skills, self._servers)

    async def find(self) -> str:
        """Return the lines about skills of servers that were not asked yet; empty if there are none."""
        new = [server for server in self._servers() if server not in self._asked]
        self._asked.update(new)
        if not new:
            return ""
        found = [skill for skills in await asyncio.gather(*map(self._list, new)) for skill in skills]
        usable = [skill for skill in found if not skill.problem]
        lines = [skill_line(skill) for skill in usable[:MAX_SHOWN]]
        if len(usable) > MAX_SHOWN:
            lines.append(f"and {len(usable) - MAX_SHOWN} more: `list_skills` shows them")
        return "\n".join(lines)

    def _servers(self) -> list[str]:
        visible = self._visible()
        return [server for server in self._skills.servers() if visible is None or server in visible]

    async def _list(self, server: str) -> list[Skill]:
        try:
            async with asyncio.timeout(LIST_SECONDS):
                return await self._skills.all(server)
        except (DragomanError, TimeoutError) as exc:
            logger.warning("%s: skills that cannot be listed are not offered: %s", server, exc)
            return []
