"""Serves a folder of images by the protocol that the db source reads. By default only programs on this machine can connect.

The folder's images, and those in its WebDataset shards (*.tar), are indexed into a database, together with their
sidecar files:

  a.jpg              the image; also png, webp and the other suffixes of the file source
  a.json             an object: its members are attributes, except "id", "source", "tags" (a list), "datasets" (a list of
                     "NAME/VERSION"), "duplicate_state" (null, 1 or 2) and "coca_embedding" (a list of numbers), which are the
                     image's own
  a.txt, a.cls       the attributes "caption" and "cls" (a number where it is one)
  a.NAME.txt, .json  the attribute NAME
  a.NAME.png         or another image suffix: the mask NAME, if NAME contains "mask" or "seg" and not "image"; the latent
                     NAME (the file as it is), if NAME contains "latent_"; otherwise an additional image. Clients know
                     additional images by "image" in the name, so "_image" is appended to a NAME without it.
  a.NAME.npy         also npz bin dat raw pt pth safetensors pkl zst: the latent NAME; the latent of a.npy is called npy.
                     "latent_" is put in front of a NAME that contains "image".

A file belongs to the image with the shortest name that its own name begins with: a.mask.png belongs to a.jpg, if that
exists. Left out are names that begin with a dot, the litter that the other sources leave out too (__MACOSX, @eaDir,
Thumbs.db …), symlinks to folders, symlinks to files outside FOLDER or to hidden files in it, and compressed shards. An image
whose header cannot be read is served with null for its size. Files that are added to FOLDER later are served after the
next start. A symlink that replaces a file later is not followed.

An image's id is its path without the suffix, if the path consists of letters, digits, "-" and "_". Otherwise all other
characters are replaced, and a hash of the path is added. A shard counts as a folder. Each start updates the index.

When the server is ready it prints one line of JSON, with --json or without: "api_url" (for DATAROOM_API_URL), "media_url",
"images", and "token" (for DATAROOM_API_KEY) if it made one. Images have signed urls on the media port. The urls expire and
need no token. The secret that signs them is in the index, whose file only its owner may read. SIGTERM and SIGINT end the
server.
"""

import os
import sys
from argparse import ArgumentParser, Namespace

SUMMARY = "serve a folder of images by the protocol of the db source"


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("folder", metavar="FOLDER", help="the folder with images or shards")
    add("--host", default="127.0.0.1", help="address to listen at (default: %(default)s)")
    add("--port", type=int, default=8000, help="port of the API; 0: any free port (default: %(default)s)")
    add("--media-port", type=int, default=8001, metavar="PORT", help="port of the images; 0: any free port (default: %(default)s)")
    add(
        "--token", default=os.environ.get("DATAGO_SERVE_TOKEN", ""),
        help="the token that clients must send (default: DATAGO_SERVE_TOKEN from the environment, else a new one, which is "
        "printed)",
    )  # fmt: skip
    add(
        "--database", metavar="URL",
        help="sqlite:///PATH or postgresql://…; each folder needs its own (default: an SQLite file below $XDG_CACHE_HOME or "
        "~/.cache, or in memory if that cannot be written)",
    )  # fmt: skip
    add("--source", default="local", metavar="NAME", help="source of images whose JSON file names none (default: %(default)s)")
    add(
        "--follow-links", action="store_true",
        help="also serve files outside FOLDER, and hidden files, if a symlink in FOLDER leads to them when it is indexed",
    )  # fmt: skip
    add("--url-ttl", type=float, default=86400, metavar="SECONDS", help="how long image urls are valid (default: one day)")
    add("--page-size-max", type=int, default=2000, metavar="N", help="the most images in a page (default: %(default)s)")
    add(
        "--prefix-length", type=int, metavar="N",
        help="default prefix_length of images/random/; the hosted service has 5, which finds nothing in a small folder "
        "(default: the longest that finds a whole page)",
    )  # fmt: skip
    add("--latency", type=float, default=0, metavar="SECONDS", help="for tests: the average wait before each image is sent")


def run(options: Namespace) -> int:
    try:
        from datago import server

        return server.serve(options)
    except ImportError as error:
        extra = "serve-postgres" if error.name and error.name.startswith("psycopg") else "serve"
        print(f"serve: {error}: pip install 'datago[{extra}]'", file=sys.stderr)
        return 2
