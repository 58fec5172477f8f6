"""What learns to act: Soft Actor-Critic and its policy."""
