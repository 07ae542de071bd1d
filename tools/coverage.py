"""Prints how many lines of each .pyx, .pxd and C file have run, of all that a compiler made code of: `coverage.py FOLDER`.

FOLDER is a tree that was built with DATAGO_COVERAGE=1, and of which processes have ended. gcov is GCC's.
"""

import collections
import json
import pathlib
import subprocess
import sys

root = pathlib.Path(sys.argv[1]).resolve()
times = collections.defaultdict(dict)  # path -> line -> how often it ran
for notes in sorted(root.glob("build/**/*.gcno")):
    done = subprocess.run(["gcov", "--json-format", "--stdout", notes], cwd=root, capture_output=True, text=True)
    if "no functions found" in done.stderr:  # a file of tables alone
        continue
    for file in json.loads(done.stdout)["files"]:
        path = pathlib.Path(file["file"])
        if path.suffix == ".pyx" or path.suffix == ".pxd" or path.parts[0] == "src_c":
            lines = times[str(path)]
            for line in file["lines"]:
                lines[line["line_number"]] = max(lines.get(line["line_number"], 0), line["count"])

rows = [(path, len(lines), sum(count > 0 for count in lines.values())) for path, lines in sorted(times.items())]
for kinds in ((".pyx", ".pxd"), (".c", ".h")):
    found = [row for row in rows if row[0].endswith(kinds)]
    total = ("TOTAL", sum(lines for _, lines, _ in found), sum(ran for _, _, ran in found))
    print(f"{'Name':48}{'Lines':>7}{'Run':>7}{'Cover':>7}")
    for path, lines, ran in [*found, total]:
        print(f"{path:48}{lines:7}{ran:7}{100 * ran // max(lines, 1):6}%")
    print()
