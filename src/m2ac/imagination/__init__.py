"""Algorithm 2: rollouts in the learned world, masked by trust."""
