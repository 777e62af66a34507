#!/usr/bin/env python3
"""Functions stay small: at most 60 lines of body and 6 parameters; structs have no typedef.

Reads text as clang-format leaves it: a body opens with "{" and closes with "}" in the first column.
"""

import re
import sys

import sources

BODY_LINES_MAX = 60
PARAMETERS_MAX = 6

# Declares another library's types under the names that it gives them.
FOREIGN_NAMES = {"gpu/driver/cuda_types.h"}

# Entry points of the software driver have CUDA's own signatures, the access handler libmicrohttpd's.
FOREIGN_SIGNATURE = re.compile(r"\bsoftware_cu[A-Z]\w*\(|\bstruct MHD_Connection \*.*\bsize_t \*", re.S)

TYPEDEF_STRUCT = re.compile(r"\btypedef\s+(?:struct|union)\b")
# Rows of the list of tests in main(): a list that grows with the tests, not logic.
TEST_ROW = re.compile(r"^\s*cmocka_unit_test\w*\(")


def parameters(signature):
    """Parameters of the last parenthesised list of a signature, split at its own commas."""
    end = signature.rfind(")")
    depth = 0
    commas = 0
    for start in range(end, -1, -1):
        character = signature[start]
        depth += (character == ")") - (character == "(")
        commas += character == "," and depth == 1
        if depth == 0:
            inside = signature[start + 1 : end].strip()
            return 0 if inside in ("", "void") else commas + 1
    return 0


def signature_before(lines, opening):
    """Text of the declaration whose body opens on the line with index opening."""
    first = opening
    while first > 0:
        before = lines[first - 1].rstrip()
        if not before or before.endswith((";", "}")) or before.startswith("#"):
            break
        first -= 1
    return "\n".join(lines[first:opening])


def check_functions(path, text, code):
    lines = code.split("\n")
    raw = text.split("\n")
    opening = None
    for index, line in enumerate(lines):
        if line.rstrip() == "{":
            opening = index
        elif line.startswith("}") and opening is not None:
            signature = signature_before(lines, opening)
            body = raw[opening + 1 : index]
            length = sum(1 for row in body if not TEST_ROW.match(row))
            name = re.findall(r"(\w+)\s*\(", signature)
            where = f"{path}:{opening + 1}: {name[0] if name else 'function'}()"
            if length > BODY_LINES_MAX:
                yield f"{where} has {length} lines, more than {BODY_LINES_MAX}"
            count = parameters(signature)
            foreign = FOREIGN_SIGNATURE.search(signature)
            if count > PARAMETERS_MAX and not foreign:
                yield f"{where} has {count} parameters, more than {PARAMETERS_MAX}"
            opening = None


def main():
    root = sources.root_from_arguments()
    findings = []
    for path in sources.files(root, (".c", ".h")):
        text = sources.read(root, path)
        code = sources.code_only(text)
        findings += check_functions(path, text, code)
        for match in TYPEDEF_STRUCT.finditer(code if path not in FOREIGN_NAMES else ""):
            findings.append(f"{path}:{sources.line_of(code, match.start())}: typedef of a struct")
    return sources.report("functions", findings)


if __name__ == "__main__":
    sys.exit(main())
