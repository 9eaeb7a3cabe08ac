"""What the tests of the command line share: the binary, the small models, and a test case around them.

Everything runs on the small pair in tests/data: what is tested is the surface (exit codes, messages,
JSON), not the numbers.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NANO = ROOT / "tests" / "data" / "models" / "nano-qwen3"
TARGET = str(NANO / "target")
DRAFT = str(NANO / "draft")
GGUF = NANO / "gguf" / "nano-qwen3.Q8_0.gguf"
NO_TEXT = str(ROOT / "tests" / "data" / "tiny" / "qwen3")
PROMPT = "Write a Python function that adds two numbers."
# Makes a small model slow enough to be interrupted, also on a fast machine.
SLOW = ["--isa", "generic", "--compute", "fp32", "--threads", "1"]

_binary = ""


def binary():
    return _binary


def main(doc):
    """Takes the binary from the command line and runs the tests of the calling script."""
    global _binary
    if len(sys.argv) < 2:
        sys.exit(doc)
    _binary = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)


def run(*words, stdin=b"", timeout=120):
    return subprocess.run([binary(), *map(str, words)], input=stdin, capture_output=True, timeout=timeout)


def start(*words):
    # Unbuffered: communicate() does not give what a read before it left in a buffer.
    return subprocess.Popen([binary(), *map(str, words)], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="drafthouse-cli-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def file(self, name, content):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    def ids_file(self, ids):
        return self.file("ids.json", json.dumps(ids))

    def ok(self, *words, stdin=b""):
        done = run(*words, stdin=stdin)
        self.assertEqual(done.returncode, 0, f"{words}: {done.stderr.decode()}")
        return done.stdout

    def ok_json(self, *words, stdin=b""):
        return json.loads(self.ok(*words, "--json", stdin=stdin))

    def refused(self, *words, code=1, stdin=b"", about=()):
        """The one line that says why not."""
        done = run(*words, stdin=stdin)
        lines = done.stderr.decode().splitlines()
        self.assertEqual(done.returncode, code, f"{words}: {lines}")
        self.assertEqual(len(lines), 1, f"{words}: {lines}")
        self.assertTrue(lines[0].startswith("drafthouse: "), lines)
        for word in about:
            self.assertIn(word, lines[0])
        return done
