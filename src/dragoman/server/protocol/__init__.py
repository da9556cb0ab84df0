"""JSON-RPC and MCP sessions: the message core, requests with deadlines, and the one seam to the SDK."""
