"""Tool definitions in the form that each model API wants."""
