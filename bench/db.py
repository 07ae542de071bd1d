"""Images per second from a database on this machine, with latency before each image: what do 64 connections make of it?

    python bench/db.py FOLDER [--latency 0 0.02 0.1] [--connections 64] [--seconds 4]

The folder is served by `python -m datago serve`, on the same cores, so without latency this shows server and client
together. For each latency: what the latency allows (connections / latency), downloads alone, downloads and decoding,
the same with `ordered`; and how long a state_dict in mid-pass takes, with the size of the largest.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
import urllib.request

from datago import DatagoClient
from datago.net._fetch import Fetcher


def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def downloads(urls, connections, seconds):
    """(downloads per second, CPU seconds per download) of the urls in turn."""
    fetcher, sent, done, bound = Fetcher(connections), 0, 0, 4 * connections
    start, used = time.perf_counter(), cpu()
    while (wall := time.perf_counter() - start) < seconds:
        room = bound - (sent - done)
        fetcher.submit([(None, urls[i % len(urls)]) for i in range(sent, sent + room)])
        sent += room
        results = fetcher.take(5)
        done += len(results)
        bad = next((error for _, _, _, error in results if error), None)
        if bad:
            sys.exit(f"a download failed: {bad[1]}")
    used = cpu() - used
    fetcher.close()
    return done / wall, used / done


def client_of(url, connections, ordered=False):
    source = {"sources": "", "page_size": 1000, "require_images": True, "api_url": url, "max_connections": connections}
    return DatagoClient({"source_config": source, "ordered": ordered})


def images(url, connections, seconds, ordered=False):
    """(images per second, CPU seconds per image); from the first one on. At the end the walk is begun again."""
    client, count = client_of(url, connections, ordered), 0
    client.get_sample(timeout=60)
    start, used = time.perf_counter(), cpu()
    while (wall := time.perf_counter() - start) < seconds:
        if client.get_sample(timeout=60) is not None:
            count += 1
        else:
            client.start()
    client.stop()
    return count / wall, (cpu() - used) / count


def states(url, connections):
    """(median seconds of a state_dict, most bytes of one) over a pass."""
    times, most = [], 0
    with client_of(url, connections) as client:
        while client.get_sample(timeout=60) is not None:
            start = time.perf_counter()
            state = client.state_dict()
            times.append(time.perf_counter() - start)
            most = max(most, len(json.dumps(state)))
    return statistics.median(times), most


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--latency", type=float, nargs="*", default=[0, 0.02, 0.1], help="seconds")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=4)
    options = parser.parse_args()
    os.environ["DATAROOM_API_KEY"] = os.environ["DATAGO_SERVE_TOKEN"] = os.urandom(20).hex()
    for latency in options.latency:
        command = [sys.executable, "-m", "datago", "serve", options.folder, "--port", "0", "--media-port", "0"]
        server = subprocess.Popen([*command, "--latency", str(latency)], stdout=subprocess.PIPE, text=True)
        try:
            url = json.loads(server.stdout.readline())["api_url"]
            page = urllib.request.Request(
                f"{url}images/?page_size=1000&fields=image_direct_url",
                headers={"Authorization": f"Token {os.environ['DATAROOM_API_KEY']}"},
            )
            with urllib.request.urlopen(page) as answer:
                urls = [record["image_direct_url"] for record in json.load(answer)["results"]]
            plain, plain_cpu = downloads(urls, options.connections, options.seconds)
            whole, whole_cpu = images(url, options.connections, options.seconds)
            ordered, ordered_cpu = images(url, options.connections, options.seconds, ordered=True)
            state, size = states(url, options.connections)
        finally:
            server.terminate()
            server.wait()
        allowed = f"{options.connections / latency:6.0f}/s" if latency else "       -"
        print(
            f"latency {latency * 1e3:4.0f} ms: allowed {allowed}, "
            f"downloads {plain:6.0f}/s at {plain_cpu * 1e6:4.0f} us, "
            f"images {whole:6.0f}/s at {whole_cpu * 1e3:5.2f} ms of CPU, "
            f"ordered {ordered:6.0f}/s at {ordered_cpu * 1e3:5.2f} ms, "
            f"state_dict {state * 1e6:3.0f} us, {size} bytes",
            flush=True,
        )


if __name__ == "__main__":
    main()
