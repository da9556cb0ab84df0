"""The version, in the one place that packaging and `--version` both read."""

VERSION = "0.1.0"
