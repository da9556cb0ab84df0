"""Watching: events reach whoever listens; nothing here changes what happens."""
