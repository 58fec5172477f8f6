"""What a run looks like: figures."""
