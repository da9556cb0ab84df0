"""Tool search: which tools can do what a request asks for, over any number of tools.

`ToolIndex` is the only door. `words.py` turns text into search words, `vectors.py` into vectors if the extra
`search` is installed. Nothing here reads the network, and nothing knows model APIs.
"""

from dragoman.tools.search.index import Hit, ToolIndex

__all__ = ["Hit", "ToolIndex"]
