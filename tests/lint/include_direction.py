#!/usr/bin/env python3
"""Includes point the way the data flows, and foreign names stay in the folder that owns them.

Checks, for every C file of the tree:
  * a folder includes only the folders below it, and a file only what its module USES in CMake;
  * identifiers and headers of a foreign library appear only in the folder that owns it;
  * server/ names no driver: which one runs is the business of gpu/.
Tests may include and name everything.
"""

import os
import re
import sys

import sources

# Who may include whom. A folder may always include itself.
ALLOWED = {
    "base": set(),
    "gpu": {"base"},
    "ucx_transport": {"base"},
    "server": {"gpu", "ucx_transport", "base"},
    "api": {"server", "base"},
}

# What belongs to one folder: owner, pattern of identifiers, pattern of headers, what it is.
OWNED = [
    ("api", r"\bMHD_\w+", r"microhttpd\.h", "libmicrohttpd"),
    ("api", r"\bjson_\w+_t\b|\bjson_t\b|\bjson_loadb\b", r"jansson\.h", "jansson"),
    ("gpu", r"\bcu[A-Z]\w*|\bCU_\w+|\bCU[a-z]\w+", r"cuda\.h|nvrtc\.h|cuda_runtime.*\.h", "CUDA"),
    ("ucx_transport", r"\buc[pst]_\w+", r"uc[pst]/.*", "UCX"),
]

DRIVER_WORDS = re.compile(r"\w*(?:cuda|software)\w*", re.I)
MODULE = re.compile(r"\bst_module\(\s*([\w/]+)([^)]*)\)")


def top(path):
    return path.split("/", 1)[0]


def check_includes(path, code):
    folder = top(path)
    for match in sources.INCLUDE.finditer(code):
        target = top(match.group(1))
        if target in ALLOWED and target != folder and target not in ALLOWED[folder]:
            line = sources.line_of(code, match.start(1))
            yield f"{path}:{line}: {folder}/ must not include {match.group(1)}"
        if target in ("tests", "deploy"):
            line = sources.line_of(code, match.start(1))
            yield f"{path}:{line}: {folder}/ must not include {match.group(1)}"


def check_owned(path, code):
    folder = top(path)
    for owner, identifier, header, what in OWNED:
        if folder == owner:
            continue
        for match in re.finditer(identifier, code):
            line = sources.line_of(code, match.start())
            yield f"{path}:{line}: {match.group(0)} of {what} belongs in {owner}/"
        for match in sources.INCLUDE.finditer(code):
            if re.fullmatch(header, match.group(1)):
                line = sources.line_of(code, match.start(1))
                yield f"{path}:{line}: {match.group(1)} of {what} belongs in {owner}/"


def check_driver_words(path, code):
    if top(path) != "server":
        return
    for match in DRIVER_WORDS.finditer(code):
        line = sources.line_of(code, match.start())
        yield f"{path}:{line}: {match.group(0)} names a driver in server/"


def modules(root):
    """(CMake file, module, its sources, the names it USES) of every st_module()."""
    for path in sources.files(root, ("CMakeLists.txt",)):
        text = re.sub(r"#[^\n]*", "", sources.read(root, path))
        for match in MODULE.finditer(text):
            words = match.group(2).split()
            keys = {"SOURCES": [], "USES": []}
            current = None
            for word in words:
                if word in keys:
                    current = keys[word]
                elif current is not None:
                    current.append(word)
            yield path, match.group(1), keys["SOURCES"], keys["USES"]


def check_modules(root):
    """The permission list of a module, and its sources against it."""
    for path, module, module_sources, uses in modules(root):
        folder = top(module)
        if folder not in ALLOWED:
            continue
        used = {top(use) for use in uses if "::" not in use}
        for use in sorted(used - ALLOWED[folder] - {folder}):
            yield f"{path}:1: module {module} must not use {use}"
        for name in module_sources:
            source = os.path.normpath(os.path.join(os.path.dirname(path), name))
            if not os.path.isfile(os.path.join(root, source)):
                continue
            code = sources.code_only(sources.read(root, source))
            for match in sources.INCLUDE.finditer(code):
                target = top(match.group(1))
                if target in ALLOWED and target != folder and target not in used:
                    line = sources.line_of(code, match.start(1))
                    yield f"{source}:{line}: {target} is not in USES of module {module}"


def main():
    root = sources.root_from_arguments()
    findings = []
    for path in sources.files(root, (".c", ".h")):
        if top(path) not in ALLOWED:
            continue
        code = sources.code_only(sources.read(root, path))
        findings += check_includes(path, code)
        findings += check_owned(path, code)
        findings += check_driver_words(path, code)
    findings += check_modules(root)
    return sources.report("include_direction", findings)


if __name__ == "__main__":
    sys.exit(main())
