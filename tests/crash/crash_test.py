#!/usr/bin/env python3
"""Kills processes that use a cache directory, and checks what they leave.

usage: crash_test.py DISK_LOAD [--seed N]

1. kill -9 at named points and at random: everything that was reported as stored is found afterwards.
2. the same under a budget that evicts all the time: no wrong byte, the budget is kept.
3. two processes on one directory, one of them killed now and then: the same checks.

DRAFTHOUSE_FULL=1: 200 kills and two minutes; otherwise a share that the seed chooses.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

# Writing, from the first file to the log; what each part is called in the faulty file system.
WRITING = [when + point for when in ("before ", "after ") for point in (
    "create manifest", "create pages", "write pages", "sync pages", "write manifest",
    "sync manifest", "rename pages", "sync folder", "rename manifest", "write index", "write usage",
    "create folder")]
# Taking over what a killed process left.
TAKEOVER = [when + point for when in ("before ", "after ") for point in (
    "lock lock", "list folder", "remove pages", "remove manifest", "remove index", "create index",
    "rename index", "write usage")]
EVICTION = [when + point for when in ("before ", "after ") for point in (
    "remove manifest", "remove pages", "write index", "remove folder", "write usage",
    "remove index", "rename index")]

TIGHT = 60 * 4096


def bytes_below(directory):
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                size = os.lstat(os.path.join(folder, name)).st_size
            except FileNotFoundError:
                continue
            total += (size + 4095) // 4096 * 4096
    return total


class Directory:
    """A cache directory and what was reported as stored in it."""

    def __init__(self, program, random_, budget=0):
        self.program, self.random, self.budget = program, random_, budget
        # A kill does not lose what was written, whether it is on disk or not: in memory more happens
        # in the same time.
        in_memory = os.access("/dev/shm", os.W_OK) and random_.random() < 0.7
        self.base = tempfile.mkdtemp(prefix="dh-crash-", dir="/dev/shm" if in_memory else None)
        self.path = os.path.join(self.base, "cache")
        self.stored = {}

    def start(self, *options):
        command = [self.program, "load", self.path, "--seed", str(self.random.randrange(1 << 30)),
                   "--budget", str(self.budget), *options]
        out = tempfile.TemporaryFile("w+", dir=self.base)
        errors = tempfile.TemporaryFile("w+", dir=self.base)
        process = subprocess.Popen(command, stdout=out, stderr=errors)
        process.out, process.errors = out, errors
        return process

    def finish(self, process, what):
        """Waits; keeps what was reported. Says whether the process was killed."""
        status = process.wait(timeout=300)
        process.out.seek(0)
        process.errors.seek(0)
        for line in process.out.read().splitlines(keepends=True):
            words = line.split()
            if not line.endswith("\n") or len(words) != 4:
                continue  # cut off by the kill: nobody was told
            key = (words[1], words[2])
            self.stored[key] = max(self.stored.get(key, 0), int(words[3]))
        if status not in (-9, 0):
            raise AssertionError(f"{what}: exit status {status}\n{process.errors.read()}")
        process.out.close()
        process.errors.close()
        return status == -9

    def check(self, what):
        lines = "".join(f"stored {d} {c} {p}\n" for (d, c), p in self.stored.items())
        command = [self.program, "check", self.path, "--budget", str(self.budget),
                   "--digests", "1,2,3"]
        if self.budget:
            command.append("--lenient")
        done = subprocess.run(command, input=lines, text=True, capture_output=True, timeout=300)
        if done.returncode != 0:
            raise AssertionError(f"{what}: check failed with {done.returncode}\n{done.stderr}"
                                 f"directory kept: {self.path}")

    def remove(self):
        shutil.rmtree(self.base, ignore_errors=True)


def kill_once(directory, point):
    """One process, killed at a point or, without one, at random. Says whether it was."""
    if point is None:
        process = directory.start()
        time.sleep(directory.random.uniform(0.02, 0.4))
        process.kill()
        return directory.finish(process, "killed at random")
    count = 1 if directory.random.random() < 0.5 else directory.random.randrange(1, 12)
    process = directory.start("--ops", "60", "--arm", f"{point}:{count}")
    return directory.finish(process, f"killed {point}")


def kills(program, random_, wanted, budget):
    """Until so many were killed; a fourth of them at random."""
    points = EVICTION + WRITING if budget else TAKEOVER + WRITING
    killed, runs, stored = 0, 0, 0
    directory, chosen = None, []
    while killed < wanted:
        if runs > 4 * wanted + 20:
            raise AssertionError(f"only {killed} of {runs} were killed: points were not reached")
        if not chosen:
            chosen = points + [None] * (len(points) // 3)
            random_.shuffle(chosen)
        point = chosen.pop()
        if runs % 8 == 0:
            if directory is not None:
                directory.remove()
            directory = Directory(program, random_, budget)
        if point in TAKEOVER:  # something must have been left; nobody may have cleaned up since
            runs += 1
            killed += kill_once(directory, random_.choice(WRITING))
        runs += 1
        killed += kill_once(directory, point)
        directory.check(f"after a kill {point or 'at random'}")
        stored += sum(directory.stored.values())
    directory.remove()
    print(f"{'tight' if budget else 'ample'} budget: {runs} processes, {killed} killed; "
          f"{stored} reported pages checked", flush=True)
    return killed


def two_processes(program, random_, seconds, budget):
    directory = Directory(program, random_, budget)
    end = time.monotonic() + seconds
    running, starts, most = [], 0, 0
    while time.monotonic() < end:
        while len(running) < 2:
            running.append(directory.start("--digests", random_.choice(["1,2", "2,1", "1,2,3"])))
            starts += 1
        pause = time.monotonic() + random_.uniform(0.3, 1.5)
        while time.monotonic() < pause:
            most = max(most, bytes_below(directory.path))
            time.sleep(0.02)
        victim = running.pop(random_.randrange(2))
        victim.kill()
        directory.finish(victim, "one of two")
    for process in running:
        process.kill()
        directory.finish(process, "one of two")
    directory.check("after two processes")
    if budget and most > budget:
        raise AssertionError(f"{most} bytes with a budget of {budget}")
    print(f"two processes, {'tight' if budget else 'ample'} budget: {starts} starts, at most {most} "
          f"bytes, {sum(directory.stored.values())} pages reported", flush=True)
    directory.remove()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    full = os.environ.get("DRAFTHOUSE_FULL") == "1"
    random_ = random.Random(arguments.seed)
    ample, tight, seconds = (110, 90, 60) if full else (9, 6, 2)
    killed = kills(arguments.program, random_, ample, 0)
    killed += kills(arguments.program, random_, tight, TIGHT)
    print(f"{killed} kills", flush=True)
    two_processes(arguments.program, random_, seconds, 0)
    two_processes(arguments.program, random_, seconds, TIGHT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
