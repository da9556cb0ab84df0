"""The questions, and what program and script say: in the language of the locale, or of LEGAL_LANGUAGE."""

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Words:
    """One language; `{}` is filled in."""

    questions: tuple[str, str, str, str, str]
    starting: str
    loading: str
    tools: str
    killed: str
    back: str
    sources: str
    source: str
    updated: str
    undated: str
    # What the script says in place of a model
    damages: str
    case: str
    letter: str
    samples: str
    office: str


ENGLISH = Words(
    questions=(
        "What does article 585 of the Civil Code (民法典) say?",
        "Has a court decided on a deposit (押金)?",
        "Can you write a request to return it?",
        "How much of a deposit (押金) may a landlord ask for?",
        "And can you read article 585 again?",
    ),
    starting="Waiting for {} and {} to start …",
    loading="Waiting for legal to load its laws …",
    tools="{} tools",
    killed="(The server `{}` is killed, and cannot be started again for now.)",
    back="legal: {} again",
    sources="Sources:",
    source="source: {}",
    updated=", updated {}",
    undated=", date unknown",
    damages="It lets the parties agree on damages:",
    case="Yes, in a sample:",
    letter="Here it is, from a sample template:",
    samples="From the samples only, answered by `{}`, since `legal` is not available:",
    office="From the office, answered by `{}`, since `legal` is not available:",
)
CHINESE = Words(
    questions=(
        "《民法典》第 585 条是怎么规定的？",
        "有没有关于押金的案例？",
        "能写一份退还押金的申请吗？",
        "房东最多可以收多少押金？",
        "能再读一遍第 585 条吗？",
    ),
    starting="正在等待 {} 和 {} 启动……",
    loading="正在等待 legal 加载法律……",
    tools="{} 个工具",
    killed="（服务器 `{}` 被强行终止，暂时无法重新启动。）",
    back="legal: {}，已恢复",
    sources="来源：",
    source="来源：{}",
    updated="，更新于 {}",
    undated="，更新时间未知",
    damages="该条允许当事人约定违约金：",
    case="有，样例如下：",
    letter="已按样例模板写好：",
    samples="`legal` 不可用，由 `{}` 代为回答，仅来自样例：",
    office="`legal` 不可用，由 `{}` 代为回答，来自律所留存的副本：",
)
LANGUAGE = os.environ.get("LEGAL_LANGUAGE") or os.environ.get("LANG", "")[:2]
WORDS = CHINESE if LANGUAGE == "zh" else ENGLISH
