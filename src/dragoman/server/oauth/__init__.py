"""OAuth: getting, storing, refreshing and revoking tokens, and asking the user to log in."""
