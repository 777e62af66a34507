#!/usr/bin/env python3
"""The tree says what is, not what was left for later, and names nothing of where it was written."""

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
    # Where and by whom it was written.
    (r"\bCEO\b", 0),
    (r"\bsub-?agents?\b", re.I),
    (r"/work/", 0),
    (r"\.library\b", 0),
    (r"\bfarm-", re.I),
    # Hosts of package registries: packages come from what the machine is set up with.
    (r"\bdeb\.debian\.org\b|\bsecurity\.debian\.org\b", re.I),
    (r"\bregistry\.npmjs\.org\b|\bpypi\.org\b|\bpythonhosted\.org\b|\bcrates\.io\b", re.I),
    (r"\bproxy\.golang\.org\b", re.I),
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
