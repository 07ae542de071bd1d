"""What the fuzzers in Python share: their options, and the loop."""

import argparse
import random
import time


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--count", type=int, default=10**12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--keep", action="store_true")
    return parser.parse_args()


def repeat(one, options):
    """Calls `one` with a random generator for each number, and says of which it failed; how many there were."""
    end, done = time.monotonic() + options.seconds, 0
    while done < options.count and time.monotonic() < end:
        number = options.first + done
        try:
            one(random.Random(f"{options.seed} {number}"))
        except BaseException:
            print(f"number {number} of seed {options.seed}")
            raise
        done += 1
    return done
