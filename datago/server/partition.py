"""The partition of an image. The hosted service partitions images by the shards of its search index, and this server computes the same
shards.
"""

SHARDS = 48
ROUTING = 768  # OpenSearch hashes into this many slots and gives each shard ROUTING / SHARDS of them


def partition_of(identity: str) -> int:
    """The shard (0 to 47) of the image with this id. The image is in the partition shard % partitions_count."""
    return murmur3(identity.encode("utf-16-le")) % ROUTING // (ROUTING // SHARDS)


def murmur3(data: bytes) -> int:
    """MurmurHash3 x86 32 of `data` with seed 0, as a signed number."""
    mask, state = 0xFFFFFFFF, 0
    whole = len(data) // 4 * 4
    for start in range(0, len(data), 4):
        block = int.from_bytes(data[start : start + 4], "little") * 0xCC9E2D51 & mask
        block = (block << 15 | block >> 17) & mask
        state ^= block * 0x1B873593 & mask
        if start < whole:
            state = ((state << 13 | state >> 19) * 5 + 0xE6546B64) & mask
    state ^= len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        state = (state ^ state >> shift) * factor & mask
    return state - 2**32 if state >= 2**31 else state
