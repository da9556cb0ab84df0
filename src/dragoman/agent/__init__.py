"""An agent that uses the tools: the loop, the words of its conversation, and the models behind it."""
