"""Reloader: reads what a manager is made of, again when the program asks or when a file has changed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from dragoman.errors import DragomanError
from dragoman.manager.reload import Watcher
from dragoman.model import ServerSpec, Settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    from dragoman.config.profiles import Profile
    from dragoman.events import ConfigReloaded
    from dragoman.manager.parts import Parts

    Servers: TypeAlias = (
        Iterable[ServerSpec]
        | Mapping[str, ServerSpec | Mapping[str, Any]]
        | Mapping[str, Any]
        | Settings
        | str
        | PathLike[str]
    )
    """What a manager is made of."""


class Reloader:
    """Applies a changed configuration to the parts of a manager."""

    def __init__(
        self,
        parts: Parts,
        *,
        load: Callable[[], Settings] | None = None,
        profile: str | Profile | None = None,
    ) -> None:
        """Apply changes to `parts`.

        Args:
            parts: The parts of the manager.
            load: Reads the files that the manager is made of; `None` if it is made of something else.
            profile: The application by whose rules a mapping is read.
        """
        self._parts = parts
        self._load = load
        self._profile = profile
        self._watcher = Watcher(self._files, self._on_files_changed) if load else None
        self._reloading = asyncio.Lock()

    async def reload(self, settings: Servers | None) -> ConfigReloaded:
        """Read the configuration again and apply what changed; see `McpManager.reload`."""
        parts = self._parts
        parts.check_open()
        if self._load is None and settings is None:
            msg = "this manager was made of what the program gave it, so there is no file to read again"
            hint = "give the new settings: `reload(settings)`; or make it with `from_config()` or of a path"
            raise DragomanError(msg, hint=hint)
        if self._load is not None and settings is not None:
            msg = "this manager reads its own files, and takes no settings"
            raise DragomanError(msg, hint="call `reload()`")
        async with self._reloading:
            if settings is None:
                found = await asyncio.to_thread(cast("Callable[[], Settings]", self._load))
            else:
                found = settings_of(settings, self._profile if isinstance(settings, Mapping) else None)
            parts.check_open()
            try:
                report = await parts.pool.reload(found)
            finally:
                self.watch_files()
        await parts.update_users()
        # Not by `publish`: the metrics of stopped servers stay readable.
        parts.bus.publish(report)
        return report

    def watch_files(self) -> None:
        """Start or stop watching the configuration files, as `auto_reload` says."""
        if self._watcher is None:
            return
        if self._parts.settings.auto_reload:
            self._watcher.start()
        else:
            self._watcher.stop()

    def stop_watching(self) -> set[asyncio.Task[None]]:
        """Stop watching the files; return the tasks that still run."""
        return self._watcher.stop() if self._watcher else set()

    async def _on_files_changed(self) -> None:
        if not self._parts.closed:
            await self.reload(None)

    def _files(self) -> list[Path]:
        """Return every file that may configure servers, including those that do not exist yet."""
        sources = (Path(source.path) for source in self._parts.settings.sources)
        return [path for path in sources if path.is_absolute()]


def settings_of(servers: Servers, profile: str | Profile | None = None) -> Settings:
    """Return the settings for what a manager is made of, other than a file."""
    if isinstance(servers, Mapping):
        from dragoman.config.load import load_given  # Most programs make specs, or read files.

        return load_given(cast("Mapping[str, Any]", servers), profile)
    if profile is not None:
        msg = "`profile` says how to read a mapping or a file; specs and settings are complete"
        raise TypeError(msg)
    if isinstance(servers, Settings):
        return servers
    wrong = "a manager is made of a list of servers, a mapping, or the path of a configuration file"
    if isinstance(servers, ServerSpec):
        msg = f"{wrong}: write McpManager([spec])"
        raise TypeError(msg)
    if not isinstance(servers, Iterable):
        msg = f"{wrong}, not of {type(servers).__name__}"
        raise TypeError(msg)
    specs = tuple(cast("Iterable[ServerSpec]", servers))
    for spec in specs:
        if not isinstance(cast("object", spec), ServerSpec):
            msg = f"{wrong}; the list holds a {type(spec).__name__}"
            raise TypeError(msg)
    return Settings(servers=specs)


def file_loader(
    servers: Servers, profile: str | Profile | None, *, missing_ok: bool
) -> Callable[[], Settings] | None:
    """Return what reads the file that a manager is made of; `None` if it is made of something else."""
    if not isinstance(servers, str | os.PathLike):
        return None
    from dragoman.config.load import load, require_file

    root = Path.cwd()
    if not missing_ok:
        require_file(servers, root)
    return lambda: load(profile or "dragoman", root=root, config=servers, missing_ok=missing_ok)
