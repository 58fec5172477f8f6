"""DDPG, MVE and STEVE: the same loop with values that may look ahead.

Their world model, if any, is trained before the first update and then in every one.
"""

import time
from collections.abc import Iterator

import numpy as np

from m2ac.algorithms import phases
from m2ac.algorithms.base import Progress
from m2ac.algorithms.training import Training
from m2ac.learners import ddpg

PRETRAIN_SLICE = 250
"""Updates of a world model between two chances to stop; what `Counters.fits` counts here, so a part of every state."""


class ValueExpansion(Training):
    """A training whose learner is DDPG."""

    def _pretrained(self) -> int:
        """Updates that the world model had on its own."""
        return self.state.counters.fits * PRETRAIN_SLICE

    def _model_due(self) -> bool:
        assert isinstance(self.state.learner, ddpg.DDPGState)
        return self.state.learner.world is not None and self._pretrained() < (self.config.world.pretrain or 0)

    def _model(self) -> Iterator[Progress]:
        """The world model learns the random steps before values look ahead with it."""
        self._settle_scaling()
        config, how = self.config, self.learner.how
        assert config.world.pretrain is not None
        while self._model_due():
            state = self.state
            assert isinstance(state.learner, ddpg.DDPGState)
            started = time.perf_counter()
            count = min(PRETRAIN_SLICE, config.world.pretrain - self._pretrained())
            batches, key = phases.draw_batches(
                state.real,
                None,
                self._streams.fit,
                np.int32(state.counters.fits),
                batches=count,
                batch_size=self.learner.batch_size,
                real_share=config.replay.real_share,
            )
            learner, loss = ddpg.pretrain(state.learner, batches, how, key=key)
            counters = state.counters._replace(fits=state.counters.fits + 1, modelled_at=state.counters.steps)
            self.state = state._replace(learner=learner, counters=counters)
            self._cycle["ddpg/pretrain_loss"] = float(np.mean(loss))
            self._took("fit", started)
            yield self._progress("fitting")
