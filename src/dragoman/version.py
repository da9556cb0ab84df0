"""The version, which packaging and `--version` read, and the command that installs an extra here."""

VERSION = "0.3.0"


def install_command(extra: str) -> str:
    """Return the command that installs an extra of dragoman for the running interpreter."""
    import shlex
    import shutil
    import sys
    from importlib.util import find_spec
    from pathlib import Path

    wanted = f"dragoman[{extra}]"
    if Path(sys.prefix, "pipx_metadata.json").is_file():
        return shlex.join(["pipx", "runpip", "dragoman", "install", wanted])
    if find_spec("pip") is None and shutil.which("uv"):
        return shlex.join(["uv", "pip", "install", "--python", sys.executable, wanted])
    on_path = shutil.which("python")
    # The short form is right only if the shell finds this interpreter.
    is_found = on_path is not None and Path(on_path).absolute() == Path(sys.executable).absolute()
    return shlex.join(["python" if is_found else sys.executable, "-m", "pip", "install", wanted])
