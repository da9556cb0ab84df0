"""Wrong programs, made of right ones by one mistake each."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

RIGHT = [
    (
        "wanted = {'lamp': 2, 'desk': 1}\n"
        "lines = []\n"
        "for thing, number in wanted.items():\n"
        "    cost = shop.price(item=thing, amount=2)\n"
        "    lines.append(f\"{thing}: {cost['cents'] * number}\")\n"
        "found = shop.find(query='lamp', limit=3)\n"
        "print(found['total'], len(lines))\n"
        "'; '.join(lines)"
    ),
    (
        "first = shop.find(query='lamp', limit=3)\n"
        "names = [one['name'] for one in first['items'] if one['stock'] > 0]\n"
        "if names:\n"
        "    said = shop.order(items=['x'])\n"
        "    print(said.upper())\n"
        "else:\n"
        "    print(shop.price(item='x', amount=1)['currency'])"
    ),
    (
        "articles = law.search_statutes(query='rent', limit=2)\n"
        "titles = [one['title'] for one in articles['results']]\n"
        "listed = fs.list_directory(path=ROOT)\n"
        "said = shop.order(items=['x'], express=True)\n"
        "print(titles, listed['content'].splitlines()[:3], said.upper())"
    ),
    (
        "from collections import Counter\n"
        "seen = Counter()\n"
        "for query in ('lamp', 'desk'):\n"
        "    for one in shop.find(query=query, limit=3)['items']:\n"
        "        seen[one['name']] += 1\n"
        "said = shop.order(items=list(seen))\n"
        "print(seen.most_common(1), said.upper(), shop.price(item='x', amount=2)['cents'])"
    ),
    (
        "found = shop.find(query='lamp', limit=3)\n"
        "for item in found['items']:\n"
        "    cost = shop.price(item=str(item), amount=2)\n"
        "    print(item, cost['cents'])\n"
        "print(found['total'])"
    ),
    (
        "names = ['a', 'b', 'c']\n"
        "costs = [shop.price(item=name, amount=1)['cents'] for name in names]\n"
        "best = names[costs.index(min(costs))]\n"
        "said = shop.order(items=[best], express=True)\n"
        "said.upper()"
    ),
    (
        "def total(names):\n"
        "    return sum(shop.price(item=name, amount=1)['cents'] for name in names)\n"
        "said = shop.order(items=['x'])\n"
        "print(total(['a', 'b']), said.upper())"
    ),
    (
        "listed = fs.list_directory(path=ROOT)\n"
        "names = [line.split()[-1] for line in listed['content'].splitlines()]\n"
        "texts = [fs.read_text_file(path=ROOT + '/' + name)['content'] for name in names[:3]]\n"
        "print(sum(len(text) for text in texts))"
    ),
    (
        "answer = law.search_statutes(query='deposit', limit=2)\n"
        "for one in answer['results']:\n"
        "    print(one['title'])\n"
        "again = law.search_statutes(query='rent', limit=1)\n"
        "print(len(again['results']))"
    ),
]
"""Each begins with a call, so that a mistake that is found late has run something."""

MISTAKES: dict[str, list[tuple[str, str]]] = {
    "wrong argument type": [
        ("limit=3", "limit='3'"),
        ("amount=2", "amount='two'"),
        ("amount=1", "amount=[1]"),
        ("items=[best]", "items=best"),
        ("items=['x']", "items='x'"),
        ("express=True", "express='yes'"),
        ("list_directory(path=", "list_directory(path=1, x="),
        ("query='deposit'", "query=7"),
        ("query='lamp'", "query=None"),
        ("limit=2", "limit='two'"),
    ],
    "missing argument": [
        ("query='lamp', limit=3", "limit=3"),
        (", amount=2", ""),
        (", amount=1", ""),
        ("item=name, ", ""),
        ("list_directory(path=", "list_directory(folder="),
        ("query='deposit', ", ""),
        ("query='rent', ", ""),
        ("items=['x']", ""),
    ],
    "unknown argument": [
        ("limit=3", "limits=3"),
        ("amount=2", "amount=2, currency='EUR'"),
        ("item=name", "name=name"),
        ("express=True", "fast=True"),
        ("list_directory(", "list_directory(recursive=True, "),
        ("limit=2", "max=2"),
    ],
    "unknown tool": [
        ("shop.find", "shop.search"),
        ("shop.price", "shop.prices"),
        ("shop.order", "shop.buy"),
        ("fs.list_directory", "fs.listdir"),
        ("fs.read_text_file", "fs.read_text"),
        ("law.search_statutes", "law.search_statute"),
    ],
    "unknown module": [
        ("shop.", "store."),
        ("fs.", "filesystem."),
        ("law.", "laws."),
        ("shop.order", "warehouse.order"),
    ],
    "wrong result field": [
        ("listed['content']", "listed['contents']"),
        ("listed['content']", "listed.content"),
        ("name)['content']", "name)['text']"),
        ("answer['results']", "answer['hits']"),
        ("again['results']", "again['result']"),
        ("one['title']", "one['titel']"),
        ("answer['results']", "answer.results"),
    ],
    "wrong field of an item": [
        ("one['name']", "one['nam']"),
        ("one['name']", "one.name"),
        ("one['stock'] > 0", "one['stock'] > 'many'"),
        ("['cents'] * number", "['cent'] * number"),
        ("['currency']", "['curency']"),
        ("['total']", "['totals']"),
        ("['items']", "['item']"),
    ],
    "wrong use of a text": [
        ("said.upper()", "said['status']"),
        ("said.upper()", "said.uper()"),
        ("said.upper()", "said + 1"),
        ("text) for text", "text) + text for text"),
    ],
    "undefined name": [
        ("names[costs", "name_list[costs"),
        ("print(total(", "print(totals("),
        ("in found[", "in fond["),
        ("in names[:3]", "in name[:3]"),
        ("len(again", "len(agian"),
        ("item, cost", "items, cost"),
        ("lines.append", "line.append"),
        ("'; '.join(lines)", "'; '.join(rows)"),
        ("print(titles", "print(title"),
        ("list(seen)", "list(saw)"),
    ],
    "syntax": [
        (":\n    ", "\n    "),
        ("print(", "print(("),
        ("'a', 'b'", "'a, 'b'"),
        ("    print(", "  print("),
        ("for name in", "for name of"),
        ("for line in", "for (line in"),
        ("= ", "== = "),
    ],
    "unsupported": [
        ("print(", "import requests\nprint("),
        ("said.upper()", "open('x').write(said)"),
        ("def total(names):\n    return", "def total(names):\n    yield"),
        ("names = ", "import pandas as pd\nnames = "),
        ("texts = ", "import subprocess\ntexts = "),
        ("again = ", "import os\nos.system('ls')\nagain = "),
        ("print(sum(", "input('go?')\nprint(sum("),
        ("print(found", "return (found"),
    ],
}


def right_programs(root: str) -> list[str]:
    """Return the programs without a mistake."""
    return [program.replace("ROOT", repr(root)) for program in RIGHT]


def wrong_programs(random: Random, count: int, root: str) -> list[tuple[str, str]]:
    """Return programs with one mistake each, and the kind of the mistake."""
    every = [
        (kind, changed)
        for kind, changes in MISTAKES.items()
        for right, wrong in changes
        for program in right_programs(root)
        for changed in _changed(program, right, wrong)
    ]
    return random.sample(every, count)


def _changed(program: str, right: str, wrong: str) -> list[str]:
    """Return the program with the mistake in each place where it makes another program of it."""
    parts = program.split(right)
    made = [right.join(parts[:at]) + wrong + right.join(parts[at:]) for at in range(1, len(parts))]
    return [one for one in made if _tree(one) != _tree(program)]


def _tree(program: str) -> str:
    try:
        return ast.dump(ast.parse(program))
    except SyntaxError:
        return ""
