"""What may start, be called and be shown: approvals, pins, policy, limits, redaction, sanitizing."""
