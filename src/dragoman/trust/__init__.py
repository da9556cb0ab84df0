"""What may be shown, sent and run: the rules, without any I/O."""
