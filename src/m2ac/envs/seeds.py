"""A seed for every episode, so that any of them can be played again."""

from typing import Literal

import numpy as np

Stream = Literal["train", "eval"]
_STREAMS: dict[Stream, int] = {"train": 0, "eval": 1}


def episode_seed(seed: int, stream: Stream, episode: int) -> int:
    """The seed in [0, 2**31) of an episode's reset, from the run's seed and the episode's number."""
    number = _STREAMS[stream]
    state = np.random.SeedSequence(seed, spawn_key=(number, episode)).generate_state(1, np.uint32)[0]
    # The lowest bit is the stream, so no evaluation ever starts where a training episode of any run did.
    return (int(state) >> 2) * 2 + number
