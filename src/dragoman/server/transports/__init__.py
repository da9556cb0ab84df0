"""How messages reach a server: stdio, Streamable HTTP, SSE, and the SDK's own transports."""
