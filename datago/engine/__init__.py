"""Threads, rings, decoding and batches: from work items to results, outside the GIL."""
