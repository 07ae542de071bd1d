"""Serves a folder of images by the protocol that the db source reads: on this machine alone, without an account.

The folder's images, and those in its WebDataset shards (*.tar), are indexed into a database, with what lies beside
them:

  a.jpg              the image; also png, webp and the other suffixes of the file source
  a.json             an object: its members are attributes, except "id", "source", "tags" (a list), "datasets" (a list of
                     "NAME/VERSION"), "duplicate_state" (null, 1 or 2) and "coca_embedding" (a list of numbers), which are the
                     image's own
  a.txt, a.cls       the attributes "caption" and "cls" (a number where it is one)
  a.NAME.txt, .json  the attribute NAME
  a.NAME.png         any image suffix. The mask NAME, if that has "mask" or "seg" in it and not "image". Else an
                     additional image; a NAME without "image" gets "_image" at its end, as that is what clients tell
                     additional images by. With "latent_" in NAME: a latent, the file as it is.
  a.NAME.npy         also npz bin dat raw pt pth safetensors pkl zst: the latent NAME; that of a.npy is called npy. A
                     NAME with "image" in it gets "latent_" in front.

A file belongs to the image with the shortest name that its own begins with: a.mask.png to a.jpg, where that exists.
Passed over are names that begin with a dot, links to folders, links to files outside FOLDER or to what is hidden in it, and
compressed shards. An image whose header cannot be read is served, with null for its size. What comes into FOLDER later is
served after the next start; a link that comes in the place of a file is not followed.

An image's id is its path without the suffix, where that is made of letters, digits, "-" and "_"; else these are kept
and a hash of the path is added. A shard counts as a folder. Starting again brings the index up to date.

When the server is ready it prints one line of JSON, with --json or without: "api_url" (for DATAROOM_API_URL), "media_url",
"images", and "token" (for DATAROOM_API_KEY) if it made one. Images have urls on the media port that are signed, with a
secret that the index keeps (its file is its owner's alone to read), and expire; they need no token. SIGTERM and SIGINT end it.
"""

import os
import sys

SUMMARY = "serve a folder of images by the protocol of the db source"


def add_arguments(parser):
    add = parser.add_argument
    add("folder", metavar="FOLDER", help="where the images or shards are")
    add("--host", default="127.0.0.1", help="address to listen at (default: %(default)s)")
    add("--port", type=int, default=8000, help="of the API; 0: any free one (default: %(default)s)")
    add("--media-port", type=int, default=8001, metavar="PORT", help="of the images; likewise (default: %(default)s)")
    add(
        "--token", default=os.environ.get("DATAGO_SERVE_TOKEN", ""),
        help="what clients have to show (default: DATAGO_SERVE_TOKEN from the environment, else one that is made and "
        "printed)",
    )  # fmt: skip
    add(
        "--database", metavar="URL",
        help="sqlite:///PATH or postgresql://…, for this folder alone (default: an SQLite file of the folder's own "
        "below $XDG_CACHE_HOME or ~/.cache; in memory, where that cannot be written)",
    )  # fmt: skip
    add("--source", default="local", metavar="NAME", help="of images that name none (default: %(default)s)")
    add(
        "--follow-links", action="store_true",
        help="serve files outside FOLDER, and hidden ones, too, where a link in it leads there when it is indexed",
    )  # fmt: skip
    add("--url-ttl", type=float, default=86400, metavar="SECONDS", help="how long image urls hold (default: one day)")
    add("--page-size-max", type=int, default=2000, metavar="N", help="images in a page at most (default: %(default)s)")
    add(
        "--prefix-length", type=int, metavar="N",
        help="of images/random/ where a request has none; the hosted service has 5, which finds nothing in a small "
        "folder (default: what finds a page's worth)",
    )  # fmt: skip
    add("--latency", type=float, default=0, metavar="SECONDS", help="for tests: wait about that before each image")


def run(options):
    try:
        from datago import server

        return server.serve(options)
    except ImportError as error:
        extra = "serve-postgres" if error.name and error.name.startswith("psycopg") else "serve"
        print(f"serve: {error}: pip install 'datago[{extra}]'", file=sys.stderr)
        return 2
