"""Tools in the form that each model API wants them: aliases, schemas, and what had to be changed."""
