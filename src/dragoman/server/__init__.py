"""One server's whole life: its process or its URL, the session on it, and the task that owns both."""
