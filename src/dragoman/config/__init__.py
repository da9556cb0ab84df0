"""Files and environment, in any dialect, become `Settings` with `ServerSpec`s; nothing is ever run."""
