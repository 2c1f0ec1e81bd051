"""What scripts of several tests share: the list of tests, and a World with a folder of its own and the servers that it has started."""

import shutil
import tempfile

from tiers import BASE


def tests():
    """A list of tests, and the decorator that adds to it."""
    found = []

    def test(fn):
        found.append(fn)
        return fn

    return found, test


class World:
    prefix = "spillway-"

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix=self.prefix)
        self.running = []

    def server(self, *args, **more):
        from harness import Server

        self.running.append(Server(*BASE, *args, **more))
        return self.running[-1]

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)
