"""A PostgreSQL server for a test run: Debian's, in a temporary folder, ended afterwards."""

import contextlib
import glob
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time


def programs():
    """The folder of the newest PostgreSQL's programs, or None."""
    found = [os.path.dirname(path) for path in glob.glob("/usr/lib/postgresql/*/bin/initdb")]
    return max(found, key=lambda folder: float(re.search(r"postgresql/([\d.]+)", folder)[1]), default=None)


@contextlib.contextmanager
def postgres(bin_folder):
    """Starts a server that listens on a Unix socket alone; yields its url. For root it runs as another user."""
    folder = tempfile.mkdtemp(prefix="pg")  # a socket's path must be short
    user, identity = pwd.getpwuid(os.getuid()).pw_name, {}
    if os.getuid() == 0:
        owner = next(entry for entry in pwd.getpwall() if entry.pw_name in ("postgres", "nobody"))
        os.chown(folder, owner.pw_uid, owner.pw_gid)
        user, identity = owner.pw_name, {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
    options = {"cwd": folder, **identity, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = None
    try:
        # A language's order, where that can be had: ids must sort by bytes all the same.
        order = ["--locale-provider=icu", "--icu-locale=en"]
        command = [
            f"{bin_folder}/initdb",
            "-D",
            f"{folder}/data",
            "-A",
            "trust",
            "-U",
            user,
            "-E",
            "UTF8",
            "--locale=C.UTF-8",
            "-N",
        ]
        if subprocess.run([*command, *order], **options).returncode:
            shutil.rmtree(f"{folder}/data", ignore_errors=True)
            subprocess.run(command, check=True, **options)
        server = subprocess.Popen(
            [f"{bin_folder}/postgres", "-D", f"{folder}/data", "-k", folder, "-F", "-c", "listen_addresses="], **options
        )
        for _ in range(300):
            if subprocess.run([f"{bin_folder}/pg_isready", "-h", folder], **options).returncode == 0:
                break
            assert server.poll() is None, "postgres ended at once"
            time.sleep(0.1)
        yield f"postgresql://{user}@/postgres?host={folder}"
    finally:
        if server:
            server.send_signal(signal.SIGINT)  # fast shutdown
            server.wait(20)
        shutil.rmtree(folder, ignore_errors=True)
