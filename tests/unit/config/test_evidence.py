"""What an approval covers on disk: whatever a command names in the project, read within bounds."""

from __future__ import annotations

import json
import os
import py_compile
import shlex
import sys
from typing import TYPE_CHECKING, Any

import pytest

from dragoman.config.command_lines import runner_zone
from dragoman.config.covered_files import MAX_CHARS
from dragoman.config.evidence import gather
from dragoman.model import Auth, Http, Input, ServerSpec, Sse, Stdio, Tls
from dragoman.trust.approvals import Evidence, fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="paths and links of other systems")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with some of everything."""
    for name in (
        *("notes.py", "dist/index.js", "server.sh", "run.sh", "pkg/__main__.py", "pkg/deep/part.py"),
        *("local/package.json", "local/cli.js", "hook.js", "lib/helper.py", "my server.py", "app.py", ".env"),
        *("ca.pem", "cert.pem", "key.pem", "bin/node", "node_modules/.bin/tool", "package.json", "Makefile"),
        *("serve.js", "sub/inner.py", "index.js", "token.sh", "data.db", "docs/a.md", "cas/one.pem"),
        *("compose.yaml", ".npmrc", "pyproject.toml"),
    ):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"# {name}\n")
        file.chmod(0o755 if name.endswith((".sh", "/node", "/tool")) else 0o644)
    (tmp_path / "package.json").write_text('{"main": "serve.js", "scripts": {"go": "node serve.js --fast"}}')
    return tmp_path


def spec(command: str, *args: str, **more: Any) -> ServerSpec:
    return ServerSpec("s", Stdio(command, args, **more))


def seen(one: ServerSpec, root: Path, *inputs: Input) -> Evidence:
    return gather(one, root, inputs)


def covered(one: ServerSpec, root: Path) -> set[str]:
    return {file.path for file in seen(one, root).files}


COMMANDS: dict[str, tuple[ServerSpec, str]] = {
    "a script": (spec("python", "notes.py"), "notes.py"),
    "a script behind options": (spec("python3.12", "-u", "-X", "dev", "./notes.py"), "notes.py"),
    "a compiled entry": (spec("node", "dist/index.js"), "dist/index.js"),
    "without its suffix": (spec("node", "dist/index"), "dist/index.js"),
    "the command itself": (spec("./server.sh"), "server.sh"),
    "a shell": (spec("bash", "run.sh"), "run.sh"),
    "a line of a shell": (spec("bash", "-c", "cd . && exec ./run.sh --x"), "run.sh"),
    "a login shell": (spec("sh", "-lc", "source 'run.sh'; true"), "run.sh"),
    "uv": (spec("uv", "run", "notes.py"), "notes.py"),
    "uv with more": (spec("uv", "run", "--with", "mcp", "mcp", "run", "app.py:server"), "app.py"),
    "what uv reads": (spec("uvx", "tool"), "pyproject.toml"),
    "a package": (spec("python", "-m", "pkg"), "pkg/"),
    "a module of a package": (spec("python", "-m", "pkg.deep.part"), "pkg/"),
    "a module": (spec("python", "-m", "app"), "app.py"),
    "an application": (spec("uvicorn", "app:server"), "app.py"),
    "a local package": (spec("npx", "-y", "./local"), "local/"),
    "a package that the project brings": (spec("npx", "-y", "tool@1"), "node_modules/.bin/tool"),
    "a registry that the project names": (spec("npx", "-y", "tool"), ".npmrc"),
    "a hook": (spec("node", "--require", "./hook.js", "x"), "hook.js"),
    "a hook in one word": (spec("node", "--require=./hook.js", "x"), "hook.js"),
    "a glued hook": (spec("node", "-r./hook.js", "x"), "hook.js"),
    "a hook as an address": (spec("node", "--import", "file://${workspaceFolder}/hook.js"), "hook.js"),
    "an absolute path": (spec("node", "${workspaceFolder}/hook.js"), "hook.js"),
    "an option of another program": (spec("prog", "--plugin=hook.js"), "hook.js"),
    "a list": (spec("prog", "--load", "a.js,hook.js"), "hook.js"),
    "a class path": (spec("java", "-cp", "a.jar:hook.js", "Main"), "hook.js"),
    "a file of arguments": (spec("java", "@hook.js"), "hook.js"),
    "blanks in a name": (spec("python", "my server.py"), "my server.py"),
    "another directory": (spec("python", "inner.py", cwd="sub"), "sub/inner.py"),
    "up from another directory": (spec("python", "../notes.py", cwd="sub"), "notes.py"),
    "behind a wrapper": (spec("env", "A=1", "python", "notes.py"), "notes.py"),
    "a script of npm": (spec("npm", "run", "go"), "serve.js"),
    "the scripts of npm": (spec("npm", "run", "go"), "package.json"),
    "a makefile": (spec("make", "serve"), "Makefile"),
    "containers": (spec("docker", "compose", "up"), "compose.yaml"),
    "the project's entry": (spec("node", "."), "serve.js"),
    "the project's index": (spec("node", "."), "index.js"),
    "a variable with a folder": (spec("python", "x", env={"PYTHONPATH": "./lib"}), "lib/"),
    "a variable among folders": (spec("python", "x", env={"PYTHONPATH": "/x:lib"}), "lib/"),
    "a variable with a file": (spec("prog", env={"CONFIG": "hook.js"}), "hook.js"),
    "options in a variable": (spec("node", env={"NODE_OPTIONS": "--require ./hook.js"}), "hook.js"),
    "a variable that is a credential": (spec("prog", env={"SSH_KEY": "hook.js"}), "hook.js"),
    "programs of the project": (spec("prog", env={"PATH": "./bin:/usr/bin"}), "bin/"),
    "an env file": (spec("prog", env_file=[".env"]), ".env"),
    "a command that gives a secret": (spec("prog", env={"T": "${command:./token.sh x}"}), "token.sh"),
    "a default": (spec("python", "${SCRIPT_NOT_SET:-notes.py}"), "notes.py"),
    "an authority": (ServerSpec("s", Http("https://h", tls=Tls(ca="ca.pem"))), "ca.pem"),
    "authorities": (ServerSpec("s", Http("https://h", tls=Tls(ca="cas"))), "cas/"),
    "a certificate": (ServerSpec("s", Sse("https://h", tls=Tls(cert="./cert.pem"))), "cert.pem"),
    "its key": (ServerSpec("s", Http("https://h", tls=Tls(cert="cert.pem", key="key.pem"))), "key.pem"),
    "the key of a login": (ServerSpec("s", Http("https://h"), auth=Auth(private_key="key.pem")), "key.pem"),
}


@pytest.mark.parametrize(("one", "file"), COMMANDS.values(), ids=COMMANDS)
def test_what_a_command_names_in_the_project_is_covered_by_content(
    root: Path, one: ServerSpec, file: str
) -> None:
    before = seen(one, root)
    assert file in {found.path for found in before.files}
    changed = root / file
    if changed.is_dir():
        changed = next(path for path in sorted(changed.rglob("*")) if path.is_file())
    text = changed.read_text()
    # Of the same size, and at the same time: it is the content that counts.
    moment = changed.stat()
    changed.write_text(text[:-2] + "~\n" if file != "package.json" else text.replace("fast", "slow"))
    os.utime(changed, ns=(moment.st_atime_ns, moment.st_mtime_ns))
    assert fingerprint(one, seen(one, root)) != fingerprint(one, before)
    changed.write_text(text)
    assert fingerprint(one, seen(one, root)) == fingerprint(one, before)


NOT_COVERED = {
    "a folder of data": spec("npx", "-y", "server-filesystem", "docs"),
    "a folder behind a script": spec("python", "/x.py", "docs"),
    "a database": spec("uvx", "mcp-server-sqlite", "--db-path", "data.db"),
    "nothing there": spec("python", "missing.py"),
    "what is elsewhere": spec("python", "/etc/hostname"),
}


@pytest.mark.parametrize("one", NOT_COVERED.values(), ids=NOT_COVERED)
def test_data_and_what_lies_elsewhere_is_not_covered(root: Path, one: ServerSpec) -> None:
    found = covered(one, root)
    assert found <= {".npmrc", "pyproject.toml"}


def test_a_file_that_appears_later_asks_too(root: Path) -> None:
    one = spec("python", "-m", "late")
    before = seen(one, root)
    (root / "late.py").write_text("")
    assert fingerprint(one, seen(one, root)) != fingerprint(one, before)


def test_a_link_counts_with_where_it_leads_to(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    for name in ("one.py", "two.py"):
        (outside / name).write_text("same")
    link = root / "link.py"
    link.symlink_to(outside / "one.py")
    one = spec("python", "link.py")
    before = seen(one, root)
    (found,) = before.files
    assert (found.path, found.target) == ("link.py", str(outside / "one.py"))
    link.unlink()
    link.symlink_to(outside / "two.py")
    assert fingerprint(one, seen(one, root)) != fingerprint(one, before)
    before = seen(one, root)
    (outside / "two.py").write_text("else")
    assert fingerprint(one, seen(one, root)) != fingerprint(one, before)


def test_the_path_of_the_program_counts_and_its_bytes_only_in_the_project(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    bins = [tmp_path_factory.mktemp("bin") for _ in range(2)]
    for folder in bins:
        (folder / "prog").write_text("#!/bin/sh\n")
        (folder / "prog").chmod(0o755)
    one = spec("prog", cwd="docs")
    before, other = (gather(one, root, env={"PATH": str(folder)}) for folder in bins)
    assert before.programs == {"prog": str(bins[0] / "prog")}
    assert other.programs == {"prog": str(bins[1] / "prog")}
    (bins[0] / "prog").write_text("#!/bin/sh\n# newer\n")
    assert gather(one, root, env={"PATH": str(bins[0])}) == before, "an upgrade asks nothing"
    named = spec(str(bins[0] / "prog"))
    assert str(bins[0] / "prog") in covered(named, root), "a path in the entry is the entry's own choice"
    ours = spec("node", env={"PATH": f"bin{os.pathsep}{bins[0]}"})
    assert seen(ours, root).programs == {"node": str(root / "bin" / "node")}
    assert "bin/node" in covered(ours, root)
    wrapped = spec("env", "prog", env={"PATH": f"{bins[0]}:/usr/bin:/bin"})
    assert list(seen(wrapped, root).programs) == ["env"]
    wrapped = spec("env", "node", env={"PATH": f"bin:{bins[0]}:/usr/bin:/bin"})
    assert seen(wrapped, root).programs["node"] == str(root / "bin" / "node")
    assert seen(spec("not-there-at-all"), root).programs == {"not-there-at-all": ""}


def test_the_path_of_an_env_file_decides_which_program_runs(root: Path) -> None:
    (root / ".env").write_text("PATH=./bin\n")
    one = spec("node", env_file=[".env"])
    assert seen(one, root).programs == {"node": str(root / "bin" / "node")}
    taken = one.replace(transport=one.transport.replace(env={"PATH": "/nowhere"}))
    assert seen(taken, root).programs == {"node": ""}


def test_an_env_file_counts_wherever_it_lies_and_when_it_is_absent(root: Path, home: Path) -> None:
    one = spec("npx", "mcp-x", env_file=["~/secrets.env"], cwd="docs")
    absent = seen(one, root).files[-1]
    assert absent.digest == "absent"
    (home / "secrets.env").write_text("A=1")
    there = seen(one, root).files[-1]
    assert (there.path, there.size) == (str(home / "secrets.env"), 3)


def test_only_the_inputs_that_an_entry_refers_to_are_kept(root: Path) -> None:
    one = spec("python", "${input:script}")
    inputs = [Input(id="script", default="notes.py"), Input(id="other", default="x")]
    found = seen(one, root, *inputs)
    assert found.inputs == [inputs[0]]
    assert [file.path for file in found.files] == ["notes.py"]


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_link_to_a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def make_loop(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.parametrize("make", [make_pipe, make_link_to_a_device])
def test_what_is_not_a_regular_file_is_not_read_and_said(root: Path, make: Callable[[Path], None]) -> None:
    make(root / "odd.py")
    found = seen(spec("python", "odd.py", env_file=["odd.py"]), root)
    assert [(file.path, file.digest) for file in found.files] == [("odd.py", "special")]
    assert found.gaps == ["odd.py is not a regular file: what it gives is not covered"]


def test_odd_words_do_no_harm(root: Path) -> None:
    make_loop(root / "loop.py")
    (root / "package.json").write_text("[" * 100_000)
    words = ["", "\0", "loop.py", "x" * 5000, "=" * 500, "%zz", "a\nb", "\ud800", "/", "..", "-", "--", "@"]
    found = seen(spec("npm", *words, "." * (MAX_CHARS + 1)), root)
    assert any(gap.startswith("an argument or a value is too long") for gap in found.gaps)
    many = seen(spec("mcp-prog", *("a b c d e f g h " * 400 for _ in range(50))), root)
    assert many.files == []


def test_large_files_and_folders_are_bounded_and_said(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.config.covered_files.MAX_BYTES", 100)
    monkeypatch.setattr("dragoman.config.covered_files.MAX_FILES", 3)
    large = root / "large.py"
    large.write_bytes(b"x" * 1000)
    one = spec("python", "large.py")
    (before,) = seen(one, root).files
    assert (before.digest[:6], before.size) == ("large:", 1000)
    large.write_bytes(b"y" * 1000)
    assert seen(one, root).files != [before]
    for number in range(9):
        (root / "lib" / f"{number}.py").write_text("")
    assert seen(spec("python", "x", env={"PYTHONPATH": "lib"}), root).gaps == [
        "lib has more than 3 files: not all of them are covered"
    ]


def test_what_only_a_start_can_tell_is_said(root: Path) -> None:
    assert seen(spec("python", "${command:pick}"), root).gaps
    assert not seen(spec("python", "notes.py", env={"T": "${keyring:a/b}"}), root).gaps


@pytest.mark.parametrize(
    ("words", "zone"),
    [
        ("python notes.py data", 2),
        ("npx -y @scope/server docs", 3),
        ("uv --directory srv run srv-tool data", 5),
        ("node --require hook dist data", 4),
        ("bash -c line name data", 3),
        ("prog data", 1),
        ("env A=1 timeout 5 data", 1),
        ("python -m pkg", 3),
        ("", 0),
    ],
)
def test_the_words_up_to_the_script_belong_to_the_runner(words: str, zone: int) -> None:
    assert runner_zone(words.split()) == zone


def package(**more: object) -> str:
    return json.dumps(more)


UNNAMED: dict[str, tuple[str, dict[str, str], str]] = {
    # what: the command, the files of the project that it needs, and the one that changes
    "a linked folder": ("python -m pkg", {"pkg/__main__.py": "", "pkg/in": "-> ../real"}, "real/y.py"),
    "a compiled module without a source": ("python -m pkg", {}, "pkg/__main__.pyc"),
    "a main folder": ("node .", {"package.json": package(main="dist")}, "dist/index.js"),
    "a folder of programs": (
        "npx .",
        {"package.json": package(name="x", directories={"bin": "bin"})},
        "bin/cli.js",
    ),
    "the project's own package": ("npx foo", {"package.json": package(bin={"foo": "x.js"})}, "x.js"),
    "a registry above the directory": ("npx foo", {"a/b/k": "", "cwd": "a/b"}, "a/.npmrc"),
    "a program above the directory": ("npx foo", {"a/b/k": "", "cwd": "a/b"}, "a/node_modules/.bin/foo"),
    "a folder in a script": (
        "npm run go",
        {"package.json": package(scripts={"go": "node dist"})},
        "dist/index.js",
    ),
    "another directory in a script": (
        "npm run go",
        {"package.json": package(scripts={"go": "cd srv && node index.js"})},
        "srv/index.js",
    ),
    "a script of a script": (
        "npm run go",
        {"package.json": package(scripts={"go": "npm run on", "on": "node y.js"})},
        "y.js",
    ),
    "a script of a workspace": (
        "npm --workspace=w run go",
        {
            "package.json": package(workspaces=["packages/*"]),
            "packages/w/package.json": package(name="w", scripts={"go": "node y.js"}),
        },
        "packages/w/y.js",
    ),
    "what npm starts unnamed": ("npm start", {"package.json": package(name="x")}, "server.js"),
    "yarn itself": ("yarn go", {}, ".yarn/releases/yarn.cjs"),
    "variables of bun": ("bun x.ts", {}, ".env"),
    "a task of deno": ("deno task go", {"deno.json": package(tasks={"go": "deno run y.ts"})}, "y.ts"),
    "settings of ts-node": ("npx ts-node sub/x.ts", {"sub/x.ts": ""}, "sub/tsconfig.json"),
    "a pattern of a shell": ("bash -c 'python sub/*.py'", {}, "sub/x.py"),
    "a path behind a variable": ("bash -c 'python $PWD/x.py'", {}, "x.py"),
    "an escaped path": ("bash -c 'python my\\ x.py'", {}, "my x.py"),
    "an included makefile": ("make serve", {"Makefile": "include rules.mk\n"}, "rules.mk"),
    "a script of a makefile": ("make serve", {"Makefile": "serve:\n\t./run.sh\n"}, "run.sh"),
    "an overriding compose file": ("docker compose run s", {}, "compose.override.yaml"),
    "a compose file elsewhere": ("docker compose --project-directory sub run s", {}, "sub/compose.yaml"),
    "compose behind options": ("docker --log-level debug compose run s", {}, "compose.yaml"),
    "a class path": ("java -cp lib/*:build Main", {}, "lib/a.jar"),
    "a class": ("java Main", {}, "Main.class"),
    "a library of Ruby": ("ruby -I. -rsrv -e run", {}, "srv.rb"),
    "a module of Perl": ("perl -I. -MSrv -e1", {}, "Srv.pm"),
    "a file of a Go package": ("go run .", {"main.go": ""}, "util.go"),
    "sources of Rust": ("cargo run", {}, "src/main.rs"),
    "sources of Rust elsewhere": (
        "cargo run --manifest-path sub/Cargo.toml",
        {"sub/Cargo.toml": ""},
        "sub/src/main.rs",
    ),
    "sources of .NET": ("dotnet run --project sub/a.csproj", {"sub/a.csproj": ""}, "sub/Program.cs"),
    "an entry point": ("uv run srv", {"pyproject.toml": '[project.scripts]\nsrv="m:f"'}, "m/__init__.py"),
    "an entry point below src": (
        "uvx --from . srv",
        {"pyproject.toml": '[project.scripts]\nsrv="m.cli:f"'},
        "src/m/cli.py",
    ),
    "a script of poetry": ("poetry run s", {"pyproject.toml": '[tool.poetry.scripts]\ns="m:f"'}, "m.py"),
    "a script of hatch": (
        "hatch run s",
        {"pyproject.toml": '[tool.hatch.envs.default.scripts]\ns="python y.py"'},
        "y.py",
    ),
    "a local package with extras": ("uvx --from ./pkg[x] srv", {}, "pkg/a.py"),
    "a local package with a name": ("uvx --from srv@./pkg srv", {}, "pkg/a.py"),
    "settings of gunicorn": ("gunicorn app:app", {}, "gunicorn.conf.py"),
    "variables of flask": ("flask run", {}, ".flaskenv"),
    "a profile of R": ("Rscript x.R", {}, ".Rprofile"),
    "a wrapper of gradle": ("./gradlew run", {"gradlew": ""}, "gradle/wrapper/gradle-wrapper.jar"),
    "a runner behind a lock": ("flock /tmp/l python -m x", {}, "x.py"),
    "a runner behind a vault": ("op run -- uv run x.py", {}, "x.py"),
    "a runner behind any program": ("/opt/mystery --opt python srv", {}, "srv/__main__.py"),
}


@pytest.mark.parametrize("what", UNNAMED)
def test_what_a_runner_runs_is_covered_though_the_command_does_not_name_it(tmp_path: Path, what: str) -> None:
    line, files, file = UNNAMED[what]
    cwd = files.get("cwd")
    write(tmp_path, {**{name: text for name, text in files.items() if name != "cwd"}, file: "1"})
    command, *args = shlex.split(line)
    one = spec(command, *args, cwd=cwd)
    before = fingerprint(one, seen(one, tmp_path))
    assert fingerprint(one, seen(one, tmp_path)) == before
    (tmp_path / file).write_text("2")
    assert fingerprint(one, seen(one, tmp_path)) != before


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("-> "):
            path.symlink_to(text[3:])
        else:
            path.write_text(text)


@pytest.mark.parametrize(
    ("env", "file"),
    [
        ({"PYTHONPATH": "."}, "sitecustomize.py"),
        ({"NODE_OPTIONS": "--require ./hook"}, "hook.js"),
        ({"RUBYOPT": "-r./h"}, "h.rb"),
        ({"PERL5OPT": "-I. -MH"}, "H.pm"),
        ({"FLASK_APP": "srv"}, "srv.py"),
        ({"DJANGO_SETTINGS_MODULE": "proj.settings"}, "proj/settings.py"),
    ],
)
def test_code_that_a_variable_names_is_covered(tmp_path: Path, env: dict[str, str], file: str) -> None:
    write(tmp_path, {file: "1"})
    one = spec("python", "z.py", env=env)
    before = fingerprint(one, seen(one, tmp_path))
    (tmp_path / file).write_text("2")
    assert fingerprint(one, seen(one, tmp_path)) != before


@pytest.mark.parametrize("module", ["x", "pkg.x"])
def test_a_compiled_module_that_python_runs_without_its_source_is_covered(
    tmp_path: Path, module: str
) -> None:
    source = tmp_path / f"{module.replace('.', '/')}.py"
    write(tmp_path, {str(source): "print('good')"})
    one = spec("python", "-m", module)
    before = fingerprint(one, seen(one, tmp_path))
    py_compile.compile(str(source))
    assert fingerprint(one, seen(one, tmp_path)) == before, "an ordinary cache is not a change"
    py_compile.compile(str(source), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    assert fingerprint(one, seen(one, tmp_path)) != before


def test_a_folder_that_links_to_itself_is_walked_once(tmp_path: Path) -> None:
    write(tmp_path, {"pkg/__main__.py": "1", "pkg/again": "-> ."})
    assert covered(spec("python", "-m", "pkg"), tmp_path) == {"pkg/"}


def test_a_shell_that_works_out_what_it_runs_is_said(tmp_path: Path) -> None:
    gaps = " ".join(seen(spec("bash", "-c", "python $(cat name)"), tmp_path).gaps)
    assert "a shell works out part" in gaps


@pytest.mark.parametrize("odd", ["a\0b", "\ud800", "x" * 5000, "\0/*", "\ud800/../x"])
def test_a_directory_that_cannot_exist_does_no_harm(root: Path, odd: str) -> None:
    assert seen(spec("make", odd, f"--x={odd}/*", cwd=odd, env={"PATH": odd, "A": odd}), root).programs
