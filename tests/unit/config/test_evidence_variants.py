"""Approved means unchanged: variants of one attack, by cause, and ordinary projects that ask nothing more.

In each variant a file that is run changes after the approval. It counts however the command reaches it.
"""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.config.test_evidence import seen, write

from dragoman.model import Origin, ServerSpec, Stdio
from dragoman.trust.approvals import fingerprint, question

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="paths and links of other systems")


@dataclass(frozen=True, slots=True)
class Variant:
    """A command, the files that it needs, and the one that changes."""

    line: str
    file: str
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    more: Mapping[str, Any] = field(default_factory=dict[str, Any])


def scripts(**lines: str) -> dict[str, str]:
    return {"package.json": json.dumps({"scripts": lines})}


MAKE = {"Makefile": "serve:\n\t./run\n"}
LINK = {"sub/deep/x": "", "server.py": "decoy", "link": "-> sub/deep"}
PYPROJECT = {"pyproject.toml": '[project.scripts]\nserver="m:f"\n'}

PATHS = {
    "a link and back": Variant("python link/../server.py", "sub/server.py", LINK),
    "the decoy, for programs that read paths as text": Variant("node link/../server.py", "server.py", LINK),
    "a link and back, glued": Variant(
        "node --require=./link/../hook.js x", "sub/hook.js", {**LINK, "hook.js": ""}
    ),
    "a link and back, in a text": Variant("sh -c 'python link/../server.py'", "sub/server.py", LINK),
    "two links": Variant(
        "python a/b/../server.py", "c/server.py", {"a": "-> d", "d/b": "-> ../c/e", "c/e/x": ""}
    ),
    "a link as the directory": Variant("python server.py", "sub/server.py", LINK, {"cwd": "link/.."}),
    "a link in the directory": Variant("python ../server.py", "sub/server.py", LINK, {"cwd": "link"}),
    "up from a linked directory": Variant("make -C .. serve", "sub/Makefile", LINK, {"cwd": "link"}),
    "a link to an env file": Variant("prog", "sub/.env", LINK, {"env_file": ["link/../.env"]}),
    "the program": Variant("link/../run", "sub/run", {**LINK, "run": "decoy"}),
    "a variable": Variant("python x", "sub/server.py", LINK, {"env": {"PYTHONSTARTUP": "link/../server.py"}}),
    "a folder of code": Variant("python x", "sub/lib/m.py", LINK, {"env": {"PYTHONPATH": "link/../lib"}}),
    "a command for a secret": Variant("npx mcp-x", "sub/t", LINK, {"env": {"T": "${command:link/../t}"}}),
    "a name that looks like a pattern": Variant("python server[1].py", "server[1].py"),
    "a linked file": Variant("python a.py", "sub/b.py", {"a.py": "-> sub/b.py"}),
    "a linked folder": Variant("python -m pkg", "real/__main__.py", {"pkg": "-> real"}),
    "the child's own directory": Variant(
        "python /proc/self/cwd/s.py", "sub/s.py", {"sub/x": ""}, {"cwd": "sub"}
    ),
    "the recipes of a linked directory": Variant("make -C link/.. serve", "sub/Makefile", LINK),
    "a manifest beside a link": Variant("uv --directory link/.. run server", "sub/pyproject.toml", LINK),
}

OUTSIDE = {
    # The project is the folder `app`: what lies beside it belongs to the repository.
    "a script beside the project": Variant("python ../tools/server.py", "../tools/server.py"),
    "an absolute path": Variant("node ${workspaceFolder}/../tools/x.js", "../tools/x.js"),
    "the directory above": Variant("python server.py", "../server.py", {}, {"cwd": ".."}),
    "recipes above": Variant("make serve", "../Makefile", {}, {"cwd": ".."}),
    "recipes beside": Variant("make -C ../tools serve", "../tools/Makefile", {"../tools/x": ""}),
    "a script above the directory": Variant(
        "npm start", "../s.js", {"../package.json": '{"scripts":{"start":"node s.js"}}'}, {"cwd": ".."}
    ),
    "a prefix": Variant("npm --prefix ../tools start", "../tools/package.json", {"../tools/x": ""}),
    "a program beside": Variant("../bin/run", "../bin/run"),
    "a package beside": Variant("uvx --from ../pkg mcp-x", "../pkg/a.py"),
    "an editable package": Variant("uv run --with-editable ../pkg mcp-x", "../pkg/a.py"),
    "a module beside": Variant("python -m server", "../lib/server.py", {}, {"env": {"PYTHONPATH": "../lib"}}),
    "programs beside": Variant("run", "../bin/run", {}, {"env": {"PATH": "../bin"}}),
    "a text": Variant("bash -c 'exec ../tools/run'", "../tools/run"),
    "another directory in a text": Variant("bash -c 'cd .. && python server.py'", "../server.py"),
    "a folder of code beside": Variant("python -m pkg", "../pkg/__main__.py", {}, {"cwd": ".."}),
    "a secret": Variant("npx mcp-x", "../token", {}, {"env": {"T": "${command:../token}"}}),
    "a compose file beside": Variant(
        "docker compose -f ../c.yml run s",
        "../api/Dockerfile",
        {"../c.yml": "services:\n s:\n  build: ../api\n"},
    ),
    "a manifest of the repository": Variant("uv run mcp-x", "../pyproject.toml", {"../.git/HEAD": ""}),
    "recipes of the repository": Variant("just serve", "../justfile", {"../.git/HEAD": ""}),
}

TEXTS = {
    "exec": Variant("sh -c 'exec make serve'", "Makefile"),
    "a login shell": Variant("bash -lc 'uv run server'", "m.py", PYPROJECT),
    "no blank": Variant("sh -c make", "Makefile"),
    "options in one": Variant("bash -euxc 'make serve'", "Makefile"),
    "options behind": Variant("bash -c -l 'make serve'", "Makefile"),
    "a shell in a shell": Variant("""sh -c "sh -c 'make serve'" """, "Makefile"),
    "three shells": Variant("""sh -c "bash -c \\"sh -c 'npm run go'\\"" """, "x.js", scripts(go="node x.js")),
    "split by env": Variant("env -S 'npm start'", "x.js", scripts(start="node x.js")),
    "split by env, glued": Variant("env '-Snpm start'", "x.js", scripts(start="node x.js")),
    "split by env, long": Variant("env '--split-string=npm start'", "x.js", scripts(start="node x.js")),
    "split by env, behind a variable": Variant("env A=1 -S 'make serve'", "Makefile"),
    "a lock": Variant("flock /tmp/l -c 'make serve'", "Makefile"),
    "a lock without a text": Variant("flock /tmp/l make serve", "Makefile"),
    "a script": Variant("script -qc 'make serve' /dev/null", "Makefile"),
    "another user": Variant("su -c 'make serve' me", "Makefile"),
    "wrappers": Variant("nice -n 5 timeout 9 stdbuf -oL make serve", "Makefile"),
    "arguments": Variant("xargs -I{} sh -c 'make {}'", "Makefile"),
    "arguments without a shell": Variant("xargs -a list make", "Makefile"),
    "a variable in front": Variant("sh -c 'A=1 B=2 make serve'", "Makefile"),
    "behind a condition": Variant("sh -c 'if true; then make serve; fi'", "Makefile"),
    "behind a command": Variant("sh -c 'true && make serve'", "Makefile"),
    "behind a pipe": Variant("sh -c 'echo x | make serve'", "Makefile"),
    "in the background": Variant("sh -c 'sleep 1 & make serve'", "Makefile"),
    "a line break": Variant("sh -c 'true\nmake serve'", "Makefile"),
    "a group": Variant("sh -c '{ make serve; }'", "Makefile"),
    "parentheses": Variant("sh -c '(make serve)'", "Makefile"),
    "a substitution": Variant("sh -c 'exec node $(make -s name)'", "Makefile"),
    "a quoted substitution": Variant("""sh -c 'node "$(make -s name)"'""", "Makefile"),
    "back quotes": Variant("sh -c 'node `make -s name`'", "Makefile"),
    "evaluated": Variant("""sh -c 'eval "make serve"'""", "Makefile"),
    "the arguments of a shell": Variant("""sh -c 'exec "$@"' sh make serve""", "Makefile"),
    "another directory": Variant("sh -c 'cd srv && make serve'", "srv/Makefile", {"srv/x": ""}),
    "a variable as a path": Variant(
        "sh -c 'python $D/x.py'", "lib/x.py", {"lib/y": ""}, {"env": {"D": "lib"}}
    ),
    "a file as input": Variant("sh -c 'bash < run.log'", "run.log"),
    "sourced": Variant("sh -c '. ./run.log'", "run.log"),
    "a secret": Variant("npx mcp-x", "Makefile", {}, {"env": {"T": "${command:make -s token}"}}),
    "a secret of a shell": Variant(
        "npx mcp-x", "Makefile", {}, {"env": {"T": "${command:sh -c 'make -s token'}"}}
    ),
    "a secret of an unknown program": Variant(
        "npx mcp-x", "tox.ini", {}, {"env": {"T": "${command:tox -q}"}}
    ),
    "a secret behind a wrapper": Variant(
        "npx mcp-x", "x.js", scripts(t="node x.js"), {"env": {"T": "${command:env npm run t}"}}
    ),
    "a bridge": Variant("npx -y supergateway --stdio 'make serve'", "Makefile"),
    "a bridge to an unknown program": Variant("npx -y mcp-bridge --stdio 'tox -e serve'", "tox.ini"),
    "code of Python": Variant("""python -c 'import os; os.system("make serve")'""", "Makefile"),
    "code of Node": Variant(
        """node -e 'require("child_process").execSync("npm run go")'""", "x.js", scripts(go="node x.js")
    ),
    "a variable with a command": Variant(
        "node x", "Makefile", {}, {"env": {"GIT_SSH_COMMAND": "make -s ssh"}}
    ),
    "all in the command": Variant("'make serve'", "Makefile"),
    "a script of a manifest": Variant("npm run go", "Makefile", scripts(go="sh -c 'exec make serve'")),
    "a vault": Variant("op run -- make serve", "Makefile"),
    "busybox": Variant("busybox sh -c 'make serve'", "Makefile"),
    "one of the first words": Variant("/usr/bin/env -i bash -c 'exec make serve'", "Makefile"),
}

RUNNERS = {
    "node --run": Variant("node --run serve", "x.js", scripts(serve="node x.js")),
    "node --run, glued": Variant("node --run=serve", "package.json", scripts(serve="node x.js")),
    "deno task": Variant("deno task serve", "x.js", scripts(serve="node x.js")),
    "the manifest of a deno task": Variant("deno task serve", "package.json", scripts(serve="node x.js")),
    "an image": Variant(
        "docker compose run s", "Dockerfile", {"compose.yaml": "services:\n s:\n  build: .\n"}
    ),
    "an image elsewhere": Variant(
        "docker compose run s", "api/Dockerfile", {"compose.yaml": "services:\n s:\n  build: ./api\n"}
    ),
    "another image": Variant(
        "docker compose run s",
        "api/d.Dockerfile",
        {"compose.yaml": "services:\n s:\n  build:\n   context: api\n"},
    ),
    "a build": Variant("sh -c 'docker build -t x . && docker run x'", "Dockerfile"),
    "bazel": Variant("bazel run //:server", "BUILD.bazel"),
    "bazel, its workspace": Variant("bazel run //:server", "MODULE.bazel"),
    "tox": Variant("tox -e serve", "tox.ini"),
    "nox": Variant("nox -s serve", "noxfile.py"),
    "nox from a registry": Variant("uvx nox -s serve", "noxfile.py"),
    "nox as a module": Variant("python -m nox -s serve", "noxfile.py"),
    "tox in an environment": Variant("uv run tox -e serve", "tox.ini"),
    "invoke": Variant("invoke serve", "tasks.py"),
    "inv in an environment": Variant("poetry run inv serve", "tasks.py"),
    "foreman": Variant("foreman start", "Procfile"),
    "foreman of a bundle": Variant("bundle exec foreman start", "Procfile"),
    "turbo": Variant("turbo run serve", "turbo.json"),
    "turbo from a registry": Variant("npx turbo run serve", "turbo.json"),
    "nodemon": Variant("nodemon", "nodemon.json"),
    "nodemon from a registry": Variant("npx -y nodemon", "nodemon.json"),
    "nodemon in a script": Variant("npm start", "nodemon.json", scripts(start="nodemon")),
    "another file of task": Variant("task serve", "Taskfile.dist.yml"),
    "doit": Variant("doit serve", "dodo.py"),
    "gulp": Variant("npx gulp serve", "gulpfile.js"),
    "pm2": Variant("pm2-runtime start", "ecosystem.config.js"),
    "a command line of a scope": Variant("npx @nestjs/cli start", "nest-cli.json"),
    "zig": Variant("zig build run", "build.zig"),
    "scons": Variant("scons serve", "SConstruct"),
    "pants, which the project brings": Variant("./pants run x", "pants.toml", {"pants": "#!/bin/sh\n"}),
    "a program of the project": Variant("./serve", "plan.cfg", {"serve": "\x7fELF"}),
    "code of a program of the project": Variant("./serve", "steps.py", {"serve": "\x7fELF"}),
    "a program of the project in a folder": Variant("bin/serve", "bin/steps.py", {"bin/serve": "\x7fELF"}),
    "a program that is called like a harmless one": Variant("./echo hello", "plan.cfg", {"echo": "\x7fELF"}),
    "what interprets a program": Variant(
        "./run", "rules.mk", {"run": "#!/usr/bin/make -f\n", "rules.mk": ""}
    ),
    "an invented runner": Variant("frobnicate", "steps.py"),
    "its settings": Variant("frobnicate up", ".frobrc"),
    "its folder": Variant("frobnicate --dir sub", "sub/frob.yaml", {"sub/x": ""}),
    "its directory": Variant("frobnicate", "sub/frob.yaml", {"sub/x": ""}, {"cwd": "sub"}),
    "settings above its directory": Variant("frobnicate", "frob.yaml", {"a/b/x": ""}, {"cwd": "a/b"}),
    "a file that appears": Variant("frobnicate", "+frob.yaml"),
    "a wrapped runner": Variant("timeout 9 frobnicate", "frob.yaml"),
    "a runner in a text": Variant("sh -c 'exec frobnicate up'", "frob.yaml"),
    "a runner in a script": Variant("npm run go", "frob.yaml", scripts(go="frobnicate up")),
    "a runner of yarn": Variant("yarn frobnicate", "frob.yaml"),
    "a runner of npm": Variant("npm exec frobnicate", "frob.yaml"),
    "scripts of an installation": Variant(
        "sh -c 'npm ci && node x.js'", "y.js", scripts(postinstall="node y.js")
    ),
    "members of a workspace": Variant(
        "cargo run", "crates/s/src/main.rs", {"Cargo.toml": '[workspace]\nmembers=["crates/s"]\n'}
    ),
    "a server for development": Variant("npx webpack-dev-server", "webpack.config.js"),
    "an environment called mcp": Variant("tox -e mcp", "tox.ini"),
    "a runner beside a package": Variant("uvx --from mcp --with nox nox", "noxfile.py"),
    "a runner beside a package of npm": Variant("npx -p mcp-x turbo serve", "turbo.json"),
    "requirements": Variant("frobnicate", "requirements.txt"),
}

EXECUTABLE = {
    "a log": Variant("flock /tmp ./run.log", "run.log!"),
    "a log behind a wrapper": Variant("nice ./run.log", "run.log!"),
    "a database": Variant("timeout 5 ./data.db", "data.db!"),
    "a lock": Variant("./run.lock", "run.lock!"),
    "a note": Variant("frobnicate", "hook.md!"),
    "a log in a folder of code": Variant("python -m pkg", "pkg/run.log!", {"pkg/__main__.py": ""}),
    "an argument": Variant("npx mcp-x --hook run.pid", "run.pid!"),
    "a variable": Variant("npx mcp-x", "run.log!", {}, {"env": {"HOOK": "./run.log"}}),
    "a program on the path": Variant("x.log", "bin/x.log!", {}, {"env": {"PATH": "bin"}}),
}

WORKSPACE = {"p/a/package.json": '{"name": "a", "scripts": {"s": "node x.js"}}'}
COMPOSE = {"compose.yaml": "services:\n s:\n  build:\n   context: api\n   dockerfile: x.dock\n"}

COMPUTED = {
    "a name": Variant("sh -c './bin/$NAME'", "bin/serve!"),
    "a name that the line sets": Variant("sh -c 'N=serve; exec ./bin/$N.sh'", "bin/serve.sh!"),
    "a name of a loop": Variant("sh -c 'for f in a b; do ./bin/$f; done'", "bin/a!"),
    "a folder": Variant("sh -c './bin/$(uname -m)/serve'", "bin/x/serve!"),
    "back quotes": Variant("sh -c './bin/`uname`'", "bin/Linux!"),
    "the working directory": Variant("sh -c 'python $(git rev-parse --show-toplevel)/srv/s.py'", "srv/s.py"),
    "the working directory of bash": Variant("bash -c 'python ~+/srv/s.py'", "srv/s.py"),
    "any folder": Variant("sh -c 'python */s.py'", "srv/s.py"),
    "any depth": Variant("bash -c 'python **/s.py'", "srv/a/s.py"),
    "a secret": Variant("npx mcp-x", "bin/x!", {}, {"env": {"T": "${command:sh -c './bin/$N'}"}}),
    "a name that appears": Variant("sh -c './bin/$NAME'", "+bin/other", {"bin/serve": ""}),
    "a mounted file": Variant("docker run -v ./srv:/w python python /w/s.py", "srv/s.py"),
    "a mounted file, long": Variant(
        "docker run --mount type=bind,src=srv,dst=/w x python /w/s.py", "srv/s.py"
    ),
}

BRIDGES = {
    **{
        f"{bridge} {runner}": Variant(f"{bridge} {runner}", file)
        for bridge in ("mcp-proxy", "uvx mcp-proxy", "uvx mcpo --", "uvx mcpo --port 80 --", "npx mcp-x run")
        for runner, file in {"tox": "tox.ini", "nox -s s": "noxfile.py", "frob up": "frob.yaml"}.items()
    },
    "code that runs its arguments": Variant("perl -e 'exec @ARGV' tox", "tox.ini"),
    "a package of a scope": Variant("npx @dotenvx/dotenvx run -- tox", "tox.ini"),
    "a scope says nothing": Variant("npx @11ty/eleventy --serve", ".eleventy.js"),
    "a program beside a server": Variant("uvx --from mcp-server tox", "tox.ini"),
    "a server of files": Variant("npx live-server", ".live-server.json"),
    "a server with settings": Variant("npx json-server", "json-server.json"),
    "a name with a server in it": Variant("uvx my_server_runner", "tasks.toml"),
    "another directory": Variant("env -C ../t tox", "../t/tox.ini", {"../t/x": ""}),
}

FOUND = {
    "sbt, its build": Variant("sbt run", "project/plugins.sbt"),
    "sbt, its sources": Variant("sbt run", "src/main/scala/A.scala"),
    "tasks of mise": Variant("mise run s", "mise-tasks/s!"),
    "settings of mise": Variant("mise run s", ".config/mise.toml"),
    "a workflow": Variant("snakemake s", "workflow/Snakefile"),
    "tests of node": Variant("node --test", "x.test.js"),
    "tests of node in a folder": Variant("node --test", "test/a.js"),
    "tests of deno": Variant("deno test", "a_test.ts"),
    "tests of Python": Variant("python -m unittest", "tests/test_a.py"),
    "tests of Go": Variant("go test ./...", "sub/a_test.go"),
    "a package of Go": Variant("go run example.com/m/cmd/s", "cmd/s/main.go"),
    "a folder of tasks": Variant("invoke s", "tasks/__init__.py"),
    "a project of nx": Variant("npx nx serve api", "apps/api/project.json"),
    "sources of Swift": Variant("swift run", "Sources/s/main.swift"),
    "an example of Rust": Variant("cargo run --example e", "examples/e.rs"),
    "sources of .NET": Variant("dotnet run", "src/Other.cs"),
    "settings of .NET": Variant("dotnet run", "Properties/launchSettings.json"),
    "tools of .NET": Variant("dotnet tool run x", ".config/dotnet-tools.json"),
    "another build of gradle": Variant("gradle run", "app/build.gradle"),
    "a module of just": Variant("just serve", "m.just", {"justfile": "mod m\n"}),
    "an alias of npm": Variant("npm t", "x.js", scripts(test="node x.js")),
    "all of a workspace": Variant(
        "npm run s --workspaces", "p/a/x.js", {**WORKSPACE, "package.json": '{"workspaces": ["p/*"]}'}
    ),
    "a filter of pnpm": Variant(
        "pnpm --filter a s", "p/a/x.js", {**WORKSPACE, "pnpm-workspace.yaml": "packages:\n - p/*\n"}
    ),
    "a script of pipenv": Variant("pipenv run s", "y.py", {"Pipfile": '[scripts]\ns="python y.py"\n'}),
    "a hook of a build": Variant("uv run server", "hatch_build.py", PYPROJECT),
    "a backend of a build": Variant(
        "uv run s", "backend/b.py", {"pyproject.toml": '[build-system]\nbackend-path=["backend"]\n'}
    ),
    "an image of another name": Variant("docker compose run s", "api/x.dock", COMPOSE),
    "a file in an image": Variant(
        "docker compose run s", "api/e.sh", {**COMPOSE, "api/Dockerfile": "COPY e.sh /\n"}
    ),
    "what a script sources": Variant(
        "bash sub/run.sh", "sub/lib.sh", {"sub/run.sh": '. "$(dirname "$0")/lib.sh"\n'}
    ),
    "what a script runs": Variant("sh run.sh", "x.js", {"run.sh": "exec node x.js\n"}),
    "a plugin": Variant("npx mcp-x --plugin p", "p.js"),
    "an application": Variant("celery -A w worker", "w.py"),
    "the working directory on the path": Variant(
        "python x", "+sitecustomize.py", {}, {"env": {"PYTHONPATH": "/x:"}}
    ),
    "another home": Variant("npx mcp-x", "h/.npmrc", {}, {"env": {"HOME": "h"}}),
    "a variable with a plugin": Variant("node x", "p/index.js", {}, {"env": {"PLUGINS": "./p"}}),
    "a recipe that looks like a log": Variant("docker compose -f c.log run s", "c.log"),
}

CAUSES = {
    "computed": COMPUTED,
    "bridge": BRIDGES,
    "found": FOUND,
    "path": PATHS,
    "outside": OUTSIDE,
    "text": TEXTS,
    "runner": RUNNERS,
    "executable": EXECUTABLE,
}
VARIANTS = {f"{cause}: {what}": one for cause, table in CAUSES.items() for what, one in table.items()}


def approved(one: Variant, root: Path) -> Callable[[], str]:
    command, *args = shlex.split(one.line)
    origin = Origin(source=str(root / ".mcp.json"), scope="project")
    spec = ServerSpec("s", Stdio(command, args, **one.more), origin=origin)
    return lambda: fingerprint(spec, seen(spec, root))


@pytest.mark.parametrize("what", VARIANTS)
def test_a_change_of_what_runs_asks_again_however_the_command_reaches_it(tmp_path: Path, what: str) -> None:
    one = VARIANTS[what]
    root = tmp_path / "app"
    root.mkdir()
    appears, name, is_executable = one.file[0] == "+", one.file.strip("+!"), one.file[-1] == "!"
    write(root, dict(one.files))
    for program in ("serve", "bin/serve", "run", "pants", "echo"):
        if (root / program).is_file():
            (root / program).chmod(0o755)
    text = one.files.get(name, "one")
    if not appears:
        write(root, {name: text})
        is_program = is_executable or name.rpartition("/")[2] in ("run", "t", "token")
        (root / name).chmod(0o755 if is_program else 0o644)
    now = approved(one, root)
    before = now()
    assert now() == before
    write(root, {name: text + "\n# and more"})
    assert now() != before


ORDINARY = {
    "npx": ("npx -y @modelcontextprotocol/server-memory", {}),
    "npx with a folder": ("npx -y mcp-server-files notes", {}),
    "uvx": ("uvx mcp-server-sqlite --db-path data.db", {}),
    "a file of Python": ("python server.py --notes notes", {}),
    "a file of Node": ("node dist/index.js", {}),
    "docker": ("docker run -i --rm -v notes:/notes mcp/notes", {}),
    "make": ("make serve", {"Makefile": "serve:\n\tpython server.py\n\ntest:\n\tuv run pytest\n"}),
    "uv": ("uv run server", {"pyproject.toml": '[project.scripts]\nserver="server:main"\n'}),
    "npm": ("npm run start", scripts(start="node dist/index.js", test="jest")),
    "a module": ("python -m pkg", {}),
    "deno": ("deno run server.ts", {}),
    "a shell": ("sh -c 'exec node dist/index.js'", {}),
    "an environment of the project": (".venv/bin/python server.py", {}),
    "an environment elsewhere": ("{home}/env/bin/weather --verbose", {}),
    "a program of the user's": ("{home}/.local/bin/weather", {}),
    "a program on the path": ("mcp-server-git --repository .", {}),
    "a secret": ("npx -y mcp-x", {"T": "${command:gh auth token}"}),
    "a mode of a server": ("npx -y github-mcp stdio --log-level debug", {}),
    "a database in a variable": ("npx -y mcp-x", {"DB_PATH": "./data.db"}),
    "a log in a variable": ("npx -y mcp-x", {"LOG_FILE": "x.log"}),
    "notes in a variable": ("npx -y mcp-x", {"MEMORY_FILE_PATH": "notes/b.json"}),
    "go": ("go run ./cmd/s", {"go.mod": "module m\n", "cmd/s/main.go": ""}),
    "another directory of uv": ("uv run --directory sub s.py", {"sub/s.py": ""}),
}


@pytest.mark.parametrize("what", ORDINARY)
def test_ordinary_work_in_an_ordinary_project_asks_nothing(tmp_path: Path, home: Path, what: str) -> None:
    line, files = ORDINARY[what]
    root = tmp_path / "app"
    env = {name: text for name, text in files.items() if name.isupper()}
    kept = {
        **dict.fromkeys(("server.py", "server.ts", "dist/index.js", "pkg/__main__.py", ".npmrc"), "1"),
        **dict.fromkeys(
            ("README.md", "util.py", "src/a.py", "notes/a.md", "package-lock.json", "uv.lock"), "1"
        ),
        ".mcp.json": "{}",
    }
    write(root, {**kept, **{name: text for name, text in files.items() if name not in env}})
    write(home, {"env/pyvenv.cfg": "", "env/bin/weather": "#!", ".local/bin/weather": "#!"})
    write(root, {".venv/pyvenv.cfg": "", ".venv/bin/python": f"-> {sys.executable}"})
    for program in ("env/bin/weather", ".local/bin/weather"):
        (home / program).chmod(0o755)
    now = approved(Variant(line.replace("{home}", str(home)), "", {}, {"env": env}), root)
    before = now()
    changes = {
        **dict.fromkeys(
            ("README.md", "util.py", "src/a.py", "notes/a.md", "package-lock.json", "uv.lock"), "2"
        ),
        **dict.fromkeys(
            ("added.py", "added.go", "helper.ts", "notes.txt", "notes/b.json", "data.db", "x.log"), "2"
        ),
        **dict.fromkeys((".git/HEAD", "node_modules/a/index.js", "__pycache__/a.pyc", ".mcp.json"), "2"),
    }
    if line.startswith("go "):
        del changes["added.go"]  # it is part of the package
    for name, text in changes.items():
        write(root, {name: text})
        assert now() == before, name


def test_the_question_says_which_files_are_watched_and_that_the_rest_is_not(tmp_path: Path) -> None:
    write(
        tmp_path, {"tox.ini": "1", "steps.py": "1", "notes.md": "1", **{f"{n}.cfg": "1" for n in range(50)}}
    )
    spec = ServerSpec("s", Stdio("frobnicate", ["up"]))
    text = question(spec, str(tmp_path), seen(spec, tmp_path))
    assert (
        "`frobnicate` is not a known program: the files (not data) at the top of this folder are watched"
        in text
    )
    assert "and nothing else that it reads by itself" in text
    assert "0.cfg" in text
    assert "12 more files" in text
    assert "notes.md" not in text
    known = ServerSpec("s", Stdio("python", ["steps.py"]))
    assert "not a known program" not in question(known, str(tmp_path), seen(known, tmp_path))


def test_the_question_says_so_if_no_file_is_watched(tmp_path: Path) -> None:
    spec = ServerSpec("s", Stdio("npx", ["-y", "mcp-x"]))
    text = question(spec, str(tmp_path), seen(spec, tmp_path))
    assert "covers" in text
    assert "no file now: what the program installs or downloads is not watched" in text


def test_files_beyond_the_limit_cannot_hide_another_one_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.config.covered_files.MAX_FILES", 5)
    write(tmp_path, {"frob.yaml": "1"})
    now = approved(Variant("frobnicate", ""), tmp_path)
    before = now()
    write(tmp_path, {f"{number}.md": "" for number in range(9)})
    assert now() != before


@pytest.mark.parametrize(
    "line",
    ["**/" * 50 + "x", "**/*/" * 40 + "x", "$A/" * 300 + "x", " ".join(f"*/a{n}" for n in range(3000))],
)
def test_patterns_are_bounded(tmp_path: Path, line: str) -> None:
    write(tmp_path, {f"d{folder}/{name}/f": "" for folder in range(30) for name in range(10)})
    assert seen(ServerSpec("s", Stdio("sh", ["-c", line])), tmp_path).gaps
