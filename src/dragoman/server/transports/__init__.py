"""How messages reach a server: stdio, Streamable HTTP and SSE."""
