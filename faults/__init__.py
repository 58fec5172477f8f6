"""The fault campaign: what may go wrong is made to go wrong, and counted. `make faults` runs all of it."""
