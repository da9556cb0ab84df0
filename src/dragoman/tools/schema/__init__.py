"""Input schemas: check and coerce arguments, and bound what a check may cost."""
