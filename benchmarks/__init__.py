"""Other libraries beside m2ac, on one machine in one sitting; `make bench-peers` runs it."""
