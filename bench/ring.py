#!/usr/bin/env python3
"""The ring buffer alone: nanoseconds per item with 1 to 32 native threads on either side.   bench/ring.py [--items 1000000]"""

import argparse

from datago.engine._ring import spin


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--capacity", type=int, default=64)
    arguments = parser.parse_args()
    wanted = arguments.items * (arguments.items + 1) // 2
    print("producers consumers  ns/item  push waits  pop waits")
    for producers, consumers in [(1, 1), (2, 2), (4, 4), (8, 8), (16, 16), (32, 32), (1, 32), (32, 1)]:
        result = spin(arguments.capacity, producers, consumers, arguments.items, 0)
        assert result["sum"] == wanted, "items were lost or doubled"
        each = result["seconds"] / arguments.items * 1e9
        print(f"{producers:9} {consumers:9} {each:8.0f} {result['push_waits']:11} {result['pop_waits']:10}")


if __name__ == "__main__":
    main()
