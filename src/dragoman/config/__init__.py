"""Read configuration files and variables of any host into `Settings` with `ServerSpec`s; nothing is run."""
