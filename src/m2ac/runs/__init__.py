"""One run on disk: its directory, logs, checkpoints, display, and the doing of it."""
