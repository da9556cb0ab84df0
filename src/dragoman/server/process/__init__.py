"""Server processes: spawning, environment, logs of stderr, and the removal of orphans."""
