"""The paper's experiments as data: which runs each figure needs, at three scales, and what they cost."""
