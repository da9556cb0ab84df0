"""Monty in a thread of its own: check a program, run it from one call to the next, save and restore it.

Programs run in a worker process of `pydantic-monty`, a Python interpreter without files, network, environment
or foreign modules. Nothing here knows tools: a program's call is handed out as a `Step`, and goes on with a
value or an error. Every method blocks, so all of them run in the one thread of `Sandbox.work`.
"""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from dragoman.errors import AgentError
from dragoman.struct import Struct
from dragoman.version import install_command

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pydantic_monty import ExternalModule, Monty, MontySession

    from dragoman.agent.code.stubs import Module

T = TypeVar("T")

BEGIN = "begin_check"
"""The call that stops a program that is only checked, before its first statement."""
CHECK_STUBS = f"from typing import Any\ndef {BEGIN}() -> Any: ...\n"
MAX_TURNS = 2_000
"""Requests of one program that are not tool calls: imports, unknown names, system calls."""
MAX_PRINTED = 1_000_000
"""Printed characters that are kept of one program."""
RECURSION = 300
GRACE = 0.3
"""Seconds after its limit that a worker that does not stop itself is killed."""
_LINE = re.compile(r"^main\.py:(\d+):(\d+): (?:error|warning|info)\[([\w-]+)\] (.*)$", re.MULTILINE)
_LOST_TYPE = re.compile(r"(?:type|found) `object`")
_TRACE_FILE = re.compile(r'File "<python-input-\d+>"')


class CodeLimits(Struct, kw_only=True):
    """The limits of one program."""

    seconds: float = 10.0
    """Computing time; waiting for tools does not count."""
    memory: int = 64 * 2**20
    """Bytes of all values, including those of earlier programs."""
    calls: int = 200
    """Tool calls."""


class Problem(Struct):
    """One reason why a program is refused."""

    line: int
    rule: str
    """The checker's name for it, such as `invalid-argument-type`; `syntax` or `unsupported` for others."""
    text: str


class ProgramStep(Struct):
    """Where a program is: at a call, at its end, or stopped by an error."""

    kind: Literal["call", "done", "failed"]
    function: str = ""
    """`module.name` of a call."""
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None
    value: Any = None
    """What the program returned."""
    error: str = ""
    is_lost: bool = False
    """Whether the program's variables are lost."""


def is_installed() -> bool:
    """Return whether the extra `code` is installed."""
    return find_spec("pydantic_monty") is not None


def not_installed() -> AgentError:
    """Return the error for a missing extra."""
    msg = "code mode needs the package `pydantic-monty`"
    return AgentError(msg, hint=f"install it: {install_command('code')}")


class Sandbox:
    """One interpreter with the variables of all programs so far, and a second one that checks programs."""

    def __init__(self, limits: CodeLimits) -> None:
        self._limits = limits
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="dragoman-code")
        self._pool: Monty | None = None
        self._checker: MontySession | None = None
        self._checked: Mapping[str, Module] | None = None
        self._session: MontySession | None = None
        self._modules: dict[str, Callable[[], ExternalModule]] = {}
        self._snapshot: Any = None
        self._turns = 0
        self._printed: list[str] = []
        self._printed_chars = 0

    async def work(self, func: Callable[..., T], *args: Any) -> T:
        """Run a method in the sandbox's thread; a cancellation waits for it, since it cannot be stopped."""
        future = asyncio.get_running_loop().run_in_executor(self._thread, func, *args)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            # Limits bound how long this takes. A second program in the same thread would wait as long.
            with suppress(Exception):
                await future
            raise

    async def close(self) -> None:
        """End the workers."""
        try:
            await self.work(self._close)
        finally:
            self._thread.shutdown(wait=False)

    def check(self, prefix: str, code: str, modules: Mapping[str, Module]) -> list[Problem]:
        """Return why a program would fail before its first call; nothing of it runs.

        Args:
            prefix: Statements in one line that declare what earlier programs have defined.
            code: The program.
            modules: The modules that it can import.
        """
        from pydantic_monty import MontyComplete, MontyCrashedError, MontyError, MontyTypingError

        if self._checker is None or self._checked is not modules:
            self._end_checker()
            self._checker = self._open(
                {name: _external(module) for name, module in modules.items()}, type_check=True
            )
            self._checked = modules
        first = f"{BEGIN}(); {prefix}" if prefix else f"{BEGIN}()"
        try:
            step = self._checker.feed_start(f"{first}\n{code}", print_callback=_discard)
            while not isinstance(step, MontyComplete) and getattr(step, "is_os_function", False):
                step = step.resume_auto()  # the modules' stubs
            if not isinstance(step, MontyComplete):
                with suppress(MontyError):
                    _raise_in(step, "checked")
        except MontyTypingError as exc:
            return _problems(exc.display())
        except MontyCrashedError as exc:
            self._end_checker()
            return [Problem(0, "unsupported", str(exc))]
        except MontyError as exc:
            return [_unparsed(exc)]
        return []

    def start(self, code: str, modules: Mapping[str, Module]) -> ProgramStep:
        """Run a program up to its first call."""
        self.offer(modules)
        if self._session is None:
            self._session = self._open(self._modules)
        self._begin()
        session = self._session
        return self._advance(
            lambda: session.feed_start(code, print_callback=self._print, skip_type_check=True)
        )

    def import_modules(self, names: list[str]) -> None:
        """Import modules for the programs to come."""
        if self._session is None:
            self._session = self._open(self._modules)
        self._session.feed_run(f"import {', '.join(names)}", print_callback=_discard, skip_type_check=True)

    def offer(self, modules: Mapping[str, Module]) -> None:
        """Make modules importable."""
        self._modules.clear()
        self._modules.update({name: _external(module) for name, module in modules.items()})

    def give(self, value: Any) -> ProgramStep:
        """Go on with the result of the call."""
        snapshot, self._snapshot = self._snapshot, None
        return self._advance(lambda: snapshot.resume({"return_value": value}))

    def fail(self, error: BaseException) -> ProgramStep:
        """Go on with an error that the call raises in the program."""
        snapshot, self._snapshot = self._snapshot, None
        return self._advance(lambda: snapshot.resume({"exception": error}))

    def save(self) -> bytes:
        """Return the program at its call, with all variables."""
        return self._snapshot.dump()

    def restore(self, state: bytes, modules: Mapping[str, Module]) -> ProgramStep:
        """Continue with a saved program, which is at its call again; other variables are lost."""
        self.reset()
        self.offer(modules)
        self._session = self._open(self._modules)
        self._begin()
        session = self._session
        return self._advance(lambda: session.load_snapshot(state, print_callback=self._print))

    def reset(self) -> None:
        """Forget all variables."""
        self._snapshot = None
        session, self._session = self._session, None
        if session is not None:
            with suppress(Exception):
                session.__exit__(None, None, None)

    def take_printed(self) -> str:
        """Return what was printed since the last call."""
        text = "".join(self._printed)
        if self._printed_chars > MAX_PRINTED:
            text += f"\n[{self._printed_chars - MAX_PRINTED} more characters were printed and dropped]"
        self._printed, self._printed_chars = [], 0
        return text

    def _begin(self) -> None:
        self._turns = 0
        self.take_printed()

    def _advance(self, move: Callable[[], Any]) -> ProgramStep:
        from pydantic_monty import MontyComplete, MontyCrashedError, MontyError

        try:
            at = move()
            while not isinstance(at, MontyComplete):
                if not hasattr(at, "function_name"):
                    # An unknown name, or futures, which no function here returns.
                    at = at.resume() if hasattr(at, "variable_name") else _raise_in(at, "cannot be awaited")
                elif not at.is_os_function and at.object_id is None:
                    self._snapshot = at
                    return ProgramStep("call", function=at.function_name, args=at.args, kwargs=at.kwargs)
                else:
                    is_import = str(at.function_name) == "import"
                    at = at.resume_auto() if is_import else at.resume_not_handled()
                self._turns += 1
                if self._turns > MAX_TURNS:
                    self.reset()
                    return ProgramStep(
                        "failed", error="the program asks the host for too many names", is_lost=True
                    )
            return ProgramStep("done", value=at.output)
        except MontyCrashedError as exc:
            self.reset()
            return ProgramStep("failed", error=f"the program was stopped: {exc}", is_lost=True)
        except MontyError as exc:
            text = _shown(exc)
            # A limit stops the interpreter anywhere, so its variables cannot be trusted.
            is_lost = isinstance(exc.exception(), (TimeoutError, MemoryError)) and "limit exceeded" in text
            if is_lost:
                self.reset()
            return ProgramStep("failed", error=text, is_lost=is_lost)

    def _print(self, _stream: str, text: str) -> None:
        room = MAX_PRINTED - self._printed_chars
        if room > 0:
            self._printed.append(text[:room])
        self._printed_chars += len(text)

    def _open(
        self, modules: Mapping[str, Callable[[], ExternalModule]], *, type_check: bool = False
    ) -> MontySession:
        from pydantic_monty import Monty

        if self._pool is None:
            pool = Monty(
                min_processes=1,
                max_processes=2,
                checkout_timeout=30.0,
                feed_duration_limit_grace=GRACE,
                turn_duration_limit_grace=GRACE,
            )
            pool.__enter__()
            self._pool = pool
        session = self._pool.checkout(
            limits={
                "max_feed_duration_secs": self._limits.seconds,
                "max_memory": self._limits.memory,
                "max_recursion_depth": RECURSION,
                "max_suspensions": 2**31,  # counted here, for each program
            },
            type_check=type_check,
            type_check_stubs=CHECK_STUBS if type_check else None,
            type_check_format="concise",
            external_modules=modules,
        )
        session.__enter__()
        return session

    def _end_checker(self) -> None:
        checker, self._checker = self._checker, None
        if checker is not None:
            with suppress(Exception):
                checker.__exit__(None, None, None)

    def _close(self) -> None:
        self.reset()
        self._end_checker()
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.__exit__(None, None, None)


def _external(module: Module) -> Callable[[], ExternalModule]:
    def make() -> ExternalModule:
        from pydantic_monty import ExternalModule

        return ExternalModule(dict.fromkeys(module.functions, _never_called), stubs=module.stub)

    return make


def _never_called(*_args: Any, **_kwargs: Any) -> None:
    """Stand for a tool: calls are handed out as steps, and never get here."""


def _discard(_stream: str, _text: str) -> None:
    """Drop what a check prints: nothing."""


def _raise_in(at: Any, text: str) -> Any:
    if hasattr(at, "pending_call_ids"):
        return at.resume({one: {"exception": RuntimeError(text)} for one in at.pending_call_ids})
    return at.resume({"exception": RuntimeError(text)})


def _problems(text: str) -> list[Problem]:
    # The first line is the prefix.
    every = [Problem(int(line) - 1, rule, said) for line, _, rule, said in _LINE.findall(text)]
    # No tool has the type `object`: the checker has lost the type, as in `print(max(d, key=lambda k: d[k]))`.
    found = [one for one in every if not _LOST_TYPE.search(one.text)]
    return found if every else [Problem(0, "syntax", text.strip())]


def _unparsed(exc: Any) -> Problem:
    inner = exc.exception()
    rule = "unsupported" if isinstance(inner, NotImplementedError) else "syntax"
    frames: list[Any] = exc.traceback() if hasattr(exc, "traceback") else []
    return Problem(frames[-1].line - 1 if frames else 0, rule, str(exc))


def _shown(exc: Any) -> str:
    text = exc.display() if hasattr(exc, "display") else str(exc)
    return _TRACE_FILE.sub('File "program"', text)
