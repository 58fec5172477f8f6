"""The fault campaign: what must hold when things go wrong, tried and counted; one module is one row."""
