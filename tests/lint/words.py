#!/usr/bin/env python3
"""The tree says what is, not what was left for later, and names no machine that it was written on."""

import re
import sys

import sources

# These files must spell the words out; the licence is not ours to word.
EXEMPT = {"tests/lint/words.py", "tests/lint/selftest.py", "LICENSE"}

BINARY = (".png", ".jpg", ".bin", ".gz", ".npy", ".pdf")

FORBIDDEN = [
    # Left for later.
    (r"\b(?:TODO|FIXME|XXX|HACK)\b", 0),
    (r"\bnot[ _-]implemented\b", re.I),
    (r"\bstub(?:s|bed)?\b", re.I),
    (r"\bplaceholders?\b", re.I),
    # Paths of the machine on which it was written.
    (r"(?<![\w.}])/(?:home|work|Users)/", 0),
    # Hosts of package registries: packages come from what the machine is set up with.
    (r"\b(?:deb|security|registry|proxy|files)\.[a-z]+\.(?:org|com|io)\b", re.I),
]


def main():
    root = sources.root_from_arguments()
    findings = []
    for path in sources.files(root):
        if path in EXEMPT or path.endswith(BINARY):
            continue
        text = sources.read(root, path)
        for pattern, flags in FORBIDDEN:
            for match in re.finditer(pattern, text, flags):
                line = sources.line_of(text, match.start())
                findings.append(f"{path}:{line}: the word \"{match.group(0)}\"")
    return sources.report("words", findings)


if __name__ == "__main__":
    sys.exit(main())
