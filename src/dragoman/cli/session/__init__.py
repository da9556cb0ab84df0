"""The interactive session: the line that is typed, the talk with a model, what is asked and shown."""
