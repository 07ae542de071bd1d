"""The WebDataset source: samples out of tar shards."""
