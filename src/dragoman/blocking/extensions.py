"""Skills and apps without `await`: what `McpManager.skills` and `open_app` of the blocking API return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dragoman.blocking.loop_thread import BlockingRunner
    from dragoman.manager.apps import AppProxy as AsyncAppProxy
    from dragoman.manager.skills import Skills as AsyncSkills
    from dragoman.model import App, Part, Skill, ToolResult


class Skills:
    """The skills of the connected servers; as `dragoman.manager.skills.Skills`."""

    def __init__(self, skills: Callable[[], AsyncSkills], runner: BlockingRunner) -> None:
        self._skills = skills
        self._runner = runner

    def servers(self) -> list[str]:
        """Return the connected servers that have skills; this asks none of them."""
        return self._runner.read(lambda: self._skills().servers())

    def all(self, server: str | None = None) -> list[Skill]:
        """Return the listed skills of a server, or of all connected ones; unusable ones have a `problem`."""
        return self._runner.run(lambda: self._skills().all(server))

    def get(self, server: str, uri: str) -> Skill:
        """Return the current entry of one skill, listed or not.

        Raises:
            ServerError: The server has no such skill, or its entry is not valid.
        """
        return self._runner.run(lambda: self._skills().get(server, uri))

    def load(self, server: str, uri: str) -> str:
        """Return the instructions of a skill for a model, after approval and verification.

        Raises:
            CallDeniedError: The skill is not approved.
            ServerError: Its content is not what the server listed.
        """
        return self._runner.run(lambda: self._skills().load(server, uri))

    def read(self, server: str, uri: str, file: str) -> str:
        """Return a file of a loaded skill: its URI, or a path relative to the skill.

        Raises:
            ServerError: The skill is not loaded, does not list the file, or the content is another.
        """
        return self._runner.run(lambda: self._skills().read(server, uri, file))

    def directory(self, server: str, uri: str, folder: str = "") -> list[str]:
        """Return the URIs in a folder of a loaded skill: those that its entry lists.

        Raises:
            ServerError: The skill is not loaded, or the server cannot list the folder of a dynamic skill.
        """
        return self._runner.run(lambda: self._skills().directory(server, uri, folder))

    def approve(self, server: str, uri: str) -> Skill:
        """Approve a skill with its current files.

        Raises:
            ServerError: It is not usable.
        """
        return self._runner.run(lambda: self._skills().approve(server, uri))


class AppProxy:
    """What one page may do: call tools of its own server that are meant for apps, and read its resources."""

    def __init__(self, proxy: AsyncAppProxy, runner: BlockingRunner) -> None:
        self._proxy = proxy
        self._runner = runner

    @property
    def app(self) -> App:
        """The page."""
        return self._proxy.app

    def call(
        self, tool: str, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> ToolResult:
        """Call a tool of the page's own server, by the server's own name for it; a failure is a result."""
        return self._runner.run(lambda: self._proxy.call(tool, arguments, timeout=timeout))

    def read(self, uri: str) -> list[Part]:
        """Read a resource of the page's own server.

        Raises:
            DragomanError: The server does not have it, or does not answer.
            CallDeniedError: The policy does not allow it.
        """
        return self._runner.run(lambda: self._proxy.read(uri))
