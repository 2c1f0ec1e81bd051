"""Where the Python tests put files: one folder for each run, removed at its end; after a failure what is left in it is kept, and a line says
where. Importing it makes tempfile use the folder; a main is run by scratch.run(main). What a killed run left goes with the next one."""

import atexit
import os
import re
import shutil
import sys
import tempfile

PREFIX = "spillway-run-"


def sweep(top):
    for name in os.listdir(top):
        m = re.fullmatch(PREFIX + r"(\d+)-\w+", name)
        if m and not os.path.exists("/proc/" + m.group(1)):
            shutil.rmtree(os.path.join(top, name), ignore_errors=True)


sweep(tempfile.gettempdir())
FOLDER = tempfile.mkdtemp(prefix="%s%d-" % (PREFIX, os.getpid()))
tempfile.tempdir = FOLDER


code = 1


@atexit.register  # the first that was registered is called last: what others do at the end finds its files
def end():
    if code in (None, 0, 77) or not os.listdir(FOLDER):
        shutil.rmtree(FOLDER, ignore_errors=True)
        return
    kept = FOLDER.replace(PREFIX, "spillway-kept-")
    os.rename(FOLDER, kept)
    print("kept: %s" % kept)


def run(main):
    """sys.exit(main()), and how it ended decides what becomes of the files."""
    global code
    try:
        code = main()
    except SystemExit as e:
        code = e.code
    sys.exit(code)
