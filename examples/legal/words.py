"""The questions, and what program and script say: in English, or in Chinese with LEGAL_LANGUAGE=zh."""

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Words:
    """One language; `{}` is filled in."""

    questions: tuple[str, str, str]
    starting: str
    loading: str
    tools: str
    killed: str
    back: str
    source: str
    updated: str
    no_source: str
    # What the script says in place of a model
    damages: str
    samples: str
    office: str


ENGLISH = Words(
    questions=(
        "What does article 585 of the Civil Code (民法典) say, and of when is the Code?",
        "How much of a deposit (押金) may a landlord ask for?",
        "And can you read article 585 again?",
    ),
    starting="Waiting for {} and {} to start …",
    loading="Waiting for legal to load its laws …",
    tools="{} tools",
    killed="(The server `{}` is killed, and cannot be started again for now.)",
    back="legal: {} again",
    source="source: {}",
    updated=", updated {}",
    no_source="none is named",
    damages="It lets the parties agree on damages:",
    samples="From the samples only, answered by `{}`, since `legal` is not available:",
    office="From the office, answered by `{}`, since `legal` is not available:",
)
CHINESE = Words(
    questions=(
        "《民法典》第 585 条是怎么规定的？这部法典是什么时候的？",
        "房东最多可以收多少押金？",
        "能再读一遍第 585 条吗？",
    ),
    starting="正在等待 {} 和 {} 启动……",
    loading="正在等待 legal 加载法律……",
    tools="{} 个工具",
    killed="（服务器 `{}` 被强行终止，暂时无法重新启动。）",
    back="legal: {}，已恢复",
    source="来源：{}",
    updated="，更新于 {}",
    no_source="未注明",
    damages="该条允许当事人约定违约金：",
    samples="`legal` 不可用，由 `{}` 代为回答，仅来自样例：",
    office="`legal` 不可用，由 `{}` 代为回答，来自律所留存的副本：",
)
WORDS = CHINESE if os.environ.get("LEGAL_LANGUAGE") == "zh" else ENGLISH
