"""What the lints share: the list of files, and C text without comments or strings."""

import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

TOKEN = re.compile(
    r"//[^\n]*|/\*.*?\*/"  # comments
    r"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'",  # strings and characters
    re.S,
)
INCLUDE = re.compile(r"^\s*#\s*include\s*[<\"]([^>\"]+)[>\"]", re.M)


def root_from_arguments():
    """The tree to check: the first argument, or the one that holds this file."""
    return os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else ROOT


def walk(root):
    """Files of a tree that is no git repository, such as an unpacked archive."""
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name != "build" and not name.startswith(".")]
        for name in names:
            yield os.path.relpath(os.path.join(folder, name), root)


def files(root, suffixes=None):
    """Tracked files and new ones that git does not ignore, relative to root, sorted."""
    if os.path.exists(os.path.join(root, ".git")):
        command = ["git", "-C", root, "ls-files", "-z", "-co", "--exclude-standard"]
        listed = subprocess.run(command, check=False, capture_output=True, text=True)
        # git refuses a clone of another user, as root in a user's folder has: look for ourselves.
        paths = {path for path in listed.stdout.split("\0") if path} if listed.returncode == 0 else set(walk(root))
    else:
        paths = set(walk(root))
    wanted = (path for path in paths if not suffixes or path.endswith(suffixes))
    return sorted(path for path in wanted if os.path.isfile(os.path.join(root, path)))


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
        return file.read()


def code_only(text):
    """Blank comments and literals; lines keep their numbers, include lines their names."""

    def blank(match):
        token = match.group(0)
        if token.startswith('"'):
            start = match.string.rfind("\n", 0, match.start()) + 1
            if re.match(r"\s*#\s*include\s*$", match.string[start : match.start()]):
                return token
        return re.sub(r"[^\n]", " ", token)

    return TOKEN.sub(blank, text)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def report(name, findings):
    """Print findings as path:line: message and return the exit status."""
    for finding in findings:
        print(finding)
    print(f"{name}: {len(findings)} findings")
    return 1 if findings else 0
