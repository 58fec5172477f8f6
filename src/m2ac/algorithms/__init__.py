"""The loops: Algorithm 1 with its cases MBPO and SAC."""
