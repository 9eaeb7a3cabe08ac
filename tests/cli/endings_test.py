#!/usr/bin/env python3
"""Signals, and streams that close while the drafthouse binary runs.

usage: tests/cli/endings_test.py BINARY [unittest options]
"""

import json
import os
import pathlib
import signal
import subprocess

from command import PROMPT, SLOW, TARGET, Case, binary, main, start


def cpu_seconds(pid):
    """What a process has computed so far; None once it has ended."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    if fields[0] in "ZX":
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Interruptions(Case):
    def end(self, process):
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err.decode()

    def test_while_text_comes(self):
        for signal_number in [signal.SIGINT, signal.SIGTERM]:
            process = start("generate", "--model", TARGET, "--prompt", PROMPT, "--ignore-eos",
                            "--max-tokens", "0", *SLOW)
            first = process.stdout.read(1)
            process.send_signal(signal_number)
            code, rest, err = self.end(process)
            self.assertEqual(code, 130, err)
            if err:
                self.assertTrue((first + rest).endswith(b"\n"))
                self.assertIn("cancelled", err)

    def test_while_the_prompt_is_read_by_the_model(self):
        ids = self.ids_file([5] * 8000)
        # Signals ever later, until one meets prefill; all must end the process the same way.
        for busy_s in [0.1, 0.2, 0.4, 0.8, 1.6, 3.2]:
            process = start("generate", "--model", TARGET, "--ids", ids, "--json", "--prefill-chunk",
                            "32", *SLOW)
            while (used := cpu_seconds(process.pid)) is not None and used < busy_s:
                pass
            process.send_signal(signal.SIGINT)
            code, out, err = self.end(process)
            self.assertEqual(code, 130, err)
            # A busy machine may be too slow to say more before its time is up.
            answer = json.loads(out or '{"error": {"code": "cancelled"}}')
            if answer.get("finish_reason") == "cancelled":
                self.assertEqual(answer["ids"], [])
                return
            self.assertEqual(answer["error"]["code"], "cancelled")
        self.fail("prefill was never met")

    def test_while_it_loads_or_before(self):
        fifo = self.folder / "prompt"
        os.mkfifo(fifo)
        process = start("generate", "--model", TARGET, "--prompt-file", fifo, *SLOW,
                        "--max-tokens", "0", "--ignore-eos")
        with open(fifo, "wb") as prompt:
            prompt.write(b"hi")
            prompt.flush()
            process.send_signal(signal.SIGINT)
            code, _, err = self.end(process)
        self.assertEqual(code, 130, err)

    def test_a_second_signal_ends_at_once(self):
        process = start("generate", "--model", TARGET, "--prompt", PROMPT, "--ignore-eos",
                        "--max-tokens", "0", *SLOW)
        process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.end(process)[0], 130)

    def test_score(self):
        process = start("score", "--model", TARGET, "--ids", self.ids_file([5] * 8000), *SLOW)
        while (used := cpu_seconds(process.pid)) is not None and used < 0.5:
            pass
        process.send_signal(signal.SIGINT)
        self.assertEqual(self.end(process)[0], 130)


class Streams(Case):
    def test_a_reader_that_goes_away(self):
        process = start("generate", "--model", TARGET, "--prompt", PROMPT, "--ignore-eos",
                        "--max-tokens", "0", *SLOW)
        process.stdout.read(1)
        process.stdout.close()
        err = process.stderr.read().decode()
        process.stderr.close()
        self.assertEqual((process.wait(timeout=60), err), (141, ""))

    def test_every_verb_ends_quietly_when_nobody_reads(self):
        ids = self.ids_file([1, 2, 3])
        for words in [["--help"], ["--version"], ["help", "bench"], ["doctor"], ["completion", "zsh"],
                      ["inspect", TARGET], ["inspect", TARGET, "--json"],
                      ["tokenize", "--model", TARGET], ["score", "--model", TARGET, "--ids", ids],
                      ["generate", "--model", TARGET, "--ids", ids, "--max-tokens", "2", "--json"]]:
            reader, writer = os.pipe()
            os.close(reader)
            done = subprocess.run([binary(), *words], stdin=subprocess.DEVNULL, stdout=writer,
                                  stderr=subprocess.PIPE, timeout=120)
            os.close(writer)
            self.assertEqual((done.returncode, done.stderr), (141, b""), words)

    def test_closed_and_full_streams(self):
        words = ["generate", "--model", TARGET, "--prompt", "hi", "--max-tokens", "3"]
        quoted = " ".join(f"'{word}'" for word in [binary(), *words])
        for redirection, code, told in [(">&-", 1, b"Bad file descriptor"), ("2>&-", 0, b""),
                                        ("<&-", 0, b"tok/s"), (">/dev/full", 1, b"No space left"),
                                        ("--json >&-", 1, b"Bad file descriptor"),
                                        ("<&- >&- 2>&-", 1, b"")]:
            done = subprocess.run(["bash", "-c", f"{quoted} {redirection}"], capture_output=True)
            self.assertEqual(done.returncode, code, redirection)
            self.assertIn(told, done.stderr, redirection)


if __name__ == "__main__":
    main(__doc__)
