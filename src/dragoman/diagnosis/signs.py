"""Signs in a server's standard error that tell what is wrong with it.

`explain` makes the cause of them, and `hints` the advice, so that both are about the same thing.
"""

from __future__ import annotations

import re

SDK_OLD = re.compile(
    r"No module named ['\"]mcp\.[\w.]+['\"]|cannot import name [^\n]{0,200}? from ['\"]mcp\b"
    r"|AttributeError: (?:module ['\"]mcp\b|'Server' object has no attribute '(?:list|call|get|read)_)"
)
"""Errors of a server that was written for version 1 of the SDK and runs with version 2."""
MODULE = re.compile(
    r"(?:ModuleNotFoundError: No module named|Cannot find (?:module|package)) ['\"]([^'\"]+)['\"]"
)
MISFIT = re.compile(
    r"ImportError: cannot import name ['\"][^'\"\n]{1,100}['\"] from ['\"]([\w.]{1,200})['\"]"
)
PROGRAM = re.compile(
    r"No such file or directory: ['\"]([a-z][\w.-]{0,30})['\"]|\bspawn ([a-z][\w.-]{0,30}) ENOENT"
    r"|\b([a-z][\w.-]{0,30}): (?:command )?not found$|executable file not found in \$PATH",
    re.MULTILINE,
)
"""Errors of a server that starts a missing program."""
BROWSER = re.compile(r"playwright install|Could not find (?:Chrome|browser)|puppeteer browsers install")
NPM_MISSING = re.compile(r"npm (?:ERR!|error) (?:code )?E404|404 Not Found - GET https?://registry\.npmjs")
PYPI_MISSING = re.compile(
    r"was not found in the package registry|No matching distribution found|No solution found when resolving"
)
OFFLINE = re.compile(
    r"EAI_AGAIN|ENOTFOUND|Failed to fetch|dns error|getaddrinfo"
    r"|Name or service not known|Temporary failure in name resolution|NameResolutionError|fetch failed"
)
INSTALLER = re.compile(
    r"\bnpm (?:ERR!|error|warn)|\bregistry\b|\bpypi\b|/simple/|Failed to fetch: `", re.IGNORECASE
)
"""Signs that npm, uv or pip failed, not the program that they start."""
REFUSED = re.compile(
    r"ECONNREFUSED(?: ([\w.:\[\]-]{3,60}:\d{1,5}))?|\b[Cc]onnection\s+refused|actively refused it",
    re.IGNORECASE,
)
HOST = re.compile(
    r"\b(?:hostname: |host=|ENOTFOUND |EAI_AGAIN |resolve host )['\"]?"
    r"((?:[a-z0-9-]{1,63}\.){1,8}[a-z]{2,24})\b",
    re.IGNORECASE,
)
UNTRUSTED = re.compile(
    r"CERTIFICATE_VERIFY_FAILED|SELF_SIGNED_CERT_IN_CHAIN|self[- ]signed certificate"
    r"|UNABLE_TO_GET_ISSUER_CERT|UNABLE_TO_VERIFY_LEAF_SIGNATURE|unable to get local issuer certificate"
    r"|invalid peer certificate"
)
PROXIES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
OLD_NODE = re.compile(
    r"EBADENGINE|Unsupported engine|requires Node|SyntaxError: Unexpected (?:token|identifier)"
    r"|does not support Node(?:\.js)? v?\d|Please upgrade to a newer LTS"
)
DAEMON = re.compile(
    r"Cannot connect to the Docker daemon|docker daemon is not running|dockerDesktopLinuxEngine"
)
USAGE = re.compile(
    r"^(?:\[\d+\])?[ \t]{0,40}usage:|arguments? (?:are|is) required|missing (?:required )?argument"
    r"|required argument"
    r"|number of arguments|command[- ]line arg|unrecognized arguments|no such option|unknown option"
    r"|required[^\n]{0,60}? --[a-z]",
    re.IGNORECASE | re.MULTILINE,
)
NO_SUBCOMMAND = re.compile(
    r"Required command was not provided|Unknown command: (?:undefined|null|none)\b|Missing command\b"
    r"|^[ \t]{0,40}usage:[^\n]{0,200}(?:\bCOMMAND\b|\[command\]|<command>)|(?:sub)?command is required",
    re.IGNORECASE | re.MULTILINE,
)
SUBCOMMAND = re.compile(r"^ {1,8}([a-z][a-z-]{1,30})(?: {2,}|$)", re.MULTILINE)
"""A line in the list of commands of a help text."""
CHOICES = re.compile(r"(?<!\w )\{([a-z][\w,-]{2,200})\}")
"""A positional choice, not a value of an option."""
SERVING = re.compile(r"(?:.*-)?(?:stdio|mcp|serve|server|start|run)(?:-.*)?")
SIGN_IN = re.compile(
    r"\b(?:run|use|try|execute)\b[^\n]{0,60}?"
    r"([`'\"])((?:[\w@./-]{1,60} ){0,4}(?:auth|login|signin|sign-in|configure)(?: [\w-]{1,20}){0,2})\1",
    re.IGNORECASE,
)
"""A quoted command that logs in."""
VARIABLE = re.compile(
    r"\b([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)\b[^\n]{0,60}?"
    r"\b(?:not set|unset|required|missing|must be set|not provided|undefined|not found|unbound variable)\b"
    r"|KeyError: ['\"]([A-Z][A-Z0-9_]{2,60})['\"]"
    r"|\b(?:missing|required|set|provide|pass|no(?! attribute))\b[^\n]{0,60}?"
    r"\b([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)\b",
    re.IGNORECASE,
)
JOINED = re.compile(r"[`'\"]?(?:,? and |, ?)[`'\"]?([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)\b")
"""The next variable in the same list."""
MOST_VARIABLES = 4
TOKEN = re.compile(r"\b(?:api.?key|access.?token|auth(?:entication)? token|credentials)\b", re.IGNORECASE)
MISSING_PATH = re.compile(
    r"annot access directory ([/\\][^\n,]{1,200}|[A-Z]:[^\n,]{1,200}), skipping"
    r"|(?:^|[\s:'\"`])((?:[A-Z]:)?[/\\][^\s:'\"`]{1,200})['\"`]? does not exist"
    r"|[Nn]o such file or directory(?:, \w{1,20}|:) ['\"]((?:[A-Z]:)?[/\\][^\n'\"]{1,200})['\"]",
    re.MULTILINE,
)
NO_REPOSITORY = re.compile(
    r"(?:^|[\s:'\"`])((?:[A-Z]:)?[/\\][^\s:'\"`]{0,200})['\"`]? is not a (?:valid )?[Gg]it repository",
    re.MULTILINE,
)
IN_USE = re.compile(r"EADDRINUSE|[Aa]ddress already in use")
DENIED = re.compile(r"EACCES|[Pp]ermission denied")


def wrong_path(text: str) -> str:
    """Return what is wrong with a path that a server was given; empty if the text names none."""
    if repository := NO_REPOSITORY.search(text):
        return f"`{repository[1]}` is not a Git repository"
    if missing := MISSING_PATH.search(text):
        return f"`{missing[missing.lastindex or 1]}` does not exist"
    return ""


def wanted_variables(text: str) -> list[str]:
    """Return the variables that a text asks for, in their order."""
    found: list[str] = []
    for match in VARIABLE.finditer(text):
        at = match.lastindex or 1
        name, end = match[at], match.end(at)
        while name.isupper():
            if name not in found:
                found.append(name)
            further = JOINED.match(text, end)
            if further is None:
                break
            name, end = further[1], further.end()
        if len(found) >= MOST_VARIABLES:
            break
    return found[:MOST_VARIABLES]
