"""The web console: readings of a manager as JSON and events, what a person may do, and the static pages."""
