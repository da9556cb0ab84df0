"""The wordings by which poisoned definitions give themselves away, as data for `findings`.

A sign is a chain of word groups with a bounded gap between each two, which keeps every pattern linear in the
text. They are narrow on purpose: of the 943 real tools in the tests none has one.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, TypeAlias

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
    """One kind of wording, and what is suspicious about it."""

    kind: Kind
    pattern: re.Pattern[str]
    why: str


def words(text: str) -> str:
    """Match one of some words or phrases, which are parted by two spaces."""
    return rf"\b(?:{'|'.join(text.split('  '))})\b"


def chain(*links: str | int) -> str:
    """Join groups of words by gaps of so many characters at most."""
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
        "it tells the model to drop its instructions",
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
        "it has a block that is addressed to the model alone",
        r"< ?/? ?(?:important|system|secret|hidden|admin|critical|sudo|system[_ -]?prompt) ?>",
        # Honest descriptions have this tag too, as a heading: only what it says can tell.
        rf"< ?instructions? ?>(?=.{{0,80}}{words('must  always  never  secret  do not  before  ignore')})",
        r"<\|(?:im_start|im_end|system|endoftext|start_header_id)\|>|\[/?INST\]|<<SYS>>",
        r"(?:^|\n)[ \t]{0,10}#{1,3}[ \t]{1,3}(?:system|hidden) (?:prompt|instructions?|message)\b",
        rf"<!--(?=.{{0,80}}{words('must  always  never  instructions?  secret  do not  send  read')})",
    ),
    _sign(
        "secrecy",
        "it asks the model to keep something from the user",
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
        "it asks for private things to be handed on",
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
        "it names files that hold secrets",
        r"(?:~|\$HOME|/home/\w{1,32}|/root|/Users/\w{1,32})/\."
        r"(?:ssh|aws|gnupg|kube|docker|netrc|npmrc|pypirc|git-credentials|cursor|claude|config/gh)\b",
        r"\bid_(?:rsa|ed25519|ecdsa|dsa)\b(?!\.pub)|/etc/(?:shadow|passwd|sudoers)\b|\.aws/credentials",
        r"\.cursor/mcp\.json|\bclaude_desktop_config\.json|\bwallet\.dat\b",
    ),
    _sign(
        "other-tools",
        "it gives orders about other tools",
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
"""Data in some encoding, of a length that no example has."""
STEERING = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""Controls other than tabs and line ends."""
