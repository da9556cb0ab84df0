"""The rules of the sandbox: what a server that is a child process may read, write and reach.

Everything here is data, and small decisions on it. `server.process.sandbox` looks at the disk and makes the
grants of one start; `server.process.landlock` applies them.
"""

from __future__ import annotations

import re
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from dragoman.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dragoman.model.server import Sandbox, SandboxLevel

DEFAULT: SandboxLevel = "off"
"""The level of a server that does not say, where this system can keep it. If it is not `off`, servers of
projects and those of one command are `strict`."""
LEVELS = ("off", "credentials", "strict")
KEYS = ("level", "read", "write", "network", "sockets")
WEB_PORTS = (53, 80, 443)
_HIGHEST_PORT = 65_535

STORES = """
.ssh .gnupg .aws .azure .config/gcloud .kube .docker .netrc .npmrc .yarnrc.yml .pypirc .cargo/credentials
.cargo/credentials.toml .git-credentials .config/git/credentials .config/gh .config/glab-cli .config/hub
.config/doctl .config/heroku .config/rclone .config/sops .config/op .config/containers .fly .oci .s3cfg .boto
.databrickscfg .snowflake .vault-token .terraform.d/credentials.tfrc.json .pgpass .my.cnf .mylogin.cnf
.m2/settings.xml .gradle/gradle.properties .gem/credentials .composer/auth.json .config/composer/auth.json
.huggingface/token .cache/huggingface/token .cache/huggingface/stored_tokens .local/share/uv/credentials
.mozilla .librewolf .thunderbird .config/*chrom* .config/BraveSoftware .config/microsoft-edge*
.config/vivaldi* .config/opera* .config/net.imput.helium .cache/mozilla .cache/*chrom* .cache/BraveSoftware
.cache/microsoft-edge* .cache/thunderbird snap/firefox snap/chromium .var/app
.local/share/keyrings .local/share/kwalletd .config/kwalletrc .pki .password-store .local/share/pass
.local/share/gopass .config/keepassxc .cache/keepassxc .config/Bitwarden* .config/1Password .electrum .bitcoin
.*_history .*history .histfile .lesshst .local/share/fish/fish_history .config/fish/fish_history
.local/share/nu .local/share/atuin .local/share/powershell
.mcp-auth .claude.json .claude/.credentials.json .codex/auth.json .codex/.credentials.json
.gemini/oauth_creds.json .gemini/mcp-oauth-tokens*.json .gemini/.env .copilot .config/github-copilot
.config/Code .config/Code*Insiders .config/VSCodium .config/Cursor .config/Windsurf .config/Claude
.codex/config.toml .gemini/settings.json .config/opencode .kode.json .codeium .mcp.json .rrclaw
.config/zed .local/share/zed .cursor/mcp.json .continue .local/share/opencode/auth.json
.local/share/opencode/mcp-auth.json .config/goose .kiro .aws-sam
""".split()
"""Where secrets are, relative to the home directory. A `*` stands for any text within one name."""
STARTUP_FILES = """
.bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin
.zlogout .xprofile .xinitrc .xsessionrc .config/fish .config/autostart .config/systemd .config/environment.d
.gitconfig .config/git .local/bin bin .kshrc .cshrc .tcshrc .login .xonshrc .xsession .pam_environment
.config/zsh .config/nushell .config/powershell .config/plasma-workspace .local/share/systemd
.local/share/dbus-1 .local/lib .vimrc .vim .config/nvim .emacs .emacs.d .config/emacs .claude/settings.json
.claude/hooks .inputrc .config/xonsh
""".split()
"""What others run later: writing there would lead out of the sandbox. `credentials` lets a server read it."""

SYSTEM = """
/usr /bin /sbin /lib /lib32 /lib64 /libx32 /opt /nix /snap /proc /sys /run/systemd/resolve
/run/resolvconf /run/NetworkManager /run/current-system /var/lib/ca-certificates /var/cache/fontconfig
""".split()
"""What `strict` lets a server read of the system."""
ETC = """
resolv.conf nsswitch.conf hosts host.conf hostname gai.conf services protocols networks localtime timezone
passwd group ld.so.cache ld.so.conf ld.so.conf.d ld.so.preload ssl/certs ssl/openssl.cnf ssl/cert.pem
pki/tls/certs pki/tls/cert.pem pki/tls/openssl.cnf pki/ca-trust ca-certificates crypto-policies gnutls
os-release lsb-release debian_version alpine-release redhat-release machine-id locale.conf locale.alias
default/locale mime.types magic fonts alternatives gitconfig gitattributes npmrc pip.conf xdg/pip inputrc
terminfo python3 python3.* java* maven R ImageMagick-* chromium chromium.d opt/chrome papersize login.defs
nix static OpenCL vulkan glvnd
""".split()
"""The same of `/etc`: by name, because any other file there may hold a secret."""
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/shm")  # noqa: S108 -- a name only
RUNTIMES = """
.nvm .fnm .local/share/fnm .volta .asdf .local/share/mise .pyenv .rye .local/share/uv/python
.local/share/uv/tools miniconda3 anaconda3 miniforge3 .rbenv .sdkman .deno/bin .bun/bin .rustup .cargo/bin
go/bin .dotnet .local/bin
""".split()
"""Where people install interpreters at home: `strict` lets a server read them."""
LAUNCHERS: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("npx", "npm"), (".npm", ".npmrc")),
    **dict.fromkeys(
        ("uvx", "uv"), (".cache/uv .local/share/uv", ".netrc .config/uv .local/share/uv/credentials")
    ),
    "pipx": (".cache/pip .cache/pipx .local/share/pipx .local/pipx", ".netrc .config/pip .pip"),
}
"""What a package launcher writes and reads at home: its caches, and the logins of private sources."""
CONTAINERS = frozenset({"docker", "podman"})
"""Commands that stay outside: their container is the box, and a box around the client would not hold it."""
CACHE_VARIABLES = ("npm_config_cache", "NPM_CONFIG_CACHE", "UV_CACHE_DIR", "PIP_CACHE_DIR", "PIPX_HOME")
FILE_VARIABLES = (
    *("npm_config_userconfig", "NPM_CONFIG_USERCONFIG", "npm_config_cafile", "NPM_CONFIG_CAFILE"),
    *("UV_CONFIG_FILE", "PIP_CONFIG_FILE", "PIP_CERT", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
)
NEEDS: Sequence[tuple[str, str]] = (
    (r"aws|dynamodb|cloudwatch", "~/.aws"),
    (r"kube\w*|k8s|helm|argocd", "~/.kube"),
    (r"gcloud|gcp|google-cloud|bigquery", "~/.config/gcloud"),
    (r"azure|az", "~/.azure"),
    (r"gh|github-cli", "~/.config/gh"),
    (r"docker", "~/.docker"),
    (r"mcp-remote", "~/.mcp-auth"),
    (r"ssh", "~/.ssh"),
)
"""Words in an entry's command, and the store that such a server needs by nature."""

HERE = "/"
"""In a tree: what holds for what it does not name at this place."""
Tree: TypeAlias = dict[str, Any]
"""Paths by their parts; a text at the end says what holds below: `""` nothing, `"r"` reading."""


class Rules(Struct, kw_only=True):
    """What an entry says about its sandbox, with the defaults filled in."""

    level: SandboxLevel
    read: Sequence[str] = ()
    write: Sequence[str] = ()
    network: Literal["on", "off"] | Sequence[int] = "on"
    sockets: bool = True


def rules_of(sandbox: SandboxLevel | Sandbox | None) -> Rules:
    """Return the rules of an entry."""
    if sandbox is None:
        return Rules(level="off")
    table: Sandbox = {"level": sandbox} if isinstance(sandbox, str) else sandbox
    level = table.get("level", "strict")
    if level not in LEVELS:
        msg = f"`sandbox` is one of {', '.join(LEVELS)}, not {level!r}"
        raise ValueError(msg)
    for name in ("read", "write"):
        if not isinstance(table.get(name, ()), list | tuple):
            msg = f"`{name}` of a sandbox is a list of paths"
            raise TypeError(msg)
    return Rules(
        level=level,
        read=table.get("read", ()),
        write=table.get("write", ()),
        network=table.get("network", "on"),
        sockets=table.get("sockets", level != "strict"),
    )


def read_sandbox(value: object) -> tuple[SandboxLevel | Sandbox | None, list[str], list[str]]:
    """Return the value of the key, what is wrong with it, and what cannot be kept of another host's form."""
    if value is None or (isinstance(value, str) and value in LEVELS):
        return value, [], []
    if not isinstance(value, dict):
        return None, [f"expected {', '.join(LEVELS)}, or a table"], []
    table = {name: one for name, one in cast("dict[str, Any]", value).items() if one is not None}
    notes = _translated(table)
    problems = [f"`{name}` is not one of {', '.join(KEYS)}" for name in table if name not in KEYS]
    if table.get("level", "strict") not in LEVELS:
        problems.append(f"`level` is one of {', '.join(LEVELS)}")
    for name in ("read", "write"):
        paths = _listed([table[name]] if isinstance(table.get(name), str) else table.get(name, []))
        if paths is None or not all(isinstance(one, str) and one for one in paths):
            problems.append(f"`{name}` is a list of paths")
        elif name in table:
            table[name] = tuple(paths)
    network: Any = table.get("network", "on")
    ports = _listed(network) or []
    if network not in ("on", "off") and not ports:
        problems.append('`network` is "on", "off" or a list of TCP ports')
    if not all(type(port) is int and 0 < port <= _HIGHEST_PORT for port in ports):
        problems.append("`network` lists TCP ports; names of hosts cannot be kept, so they are refused")
    if not isinstance(table.get("sockets", True), bool):
        problems.append("`sockets` is true or false")
    if ports:
        table["network"] = tuple(ports)
    return (None if problems else cast("Sandbox", table)), problems, notes


def _translated(table: dict[str, Any]) -> list[str]:
    """Change the form that VS Code, srt and ToolHive have to ours; return what it cannot express."""
    notes: list[str] = []
    files, network = table.get("filesystem"), table.get("network")
    if isinstance(files, dict):
        given = cast("dict[str, list[Any]]", table.pop("filesystem"))
        for name, theirs in (("read", "allowRead"), ("write", "allowWrite")):
            paths: list[Any] = given.get(theirs) or []
            texts = [cast("Any", one).get("path") if isinstance(one, dict) else one for one in paths]
            table[name] = [*table.get(name, ()), *texts]
        if given.get("denyRead") or given.get("denyWrite"):
            notes.append("what is denied inside of a folder that is granted stays granted")
    if isinstance(network, dict):
        given = cast("dict[str, Any]", network)
        given = given.get("outbound") or given
        hosts, ports = given.get("allowedDomains", given.get("allow_host")), given.get("allow_port")
        if given.get("insecure_allow_all") or (hosts == ["*"] and not given.get("deniedDomains")):
            table["network"] = "on"
        else:
            table["network"] = list(ports or (WEB_PORTS if hosts else ())) or "off"
        if hosts and table["network"] != "on":
            notes.append("hosts cannot be kept: the TCP ports are limited instead, for every host")
    return notes


def as_vscode(rules: Rules) -> dict[str, Any] | None:
    """Return a sandbox in the keys of VS Code; `None` for one that they cannot express."""
    if rules.level != "strict" or rules.sockets or not isinstance(rules.network, str):
        return None
    files = {"allowWrite": list(rules.write), "allowRead": list(rules.read)}
    table: dict[str, Any] = {"filesystem": {name: paths for name, paths in files.items() if paths}}
    table |= {"network": {"allowedDomains": []}} if rules.network == "off" else {}
    return {"sandboxEnabled": True} | ({"sandbox": table} if any(table.values()) or len(table) > 1 else {})


def _listed(value: object) -> list[Any] | None:
    return list(cast("Sequence[Any]", value)) if isinstance(value, list | tuple) else None


def with_paths(
    sandbox: SandboxLevel | Sandbox | None, change: Callable[[str], str]
) -> SandboxLevel | Sandbox | None:
    """Return the same with other paths."""
    if not isinstance(sandbox, dict):
        return sandbox
    table = cast("dict[str, Any]", sandbox)
    lists = {name: tuple(map(change, table[name])) for name in ("read", "write") if name in table}
    return cast("Sandbox", {**sandbox, **lists})


def add_path(tree: Tree, path: str, said: str | Tree = "") -> bool:
    """Enter an absolute path; return whether that changed anything. The stricter of two entries holds."""
    *outer, last = path.strip("/").split("/")
    for part in outer:
        inner = tree.setdefault(part, {})
        if inner == "":
            return False
        if not isinstance(inner, dict):
            inner = tree[part] = {HERE: inner}  # Below what may be read there is something stricter.
        tree = cast("Tree", inner)
    before = tree.get(last)
    if before == "" or before == said:
        return False
    if isinstance(before, dict) and said == "r":
        inside = cast("Tree", before)
        is_new = inside.get(HERE) != "r"
        inside[HERE] = "r"
        return is_new
    if isinstance(before, dict) and isinstance(said, dict):
        inside = cast("Tree", before)
        changed = {name for name, one in said.items() if name != HERE and add_path(inside, name, one)}
        if said.get(HERE) == "r" != inside.get(HERE):
            inside[HERE] = "r"
            return True
        return bool(changed)
    tree[last] = said
    return True


def below(tree: Tree, name: str, patterns: Iterable[tuple[re.Pattern[str], Any]]) -> Any:
    """Return what a level of the tree says about a name; `None` if nothing."""
    found = tree.get(name)
    return (
        next((said for pattern, said in patterns if pattern.fullmatch(name)), None)
        if found is None
        else found
    )


def patterns_of(tree: Tree) -> list[tuple[re.Pattern[str], Any]]:
    """Return the names with a `*` of one level of the tree."""
    return [
        (re.compile(re.escape(name).replace(r"\*", ".*"), re.IGNORECASE | re.DOTALL), said)
        for name, said in tree.items()
        if "*" in name
    ]


def needed_store(words: Iterable[str]) -> str:
    """Return the store that a server needs by nature, told by its command; empty if none is known."""
    text = " ".join(words)
    return next(
        (store for word, store in NEEDS if re.search(rf"(?<![a-z]){word}(?![a-z])", text, re.IGNORECASE)), ""
    )


def store_of(path: str, home: str) -> str:
    """Return the store at home that a path is in, or the path itself."""
    if path.startswith(f"{home}/"):
        parts = path[len(home) + 1 :].split("/")
        for count in range(1, len(parts) + 1):
            if any(fnmatch("/".join(parts[:count]), store) for store in STORES):
                return f"{home}/{'/'.join(parts[:count])}"
    return path


_QUOTED = r"['\"`‘]?(?<![\w/.~-])(?P<path>~?/[^'\"`’\n:,]{1,1000})['\"`’]?"
_WORD = _QUOTED.replace("[^'", r"[^\s'")
"""Where nothing before a path says that it begins, it has no spaces: else each word could be the start."""
_DENIED = tuple(
    re.compile(pattern)
    for pattern in (
        rf"(?:EACCES|EPERM)[^\n]{{0,80}}?(?P<verb>\b[a-z]+\b) {_QUOTED}",
        rf"\[Errno (?:1|13)\] [^\n:]{{1,60}}: {_QUOTED}",
        rf"(?P<verb>\b[a-z]+\b)? ?{_WORD}: (?i:permission denied|operation not permitted)",
        rf"(?i:permission denied|operation not permitted|access denied)[^\n/~]{{0,60}}{_QUOTED}",
    )
)
_WRITES = frozenset(
    {"mkdir", "unlink", "rmdir", "rename", "symlink", "link", "truncate", "copyfile", "touch", "create"}
)


def denied_paths(text: str) -> list[tuple[str, bool]]:
    """Return the paths that a text says were refused, and whether to write them was surely wanted."""
    found: dict[str, bool] = {}
    for pattern in _DENIED:
        for match in pattern.finditer(text[-20_000:]):
            writes = (match.groupdict().get("verb") or "") in _WRITES
            path = match["path"].rstrip(" .)]")
            found[path] = found.get(path, False) or writes
    return list(found.items())
