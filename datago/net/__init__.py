"""Bytes over a network, for every source: streams, downloads, storage, one policy."""
