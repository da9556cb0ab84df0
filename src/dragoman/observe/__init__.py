"""Observation: events, metrics, the call log and telemetry. Nothing here changes what happens."""
