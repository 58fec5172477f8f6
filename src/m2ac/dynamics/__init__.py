"""The learned world: an ensemble of probabilistic models, its fit, and how far it is to be trusted."""
