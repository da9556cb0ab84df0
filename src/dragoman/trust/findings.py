"""Find tool definitions that look like attempts to manipulate a model (tool poisoning).

Nothing leaves the machine. These are heuristics: a finding is a reason to look, never to block, since a
clever text has none and an honest one may have one. Everything that a model reads of a tool is checked,
including the texts in its schema: a poisoned `enum` or `default` works as well as a description. Invisible
characters are removed first, so that a zero-width space in a word does not hide it.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

from dragoman.struct import Struct
from dragoman.trust.sanitizing import for_log, for_model, look_alikes, odd_letters
from dragoman.visible import hidden_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

Kind: TypeAlias = Literal[
    "override",
    "hidden-instructions",
    "secrecy",
    "exfiltration",
    "secret-files",
    "other-tools",
    "hidden-text",
    "escape-sequence",
    "encoded",
    "look-alike",
    "odd-name",
]


class Sign(NamedTuple):
    """One kind of suspicious wording, and why it is suspicious."""

    kind: Kind
    pattern: re.Pattern[str]
    why: str


def words(text: str) -> str:
    """Return a pattern for any of some words or phrases, which are separated by two spaces."""
    return rf"\b(?:{'|'.join(text.split('  '))})\b"


def chain(*links: str | int) -> str:
    """Join patterns with gaps of at most so many characters."""
    return "".join(f".{{0,{link}}}" if isinstance(link, int) else link for link in links)


def _sign(kind: Kind, why: str, *patterns: str) -> Sign:
    return Sign(kind, re.compile("|".join(patterns), re.IGNORECASE), why)


_TOOL = words("tools?  functions?  commands?")
_OTHER = words("any  every  all  other  another")
_NEVER = words("do not  don't  never  must not  without  avoid")
_PRIVATE = words(
    "system prompt  conversation(?: history)?  chat history  previous messages  user(?:'s)? messages?  "
    "user(?:'s)? prompts?  api[ _-]?keys?  access[ _-]?tokens?  credentials?  passwords?  private keys?  "
    "ssh keys?  environment variables  secrets?"
)
_KEY_FILE = r"(?:\.ssh\b|\bid_rsa\b|\bid_ed25519\b|\bmcp\.json\b|\.aws/credentials|/etc/passwd|\.env\b)"
_HAND_ON = words(
    "send  forward  upload  post  transmit  exfiltrate  leak  append  include  pass  attach  copy  bcc"
)
_OUTSIDE = (
    r"(?:https?://|\bthis (?:tool|parameter|field|argument)\b"
    r"|\bthe (?:side ?note|notes?|context|metadata|feedback|comment|query string)\b"
    r"|[\w.+-]{1,64}@[\w-]{1,63}\.\w{2,10})"
)

SIGNS = (
    _sign(
        "override",
        "tells the model to ignore its instructions",
        chain(
            words("ignore  disregard  forget  override  bypass"),
            20,
            words(
                "all  any  every  previous  prior  above  earlier  preceding  your  system  other  developer"
            ),
            20,
            words(
                "instructions?  prompts?  rules?  guidelines?  directives?  messages  polic(?:y|ies)  safety"
            ),
        ),
        r"\b(?:new|updated|real|actual) (?:system )?instructions? ?[:：]",
        chain(
            r"\byou are now (?:a|an|in|the)\b", 40, r"\b(?:jailbr|unrestricted|dan\b|developer mode|god mode)"
        ),
        r"(?:忽略|无视|忘记).{0,10}(?:之前|以上|先前|所有|系统).{0,10}(?:指令|提示|规则|说明)",
    ),
    _sign(
        "hidden-instructions",
        "has a block that addresses only the model",
        r"< ?/? ?(?:important|system|secret|hidden|admin|critical|sudo|system[_ -]?prompt) ?>",
        # Honest descriptions use this tag too, as a heading, so check the text after it.
        rf"< ?instructions? ?>(?=.{{0,80}}{words('must  always  never  secret  do not  before  ignore')})",
        r"<\|(?:im_start|im_end|system|endoftext|start_header_id)\|>|\[/?INST\]|<<SYS>>",
        r"(?:^|\n)[ \t]{0,10}#{1,3}[ \t]{1,3}(?:system|hidden) (?:prompt|instructions?|message)\b",
        rf"<!--(?=.{{0,80}}{words('must  always  never  instructions?  secret  do not  send  read')})",
    ),
    _sign(
        "secrecy",
        "asks the model to hide something from the user",
        chain(
            _NEVER,
            20,
            words(
                "tell  telling  mention  mentioning  inform  informing  reveal  revealing  notify  "
                "notifying  alert  alerting  disclose  disclosing  let"
            ),
            30,
            words("user  human  person  anyone"),
        )
        + r"(?! (?:id|name|how)\b)",
        chain(
            r"\b(?:keep|hide|conceal) (?:this|it|these|that)\b",
            20,
            words("secret  hidden  from the (?:user|human)"),
        ),
        r"(?:不要|别|切勿).{0,6}(?:告诉|告知|透露|提及).{0,6}用户",
    ),
    _sign(
        "exfiltration",
        "asks the model to pass on private data",
        chain(_HAND_ON, 40, _PRIVATE, 40, words("to  into  in  as  via  through"), 20, _OUTSIDE),
        chain(
            words("read  cat  open  load  fetch  retrieve"),
            40,
            f"(?:{_KEY_FILE}|{_PRIVATE})",
            40,
            words("and  then"),
            20,
            words("pass  send  include  provide  put  append  attach  insert"),
        ),
        chain(words("sidenote  side_note  exfil"), 80, f"(?:{_KEY_FILE}|{_PRIVATE})"),
    ),
    _sign(
        "secret-files",
        "names files that contain secrets",
        r"(?:~|\$HOME|/home/\w{1,32}|/root|/Users/\w{1,32})/\."
        r"(?:ssh|aws|gnupg|kube|docker|netrc|npmrc|pypirc|git-credentials|cursor|claude|config/gh)\b",
        r"\bid_(?:rsa|ed25519|ecdsa|dsa)\b(?!\.pub)|/etc/(?:shadow|passwd|sudoers)\b|\.aws/credentials",
        r"\.cursor/mcp\.json|\bclaude_desktop_config\.json|\bwallet\.dat\b",
    ),
    _sign(
        "other-tools",
        "gives instructions about other tools",
        chain(
            words("before  after  prior to  whenever  when  each time  every time"),
            20,
            words("using  calling  invoking  running  executing  use  call  invoke"),
            15,
            _OTHER,
            15,
            _TOOL,
            60,
            words("must  always  first  have to  call  use  run  invoke"),
        ),
        chain(
            r"\bmust (?:always )?be (?:called|used|run|invoked|executed)\b",
            20,
            words("before  after  instead of  prior to"),
            10,
            _OTHER,
            15,
            _TOOL,
        ),
        chain(
            words("do not  don't  never  stop"),
            5,
            words("use  using  call  calling  trust"),
            12,
            r"\bother\b",
            20,
            _TOOL,
        ),
        chain(
            words("redirect  reroute  change  replace  modify"),
            30,
            words("recipients?  destination  arguments?  parameters?"),
            30,
            r"\bother\b",
            15,
            _TOOL,
        ),
    ),
)

BLOB = re.compile(
    r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{120,}={0,2}|(?:\\x[0-9a-f]{2}){16,}|(?:%[0-9a-f]{2}){20,}",
    re.IGNORECASE,
)
"""Encoded data, longer than any honest example."""
STEERING = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""Control characters other than tabs and line ends."""


MAX_TEXT_CHARS = 20_000
MAX_TEXTS = 2_000
"""Findings reported per definition."""
EXCERPT_CHARS = 120


class Finding(Struct, kw_only=True):
    """One suspicious text."""

    kind: Kind
    subject: str
    """The tool's or prompt's name; empty for instructions."""
    field: str
    """Its place: `description`, `inputSchema/properties/path/description`."""
    excerpt: str
    """The suspicious text, short and safe to print."""
    why: str

    def __str__(self) -> str:
        name = f"`{for_log(self.subject, 100)}`, " if self.subject else ""
        return f"{name}{for_log(self.field, 200)}: {self.why}: “{self.excerpt}”"


def inspect_tool(tool: Mapping[str, Any]) -> list[Finding]:
    """Check a raw entry of a server's listing."""
    name = tool.get("name")
    subject = name if isinstance(name, str) else ""
    found = [
        finding
        for field, text in texts_of(tool)
        for finding in inspect_text(text, subject=subject, field=field)
    ]
    if odd := odd_letters(subject):
        found.append(
            Finding(kind="odd-name", subject=subject, field="name", excerpt=for_log(subject, 100), why=odd)
        )
    return found


def inspect_server(
    tools: Iterable[Mapping[str, Any]], *, prompts: Iterable[Mapping[str, Any]] = (), instructions: str = ""
) -> list[Finding]:
    """Check everything that a server offers."""
    listed = list(tools)
    found = [finding for tool in listed for finding in inspect_tool(tool)]
    found += [finding for prompt in prompts for finding in inspect_tool(prompt)]
    found += inspect_text(instructions, field="instructions")
    return found + inspect_names(str(tool.get("name", "")) for tool in listed)


def inspect_names(names: Iterable[str], *, field: str = "name") -> list[Finding]:
    """Find different names of tools or servers that look the same."""
    return [
        Finding(
            kind="look-alike",
            subject=group[1],
            field=field,
            excerpt=" / ".join(ascii(name)[1:-1] for name in group[:4])[:EXCERPT_CHARS],
            why="these names look the same but differ",
        )
        for group in look_alikes(names)
    ]


def inspect_text(text: str, *, subject: str = "", field: str = "description") -> list[Finding]:
    """Check one text."""
    text = text[:MAX_TEXT_CHARS]
    found: list[Finding] = []

    def add(kind: Kind, excerpt: str, why: str) -> None:
        shown = for_log(excerpt, EXCERPT_CHARS)
        found.append(Finding(kind=kind, subject=subject, field=field, excerpt=shown, why=why))

    if hidden := hidden_in(text):
        add(
            "hidden-text",
            decoded(hidden) or "".join(hidden),
            f"has {len(hidden)} invisible characters",
        )
    if escape := STEERING.search(text):
        add("escape-sequence", text[escape.start() :], "has control characters that control a terminal")
    if blob := BLOB.search(text):
        add("encoded", blob[0], "has a long piece of encoded data")
    plain = unicodedata.normalize("NFKC", for_model(text))
    # Search joined lines too, since sentences may wrap; some patterns need the original lines.
    joined = " ".join(line.strip() for line in plain.split("\n"))
    for sign in SIGNS:
        if match := sign.pattern.search(joined) or ("\n" in plain and sign.pattern.search(plain)):
            start = max(0, match.start() - 10)
            before = match.string[start : match.start()]
            whole = before.partition(" ")[2] if start else before
            add(sign.kind, whole + match.string[match.start() : match.end() + 40], sign.why)
    return found


def decoded(hidden: Sequence[str]) -> str:
    """Return the ASCII text that tag characters spell, for the excerpt."""
    letters = [chr(ord(letter) - 0xE0000) for letter in hidden if 0xE0020 <= ord(letter) <= 0xE007E]
    return "".join(letters)


def texts_of(definition: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield every text of a definition that a model reads, with its place, including argument names."""
    waiting: list[tuple[str, object]] = [
        (key, definition[key])
        for key in ("arguments", "annotations", "outputSchema", "inputSchema", "description", "title")
        if key in definition
    ]
    count = 0
    while waiting and count < MAX_TEXTS:
        place, value = waiting.pop()
        if isinstance(value, str):
            count += 1
            yield place, value
        elif isinstance(value, dict):
            table = cast("dict[object, object]", value)
            for key, inner in table.items():
                if len(str(key)) > 40:
                    count += 1
                    yield f"{place}/{str(key)[:40]}", str(key).replace("_", " ")
                waiting.append((f"{place}/{str(key)[:100]}", inner))
        elif isinstance(value, list):
            waiting += [
                (f"{place}/{index}", inner) for index, inner in enumerate(cast("list[object]", value))
            ]
