"""The words of `Texts` in other languages, and which language a user reads.

Notices, notes on fallbacks and the list of sources have a translation; error messages and the log do not.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dragoman.model import Texts
from dragoman.struct import field_names

if TYPE_CHECKING:
    from collections.abc import Mapping

LANGUAGES: dict[str, Texts] = {
    "en": Texts(),
    "zh": Texts(
        sources="来源：",
        updated="（更新于 {date}）",
        undated="（更新时间未知）",
        answered_by="[由 `{name}` 代为回答，因为 `{server}` 不可用]",
        server_lost="服务器 `{server}` 不可用{reason}；恢复之前，它的工具可能失败",
        server_back="服务器 `{server}` 已恢复可用",
        tools_changed="服务器 `{server}` 的工具有变化（{changes}）",
        tools_added="新增：{names}",
        tools_removed="移除：{names}",
        tools_altered="变更：{names}",
        more_names="{names} 以及另外 {count} 个",
    ),
}

_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_LOCALE = ("LC_ALL", "LC_MESSAGES", "LANG")


def language_of(env: Mapping[str, str]) -> str:
    """Return the language of an environment's locale, such as `zh` for `zh_CN.UTF-8`."""
    locale = next((value for name in _LOCALE if (value := env.get(name))), "")
    return re.split(r"[_.@-]", locale.lower(), maxsplit=1)[0]


def in_language(texts: Texts, language: str) -> Texts:
    """Return an application's words, with the others in a language; in English if that one is unknown."""
    other, english = LANGUAGES.get(language), LANGUAGES["en"]
    if other is None or other is english:
        return texts
    names = field_names(texts)
    return texts.replace(
        **{name: getattr(other, name) for name in names if getattr(texts, name) == getattr(english, name)},
    )


def fill(text: str, **values: object) -> str:
    """Return a text with its placeholders filled in, in one pass: a value is never read as a placeholder."""
    return _PLACEHOLDER.sub(lambda match: str(values.get(match[1], match[0])), text)
