"""Two small, real MCP servers, for `make run`, the documentation and the tests.

`dragoman.demo.legal` answers over sample legal texts; `dragoman.demo.studio` shows each kind of result.
"""
