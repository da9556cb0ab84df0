"""What `McpManager` has on its facets, without `await`.

Written by scripts/write_blocking.py from the async classes; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.blocking.loop_thread import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from dragoman.blocking.loop_thread import BlockingRunner
    from dragoman.manager.apps import AppProxy as AsyncAppProxy
    from dragoman.manager.apps import Apps as AsyncApps
    from dragoman.manager.logins import Logins as AsyncLogins
    from dragoman.manager.session import SessionRequests as AsyncSessionRequests
    from dragoman.manager.skills import Skills as AsyncSkills
    from dragoman.manager.subscriptions import LogLevel
    from dragoman.manager.tasks import Tasks as AsyncTasks
    from dragoman.manager.trust import TrustDecisions as AsyncTrustDecisions
    from dragoman.model import Always, App, Continuation, Part, PendingApproval, Skill, Task, ToolResult
    from dragoman.trust.pin_checker import Changes


class Logins:
    """The logins of a person to the servers."""

    def __init__(self, it: AsyncLogins, runner: BlockingRunner) -> None:
        self._runner = runner
        self._async = it

    def login(
        self,
        name: str,
        *,
        open_url: Callable[[str], Any] | None = None,
        paste: Callable[[], str] | None = None,
        on_refused: Callable[[str], Any] | None = None,
        token: Callable[[], str] | None = None,
    ) -> None:
        """Log a person in to a server; wait until it is ready or has failed.

        Args:
            name: The server.
            open_url: Called with the URL that the person has to open.
            paste: Asks the person for the URL that the browser ended at; for machines without a browser.
            on_refused: Called with the reason why a pasted URL is not usable, before asking again.
            token: Asks the person for a token, if the server offers no login by OAuth.

        Raises:
            AuthRequiredError: The login was refused or not completed.
            ConfigError: The server does not use OAuth.
        """
        self._runner.run(
            lambda: self._async.login(
                name,
                open_url=open_url and in_thread(open_url),
                paste=paste and in_thread(paste),
                on_refused=on_refused,
                token=token and in_thread(token),
            )
        )

    def begin(self, name: str) -> str:
        """Begin a login to a server, and return the address to send the person's browser to.

        The login goes on by itself until the person is done, for ten minutes at most. It ends with `complete`
        if the application is the `redirect_uri` of the server's `auth`, and otherwise at a page on this
        machine. Calls made meanwhile say that the server requires login.

        Raises:
            UnknownServerError: No server has this name.
            ConfigError: The server does not use OAuth.
            AuthRequiredError: The server, or its authorization server, refuses.
        """
        return self._runner.run(lambda: self._async.begin(name))

    def complete(self, address: str) -> str:
        """Go on with the login that ended at an address; return the server once it is ready or has failed.

        Call it on the manager of the user who is signed in to the application, so that the login of another
        person is not accepted.

        Args:
            address: The whole address of the request to the `redirect_uri`, with its `code` and `state`.

        Raises:
            DragomanError: No login of this manager waits for it.
            AuthRequiredError: The login was refused.
        """
        return self._runner.run(lambda: self._async.complete(address))

    def logout(self, name: str) -> bool:
        """Forget the login of a server; return whether there was one."""
        return self._runner.run(lambda: self._async.logout(name))


class TrustDecisions:
    """What a person decides: about calls that wait in the inbox, and about the definitions of servers."""

    def __init__(self, it: AsyncTrustDecisions, runner: BlockingRunner) -> None:
        self._runner = runner
        self._async = it

    def pending(self) -> list[PendingApproval]:
        """Return the calls that wait, the oldest first; also those of the user's other programs.

        It reads a file: a program with a busy event loop calls it in a thread.

        Raises:
            DragomanError: The inbox cannot be read.
        """
        return self._runner.read(self._async.pending)

    def answer(
        self, identifier: str, *, allow: bool, always: Always | None = None, by: str = ""
    ) -> PendingApproval:
        """Answer a call that waits; the first answer counts.

        Args:
            identifier: The `id` of the entry.
            allow: Whether it may be made; only a literal `True` is a yes.
            always: Also write the rule of the entry that covers the tool, these arguments or the server.
            by: Who answers, for the other side and for the record; the program by default.

        Returns:
            The entry as it was shown, with the answer.

        Raises:
            ApprovalError: The entry is unknown, or was decided already: the error names by whom.
            ConfigError: The rule cannot be written; the answer counts, and holds until this program ends.
        """
        return self._runner.run(lambda: self._async.answer(identifier, allow=allow, always=always, by=by))

    def changes(self, name: str) -> Changes:
        """Return how a server's definitions differ from their pins; empty until they were checked.

        Its `fingerprint` approves exactly these changes: `approve(name, fingerprint=…)`.

        Raises:
            UnknownServerError: No server has this name.
        """
        return self._runner.read(lambda: self._async.changes(name))

    def approve(
        self,
        name: str,
        *,
        tools: Iterable[str] | None = None,
        in_project: bool = False,
        fingerprint: str | None = None,
    ) -> None:
        """Pin a server's definitions as the last `DefinitionsChanged` or `changes` reported them.

        Args:
            name: The server.
            tools: Which of its tools to pin, by the server's own names; by default everything.
            in_project: Whether to write the project's `dragoman.lock` too, even if it does not exist yet.
            fingerprint: The one of the event, or of `changes`, that was shown to a person; needed if there
                are changes. If the definitions have changed since, nothing is approved.

        Raises:
            UnknownServerError: No server has this name.
            DragomanError: The server has not listed anything, the fingerprint is missing, its definitions
                have changed since they were shown, or a lock file cannot be written.
        """
        self._runner.run(
            lambda: self._async.approve(name, tools=tools, in_project=in_project, fingerprint=fingerprint)
        )


class Tasks:
    """Calls that servers go on with after their answer, and calls that wait for the answers of a person."""

    def __init__(self, it: AsyncTasks, runner: BlockingRunner) -> None:
        self._runner = runner
        self._async = it

    @property
    def keeps_questions(self) -> bool:
        """Whether hosts should call with `on_input="return"`: questions may wait, and no handler answers."""
        return self._async.keeps_questions

    def list(self) -> Sequence[Task]:
        """Return the tasks that servers of this manager still work on, also those of earlier programs."""
        return self._runner.run(self._async.list)

    def resume(
        self,
        what: Task | Continuation | str,
        answers: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> ToolResult:
        """Wait for the result of a task, or go on with a call that asked a person; any process can do it.

        Args:
            what: A task or its id, or a continuation.
            answers: For a continuation: the answers by key, as `elicitation/create` is answered:
                `{"action": "accept", "content": {…}}`. If some are missing, the result has the rest of the
                questions, and nothing is sent: a host can ask one question at a time.
            timeout: Seconds, after which a task is cancelled; unlimited by default.

        Raises:
            DragomanError: The manager is not started, the task is unknown, its server is not the one that it
                began with, or the continuation was changed, used already, or answered in a wrong way. Nothing
                is sent then.
        """
        return self._runner.run(lambda: self._async.resume(what, answers, timeout=timeout))

    def cancel(self, task: Task | str) -> None:
        """Ask a server to cancel a task, and forget the task.

        Raises:
            DragomanError: The task is unknown, or its server does not answer.
        """
        self._runner.run(lambda: self._async.cancel(task))


class SessionRequests:
    """What few applications ask of a session: completions, the level of log messages, roots."""

    def __init__(self, it: AsyncSessionRequests, runner: BlockingRunner) -> None:
        self._runner = runner
        self._async = it

    def complete(self, ref: Mapping[str, str], argument: str, value: str, *, server: str) -> list[str]:
        """Propose values for an argument of a prompt (`{"name": …}`) or of a template (`{"uri": …}`).

        Raises:
            CallDeniedError: The policy does not allow that prompt or template.
            DragomanError: The server does not answer, or `ref` is of another form.
        """
        return self._runner.run(lambda: self._async.complete(ref, argument, value, server=server))

    def set_log_level(self, level: LogLevel, server: str | None = None) -> None:
        """Set the lowest level of the log messages that one server, or all, send to `Handlers.logging`.

        Raises:
            UnknownServerError: No server has this name.
            DragomanError: This is not a level.
        """
        self._runner.run(lambda: self._async.set_log_level(level, server))

    def set_roots(self, roots: Iterable[str], server: str | None = None) -> None:
        """Set the directories, by their URIs, that one server, or all, may use.

        A server that was connected while there were no roots gets them with its next connection.

        Raises:
            UnknownServerError: No server has this name.
            DragomanError: One of them is not a URI.
        """
        self._runner.run(lambda: self._async.set_roots(roots, server))


class Skills:
    """The skills of the connected servers."""

    def __init__(self, it: AsyncSkills, runner: BlockingRunner) -> None:
        self._runner = runner
        self._async = it

    def servers(self) -> list[str]:
        """Return the connected servers that have skills; this asks none of them."""
        return self._runner.read(self._async.servers)

    def all(self, server: str | None = None) -> list[Skill]:
        """Return the listed skills of a server, or of all connected ones; unusable ones have a `problem`."""
        return self._runner.run(lambda: self._async.all(server))

    def get(self, server: str, uri: str) -> Skill:
        """Return the current entry of one skill, listed or not.

        Raises:
            ServerError: The server has no such skill, or its entry is not valid.
        """
        return self._runner.run(lambda: self._async.get(server, uri))

    def load(self, server: str, uri: str) -> str:
        """Return the instructions of a skill for a model, after approval and verification.

        Raises:
            CallDeniedError: The skill is not approved.
            ServerError: Its content is not what the server listed.
        """
        return self._runner.run(lambda: self._async.load(server, uri))

    def read(self, server: str, uri: str, file: str) -> str:
        """Return a file of a loaded skill: its URI, or a path relative to the skill.

        Raises:
            ServerError: The skill is not loaded, does not list the file, or the content is another.
        """
        return self._runner.run(lambda: self._async.read(server, uri, file))

    def directory(self, server: str, uri: str, folder: str = "") -> list[str]:
        """Return the URIs in a folder of a loaded skill: those that its entry lists.

        Raises:
            ServerError: The skill is not loaded, or the server cannot list the folder of a dynamic skill.
        """
        return self._runner.run(lambda: self._async.directory(server, uri, folder))

    def approve(self, server: str, uri: str) -> Skill:
        """Approve a skill with its current files.

        Raises:
            ServerError: It is not usable.
        """
        return self._runner.run(lambda: self._async.approve(server, uri))


class Apps:
    """The pages that servers have for their tools; `McpManager.apps` is this."""

    def __init__(self, it: AsyncApps, runner: BlockingRunner) -> None:
        self._runner = runner
        self._async = it

    def open(self, result: ToolResult | App) -> AppProxy:
        """Read the page of a result's app; return it with the calls that it may make.

        Args:
            result: A result with an `app`, or the app itself.

        Raises:
            DragomanError: The result has no app, the server does not answer, or the resource is not a page.
            CallDeniedError: The policy does not allow reading it.
        """
        return AppProxy(self._runner.run(lambda: self._async.open(result)), self._runner)


class AppProxy:
    """What one page may do: call tools of its own server that are meant for apps, and read its resources."""

    def __init__(self, it: AsyncAppProxy, runner: BlockingRunner) -> None:
        self._runner = runner
        self._async = it

    @property
    def app(self) -> App:
        """The page."""
        return self._async.app

    def call(
        self, tool: str, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> ToolResult:
        """Call a tool of the page's own server, by the server's own name for it; a failure is a result.

        A tool of another server, an unknown tool, and a tool without "app" in its visibility are refused.
        """
        return self._runner.run(lambda: self._async.call(tool, arguments, timeout=timeout))

    def read(self, uri: str) -> list[Part]:
        """Read a resource of the page's own server.

        Raises:
            DragomanError: The server does not have it, or does not answer.
            CallDeniedError: The policy does not allow it.
        """
        return self._runner.run(lambda: self._async.read(uri))
