#!/usr/bin/env python3
"""Compares what libdrafthouse.so exports with packaging/exported_symbols.txt and the C header.

usage: tests/install/exports_test.py LIBRARY [NM]
"""

import fnmatch
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def exported(library, nm):
    """Demangled names of defined dynamic symbols, without the version nodes themselves."""
    output = subprocess.run([nm, "-D", "-C", "--defined-only", library], check=True,
                            capture_output=True, text=True).stdout
    names = set()
    for line in output.splitlines():
        kind, name = line[17:].split(" ", 1)
        if kind != "A":
            names.add(re.sub(r"@@?DRAFTHOUSE_\d+$", "", name))
    return names


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[1].startswith("-"):
        print(__doc__.strip())
        return 0 if sys.argv[1:] in (["-h"], ["--help"]) else 2
    names = exported(sys.argv[1], sys.argv[2] if len(sys.argv) == 3 else "nm")
    text = (ROOT / "packaging" / "exported_symbols.txt").read_text()
    patterns = [line for line in text.splitlines() if line and not line.startswith("#")]
    header = (ROOT / "include" / "drafthouse" / "drafthouse.h").read_text()
    declared = set(re.findall(r"^DH_API[^;(]*?\b(dh_\w+)\(", header, re.M))

    errors = [f"exported, but not in exported_symbols.txt: {name}" for name in sorted(names)
              if not any(fnmatch.fnmatchcase(name, pattern.replace("[", "[[]")) for pattern in patterns)]
    errors += [f"in exported_symbols.txt, but not exported: {pattern}" for pattern in patterns
               if not fnmatch.filter(names, pattern)]
    listed = {pattern for pattern in patterns if "::" not in pattern}
    errors += [f"in only one of drafthouse.h and exported_symbols.txt: {name}"
               for name in sorted(declared ^ listed)]
    for error in errors:
        print(f"error: {error}")
    print(f"{len(names)} exported symbols, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
