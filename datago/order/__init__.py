"""Which sample, in which order, on which rank: pure functions."""
