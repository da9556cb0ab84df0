"""The slash commands, which the session and the dashboard share: one table, and what each command does."""
