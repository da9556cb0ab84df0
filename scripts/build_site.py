"""Build the documentation site in `build/site`, in English and, below `zh/`, in Chinese.

The order of the pages is that of `docs/README.md`, and of `docs/README.zh-CN.md` for the Chinese ones. The
pages that programs write (commands, library, requirements) are written here. The tools have an environment of
their own in `.cache/site`; once it is there, nothing goes to the network. The build fails if a link leads
nowhere, or if a page would load anything from another host.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from scripts import draw_api, draw_cli, draw_mission
from scripts.environment import ROOT, InstallError, install_locked, python_in

DOCS = ROOT / "docs"
BUILD = ROOT / "build"
SITE = BUILD / "site"
TOOLS = ROOT / ".cache" / "site"
CHINESE = ".zh-CN.md"
WRITTEN = {
    "Commands": ("cli.md", draw_cli.page),
    "Library": ("api.md", draw_api.page),
    "Requirements": ("mission.md", draw_mission.current),
}
"""Pages that are in no folder, by what the index calls them: their place in `docs/`, and what writes them."""
_LINK = re.compile(
    r"^ *```.*?^ *```$"
    r"|(?P<picture>!?)\[(?P<words>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<link>[^)\s]+)\)|`[^`\n]*`",
    re.DOTALL | re.MULTILINE,
)
"""A link or a picture; or code, in which nothing is a link."""
_BREAK = re.compile(
    r"^ *```.*?^ *```$|^#[^\n]*\n|(?<=[\u3000-\u9fff\uff00-\uffef])\n *(?=[\u3000-\u9fff\uff00-\uffef])",
    re.DOTALL | re.MULTILINE,
)
"""A line break between Chinese characters, which HTML shows as a space; or what has its breaks on purpose."""
_FILE = re.compile(r"^<!-- file: (\S+) -->\n(```\w+)$", re.MULTILINE)
_REMARK = re.compile(r"^<!-- .*? -->$", re.MULTILINE)
_ENTRY = re.compile(
    r"^(?:(?P<level>##+) (?P<section>.+)|- \[(?P<title>[^\]]+)\]\((?P<link>[^):#]+\.md)\).*)$", re.MULTILINE
)
_TO_WRITE = re.compile(r"^- (\w+) \(written by `make docs`\)", re.MULTILINE)


class Page(NamedTuple):
    """A page of the site."""

    source: Path
    """Where it is in the repository, or would be if it were not written by a program."""
    place: str
    """Where its Markdown is in the site."""
    text: str

    @property
    def language(self) -> str:
        """Return `en` or `zh`."""
        return "zh" if self.place.startswith("zh/") else "en"

    @property
    def summary(self) -> str:
        """Return its sentence for an index, empty if it has none."""
        found = re.match(r"---\nsummary: (.+)\n", self.text)
        return found[1] if found else ""


def main() -> int:
    """Build the site; return the exit code."""
    try:
        if install_locked(TOOLS, ROOT / "requirements" / "site.txt"):
            print("The tools of the site are ready.", flush=True)
    except InstallError as error:
        print(f"The tools of the site cannot be installed. {error}", file=sys.stderr)
        return 1
    found = pages()
    shutil.rmtree(SITE, ignore_errors=True)
    for language in ("en", "zh"):
        chosen = [page for page in found.values() if page.language == language]
        stage(chosen, found, language)
        build(language, navigation(found, DOCS / ("README.md" if language == "en" else f"README{CHINESE}")))
    for page in found.values():
        shutil.copy(staged(page), SITE / page.place)
    (SITE / "llms.txt").write_text(index_for_models(found), "utf-8")
    problems = broken(SITE)
    print("\n".join(problems), file=sys.stderr)
    if not problems:
        print(f"{len(found)} pages, every link checked: {SITE.relative_to(ROOT) / 'index.html'}")
    return 1 if problems else 0


def pages() -> dict[Path, Page]:
    """Return every page of the site by its place in the repository."""
    files = [*DOCS.rglob("*.md"), *ROOT.glob("*.md"), *(ROOT / "examples").rglob("*.md")]
    texts = {file: file.read_text("utf-8") for file in sorted(files)}
    texts |= {DOCS / name: write() for name, write in WRITTEN.values()}
    index = DOCS / "README.md"
    texts[index] = _TO_WRITE.sub(lambda match: f"- [{match[1]}]({WRITTEN[match[1]][0]})", texts[index])
    return {file: Page(file, _place(file), text) for file, text in texts.items()}


def _place(file: Path) -> str:
    """Return where a page is in the site: `docs` is its root, and its README the home."""
    name = file.relative_to(DOCS if file.is_relative_to(DOCS) else ROOT).as_posix()
    if file.parent == ROOT:
        name = {"README.md": "overview.md", f"README{CHINESE}": f"overview{CHINESE}"}.get(name, name.lower())
    name = re.sub(r"README(\.zh-CN)?\.md$", r"index\1.md", name)
    return f"zh/{name.replace(CHINESE, '.md')}" if name.endswith(CHINESE) else name


def staged(page: Page) -> Path:
    """Return the file from which a page is built."""
    return BUILD / "pages" / page.language / page.place.removeprefix("zh/")


def stage(chosen: list[Page], found: dict[Path, Page], language: str) -> None:
    """Write the pages of a language with links that hold in the site, and its pictures."""
    folder = BUILD / "pages" / language
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("images", "site"):
        shutil.copytree(DOCS / name, folder / name, ignore=shutil.ignore_patterns("*.yml"))
    for page in chosen:
        target = staged(page)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(for_the_site(page, found), "utf-8")


def for_the_site(page: Page, found: dict[Path, Page]) -> str:
    """Return the Markdown of a page: files have titles, and links lead to pages, not into the repository."""
    here = Path(page.place).parent

    def linked(match: re.Match[str]) -> str:
        path, hash_, anchor = (match["link"] or "").partition("#")
        if not path or re.match(r"[a-z]+:", path):
            return match[0]
        target = Path(os.path.normpath(page.source.parent / path))
        other = found.get(target) or found.get(target / "README.md")
        if match["picture"]:
            place = f"{'zh/' * (page.language == 'zh')}{target.relative_to(DOCS)}"
        elif other is not None:  # what another language has is not built from Markdown here
            place = other.place if other.language == page.language else f"{other.place[:-3]}.html"
        else:  # what is no page is only named; a link to nothing stays, for the check
            return match["words"] if target.exists() else match[0]
        return f"{match['picture']}[{match['words']}]({os.path.relpath(place, here)}{hash_}{anchor})"

    text = re.sub(r"\A---\n.*?^---\n", "", page.text, flags=re.DOTALL | re.MULTILINE)
    text = f"---\ndescription: {json.dumps(page.summary, ensure_ascii=False)}\n---\n{text}"
    text = _REMARK.sub("", _FILE.sub(r'\2 title="\1"', text))
    text = _BREAK.sub(lambda found: found[0].strip("\n ") and found[0], text)
    return _LINK.sub(linked, text)


def navigation(found: dict[Path, Page], index: Path) -> list[Any]:
    """Return the sections and pages in the order of an index, as MkDocs takes them."""
    order: list[Any] = ["index.md"]
    levels = [order]
    for entry in _ENTRY.finditer(found[index].text):
        if entry["section"]:
            del levels[len(entry["level"]) - 1 :]
            rows: list[Any] = []
            levels[-1].append({entry["section"][0].upper() + entry["section"][1:]: rows})
            levels.append(rows)
            continue
        page = found.get(Path(os.path.normpath(index.parent / entry["link"])))
        if page is not None and page.language == found[index].language:
            levels[-1].append({entry["title"]: page.place.removeprefix("zh/")})
    return order


def build(language: str, order: list[object]) -> None:
    """Let MkDocs build one language."""
    is_chinese = language == "zh"
    up = "../" * is_chinese
    settings = {
        "INHERIT": str(DOCS / "site" / "mkdocs.yml"),
        "docs_dir": str(BUILD / "pages" / language),
        "site_dir": str(SITE / "zh" if is_chinese else SITE),
        "nav": order,
        "theme": {"language": language},
        "extra": {
            "alternate": [
                {"name": "English", "link": f"{up}index.html", "lang": "en"},
                {"name": "中文", "link": "index.html" if is_chinese else "zh/index.html", "lang": "zh"},
            ]
        },
        # A link to the other language is checked with all others, in what was built.
        "validation": {"links": {"not_found": "ignore", "anchors": "ignore", "unrecognized_links": "ignore"}},
    }
    file = BUILD / f"mkdocs-{language}.yml"
    file.write_text(json.dumps(settings, ensure_ascii=False, indent=1), "utf-8")
    subprocess.run(
        [str(python_in(TOOLS)), "-m", "mkdocs", "build", "--strict", "--quiet", "--config-file", str(file)],
        check=True,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )


def index_for_models(found: dict[Path, Page]) -> str:
    """Return `llms.txt`: what dragoman is, and the index, whose links lead to the Markdown of each page."""
    said = found[ROOT / "README.md"].text.split("\n\n")[2].replace("\n", " ")
    _, head, rest = for_the_site(found[DOCS / "README.md"], found).partition("\n## ")
    return f"# dragoman\n\n> {said}\n{head}{rest}"


class _Html(HTMLParser):
    """The anchors of a built page, its links, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag names, links to or loads."""
        given = {name: value for name, value in attrs if value is not None}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a":
            self.links += [given["href"]] if "href" in given else []
        else:
            self.loaded += [given[name] for name in ("src", "href", "data") if name in given]


def broken(site: Path) -> list[str]:
    """Return a line for each link that leads nowhere, and for what is loaded from elsewhere."""
    read = {
        file: _Html(file.read_text("utf-8"))
        for file in sorted(site.rglob("*.html"))
        if file.name != "404.html"
    }
    problems: list[str] = []
    for file, page in read.items():
        name = file.relative_to(site)
        problems += [f"{name}: loads {link}" for link in page.loaded if re.match(r"([a-z]+:)?//", link)]
        for link in (*page.links, *page.loaded):
            path, _, anchor = unquote(link).partition("#")
            if re.match(r"([a-z]+:|//)", link):
                continue
            target = Path(os.path.normpath(file.parent / path)) if path else file
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                problems.append(f"{name}: {link} leads nowhere")
            elif anchor and target in read and anchor not in read[target].anchors:
                problems.append(f"{name}: {link}: that page has no such heading")
    styles = [
        file
        for file in site.rglob("*.css")
        if re.search(r"(?:url\(|@import )['\"]?(?:https?:)?//", file.read_text("utf-8"))
    ]
    return problems + [f"{file.relative_to(site)} loads from another host" for file in styles]


if __name__ == "__main__":
    sys.exit(main())
