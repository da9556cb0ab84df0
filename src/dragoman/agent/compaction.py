"""What a model is sent of a conversation, when not all of it fits into its window.

Results of the oldest calls go first, then the oldest turns, then the middle of the newest results. A call
never goes without its answer. The system prompt and the question stay, and so does what a search said of a
tool that the model has called since. What was left out once stays out, so that requests begin alike.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from dragoman.agent.messages import Message
from dragoman.agent.providers.parsing import as_object
from dragoman.tools.result.budget import TextBudget, fit, tokens_at_most
from dragoman.tools.search.finders import CALL, RUN_CODE, SEARCH

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

GOAL = 0.7
"""The share of the room that is used after something was left out, so that the next requests fit as well."""
MESSAGE = 8
"""Tokens that a chat template adds to a message."""
PART = 1_500
"""Tokens of an image or a file."""
LEAST = 80
"""A result that takes no more tokens is not left out."""
LEFT_OUT = (
    "[{size:,} characters of this result are left out, to save room; call the tool again if you need them]"
)
EARLIER = "[notice] earlier messages are left out, to save room"


def tokens_of(message: Message) -> int:
    """Return the most tokens that a message may take."""
    tokens = MESSAGE + PART * len(message.parts) + tokens_at_most(message.text)
    for call in message.calls:
        tokens += MESSAGE + tokens_at_most(call.name) + tokens_at_most(call.raw or _json(call.arguments))
    return tokens + (tokens_at_most(_json(dict(message.native))) if message.native else 0)


class SentMessages:
    """The messages of a conversation as they are sent, without the system prompt."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._sizes: list[int] = []
        self._used: set[str] = set()
        """The names that the model has called, directly or with `call_tool`."""
        self._searches: set[str] = set()
        """The ids of its searches."""

    def add(self, messages: Sequence[Message]) -> None:
        """Append messages."""
        self.messages += messages
        for call in (call for message in messages for call in message.calls):
            name = as_object(call.arguments).get("name") if call.name == CALL else call.name
            self._used.add(str(name))
            if name == SEARCH:
                self._searches.add(call.id)

    @property
    def tokens(self) -> int:
        """The most tokens that the messages may take."""
        self._sizes += map(tokens_of, self.messages[len(self._sizes) :])
        return sum(self._sizes)

    def shortened(self, question: Message, room: int) -> Shortened:
        """Return what to send instead, if that is too long; nothing is changed yet.

        Args:
            question: The question that is being answered, which stays whole.
            room: The most tokens that the messages may take.
        """
        is_long = self.tokens > room
        found = Shortened(
            self.messages, self._sizes, question=question, used=self._used, searches=self._searches
        )
        if is_long:
            found.leave_out_results(int(room * GOAL))
            found.leave_out_turns(int(room * GOAL))
            found.cut_newest(room)
        return found

    def take(self, shorter: Shortened) -> None:
        """Send this from now on."""
        self.messages, self._sizes = shorter.whole(), []


class Shortened:
    """A conversation that is being shortened: messages and their sizes by their old places."""

    def __init__(
        self,
        messages: Sequence[Message],
        sizes: Sequence[int],
        *,
        question: Message,
        used: set[str],
        searches: set[str],
    ) -> None:
        self._kept = dict(enumerate(messages))
        self._sizes = dict(enumerate(sizes))
        self._asked = next((at for at, message in self._kept.items() if message is question), 0)
        turns = [at for at, message in self._kept.items() if message.calls and at > self._asked]
        self._newest = turns[-1] if turns else len(messages)
        """The last turn with calls: the model has not read its results yet."""
        self._used = used
        self._searches = searches
        self._changed: set[int] = set()

    @property
    def changed(self) -> int:
        """The number of messages that are shorter now, or gone."""
        return len(self._changed)

    @property
    def tokens(self) -> int:
        """The most tokens that the messages may take."""
        return sum(map(tokens_of, self.whole())) if self._changed else sum(self._sizes.values())

    def leave_out_results(self, goal: int) -> None:
        """Leave out the results of calls, the oldest first."""
        for at in [at for at in self._kept if at < self._newest]:
            if sum(self._sizes.values()) <= goal:
                return
            message = self._kept[at]
            if message.role != "tool" or self._sizes[at] <= LEAST or _loads(message):
                continue
            found = "".join(f"{line}\n" for line in self._found_in(message))
            text = found + LEFT_OUT.format(size=len(message.text) - len(found))
            if len(text) < len(message.text) or message.parts:
                self._put(at, message.replace(text=text, parts=()))

    def leave_out_turns(self, goal: int) -> None:
        """Leave out whole turns, the oldest first: a message, or calls with their results."""
        for turn in self._turns():
            if sum(self._sizes.values()) <= goal:
                return
            if not any(_loads(self._kept[at]) or [*self._found_in(self._kept[at])] for at in turn):
                for at in turn:
                    del self._kept[at], self._sizes[at]
                self._changed.update(turn)

    def cut_newest(self, room: int) -> None:
        """Cut the results that the model has not read yet: those that are longer than an equal share."""
        long = [at for at in self._kept if at > self._newest and self._kept[at].role == "tool"]
        if not self._changed <= self._kept.keys():
            room -= tokens_of(Message(role="user", text=EARLIER))
        while long and sum(self._sizes.values()) > room:
            others = sum(size for at, size in self._sizes.items() if at not in long)
            share = max(0, room - others) // len(long)
            short = [at for at in long if self._sizes[at] <= share]
            if not short:
                for at in long:
                    self._put(at, _cut(self._kept[at], share))
                return
            long = [at for at in long if at not in short]

    def whole(self) -> list[Message]:
        """Return the messages that are left."""
        notice = Message(role="user", text=EARLIER)
        return [notice] * (not self._changed <= self._kept.keys()) + list(self._kept.values())

    def _turns(self) -> list[list[int]]:
        turns: list[list[int]] = []
        for at in [at for at in self._kept if at < self._newest and at != self._asked]:
            message = self._kept[at]
            if at > self._asked and not message.calls and message.role == "assistant":
                continue  # A turn that was paused goes on from here.
            if message.role == "tool" and turns:
                turns[-1].append(at)
            else:
                turns.append([at])
        return turns

    def _put(self, at: int, message: Message) -> None:
        self._kept[at], self._sizes[at] = message, tokens_of(message)
        self._changed.add(at)

    def _found_in(self, message: Message) -> Iterator[str]:
        """Yield what a search said of the tools that were called since."""
        keeps = runs = RUN_CODE in self._used  # A program may call any tool that was found.
        for line in message.text.splitlines() if message.call_id in self._searches else ():
            if not line.startswith("  "):
                keeps = runs or line.partition(": ")[0] in self._used
            if keeps:
                yield line


def _loads(message: Message) -> bool:
    """Return whether the API loads tools from a message."""
    return bool(message.native) and message.role != "assistant"


def _cut(message: Message, tokens: int) -> Message:
    """Return a result that takes at most so many tokens, if it can."""
    if message.parts and tokens_of(message.replace(text="")) > tokens // 2:
        message = message.replace(parts=())
    bare = message.replace(text="")
    size = 4 * max(0, tokens - tokens_of(bare))
    while size:
        shorter = message.replace(text=fit(message.text, TextBudget(limit=size)))
        if tokens_of(shorter) <= tokens:
            return shorter
        size = size * 2 // 3
    left_out = bare.replace(text=LEFT_OUT.format(size=len(message.text)))
    return left_out if len(left_out.text) < len(message.text) else message


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
