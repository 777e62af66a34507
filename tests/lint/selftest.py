#!/usr/bin/env python3
"""Every lint fails on a small bad tree, names the offence, and passes on a good one."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))

GOOD = "#include \"base/error.h\"\n\nint good(int a)\n{\n    return a;\n}\n"
SMALL = "void f(void)\n{\n}\n"


def long_function(lines):
    return "void f(void)\n{\n" + "    g();\n" * lines + "}\n"


def run_lint(lint, tree, configuration=None):
    """Write tree (path to text) into a new git repository and run the lint over it."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "init", "-q", folder], check=True)
        for name in configuration or []:
            shutil.copy(os.path.join(ROOT, name), folder)
        for path, text in tree.items():
            full = os.path.join(folder, path)
            os.makedirs(os.path.dirname(full) or ".", exist_ok=True)
            with open(full, "w", encoding="utf-8") as file:
                file.write(text)
        command = [os.path.join(HERE, lint), folder]
        if lint.endswith(".py"):
            command.insert(0, sys.executable)
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        return result.returncode, result.stdout + result.stderr


class Lints(unittest.TestCase):
    def accepts(self, lint, tree, configuration=None):
        code, output = run_lint(lint, tree, configuration)
        self.assertEqual(code, 0, output)

    def refuses(self, lint, tree, said, configuration=None):
        code, output = run_lint(lint, tree, configuration)
        self.assertEqual(code, 1, f"{tree}\n{output}")
        self.assertIn(said, output)

    def test_include_direction(self):
        lint = "include_direction.py"
        self.accepts(lint, {"gpu/a.c": GOOD, "tests/a.c": '#include "api/x.h"\nMHD_Result r;\n'})
        self.accepts(lint, {"server/a.c": "/* cuda or software */\n" + GOOD})
        self.accepts(lint, {"server/a.c": 'const char *k = "software";\n'})
        self.accepts(lint, {"gpu/a.c": "CUdeviceptr p; cuInit(0);\n", "api/a.c": "MHD_stop(d);\n"})
        bad = [
            ({"base/a.c": '#include "gpu/gpu.h"\n'}, "base/a.c:1: base/ must not include gpu/gpu.h"),
            ({"gpu/a.c": '\n#include "server/x.h"\n'}, "gpu/a.c:2: gpu/ must not include"),
            ({"gpu/b/a.h": '#  include "ucx_transport/x.h"\n'}, "must not include ucx_transport"),
            ({"server/a.c": '#include "api/x.h"\n'}, "server/ must not include api/x.h"),
            ({"api/a.c": '#include "gpu/gpu.h"\n'}, "api/ must not include gpu/gpu.h"),
            ({"ucx_transport/a.c": '#include "gpu/gpu.h"\n'}, "must not include gpu/gpu.h"),
            ({"server/a.c": '#include "tests/x.h"\n'}, "must not include tests/x.h"),
            ({"server/a.c": "#include <microhttpd.h>\n"}, "belongs in api/"),
            ({"server/a.c": "int x = MHD_HTTP_OK;\n"}, "MHD_HTTP_OK"),
            ({"server/a.c": "json_t *x;\n"}, "json_t of jansson"),
            ({"base/a.c": "#include <jansson.h>\n"}, "jansson.h of jansson"),
            ({"server/a.c": "void f(CUdeviceptr p);\n"}, "CUdeviceptr of CUDA"),
            ({"api/a.c": "int x = CU_SUCCESS;\n"}, "CU_SUCCESS of CUDA"),
            ({"api/a.c": "int f(void)\n{\n    return cuInit(0);\n}\n"}, "api/a.c:3: cuInit"),
            ({"server/a.c": "ucp_ep_h e;\n"}, "ucp_ep_h of UCX"),
            ({"server/a.c": "int is_cuda;\n"}, "is_cuda names a driver"),
            ({"server/a.h": "int Software_count;\n"}, "Software_count names a driver"),
            ({"gpu/CMakeLists.txt": "st_module(gpu SOURCES a.c USES server base)\n"},
             "module gpu must not use server"),
            ({"server/CMakeLists.txt": "st_module(server\n  SOURCES a.c\n  USES base)\n",
              "server/a.c": '#include "gpu/gpu.h"\n'}, "server/a.c:1: gpu is not in USES"),
        ]
        for tree, said in bad:
            self.refuses(lint, tree, said)

    def test_functions(self):
        lint = "functions.py"
        six = "int f(int a, int (*b)(int, int), int c, int d, int e, ...)\n{\n}\n"
        rows = "int main(void)\n{\n" + "        cmocka_unit_test(x),\n" * 99 + "}\n"
        self.accepts(lint, {"base/a.c": long_function(60) + six + rows, "base/a.h": "struct s {\n};\n"})
        self.refuses(lint, {"base/a.c": SMALL + long_function(61)}, "f() has 61 lines")
        seven = "int f(int a, int b, int c,\n      int d, int e, int g, int h)\n{\n}\n"
        self.refuses(lint, {"base/a.c": seven}, "f() has 7 parameters")
        self.accepts(lint, {"gpu/a.c": seven.replace("f(", "software_cuLaunchKernel(")})
        self.refuses(lint, {"gpu/a.c": seven.replace("f(", "software_custom(")}, "has 7 parameters")
        self.refuses(lint, {"base/a.h": "typedef struct s {\n} s_t;\n"}, "typedef of a struct")
        self.refuses(lint, {"base/a.h": "typedef\n  struct s s_t;\n"}, "base/a.h:1: typedef")

    def test_words(self):
        lint = "words.py"
        self.accepts(lint, {"README.md": "The network/worker stubborn UNIMPLEMENTED todo XXXXXX.\n"})
        bad = ["TODO", "FIXME", "XXX", "HACK", "not implemented", "Not Implemented", "a stub",
               "placeholder", "/home/me/x", "(/Users/me", "registry.example.org", "deb.example.com"]
        for word in bad:
            self.refuses(lint, {"docs/a.md": f"line\nhere {word} stands\n"}, "docs/a.md:2:")

    def test_format(self):
        if not (shutil.which("clang-format-14") or shutil.which("clang-format")):
            self.skipTest("clang-format is missing")
        configuration = [".clang-format"]
        self.accepts("format.sh", {"base/a.c": GOOD}, configuration)
        bad = {"base/a.c": "int f(int a) {\n  return a;\n}\n"}
        self.refuses("format.sh", bad, "code should be clang-formatted", configuration)

    def test_tidy(self):
        if not shutil.which("run-clang-tidy"):
            self.skipTest("clang-tidy is missing")
        good = "int f(int a);\nint f(int a)\n{\n    return a;\n}\n"
        bad = "int f(int a);\nint f(int a)\n{\n    return a == a;\n}\n"
        for text, expected in ((good, 0), (bad, 1)):
            with tempfile.TemporaryDirectory() as folder:
                os.makedirs(os.path.join(folder, "tests/lint"))
                os.makedirs(os.path.join(folder, "base"))
                shutil.copy(os.path.join(HERE, "tidy.sh"), os.path.join(folder, "tests/lint"))
                shutil.copy(os.path.join(ROOT, ".clang-tidy"), folder)
                source = os.path.join(folder, "base/a.c")
                with open(source, "w", encoding="utf-8") as file:
                    file.write(text)
                with open(os.path.join(folder, "compile_commands.json"), "w") as file:
                    file.write(f'[{{"directory": "{folder}", "file": "{source}",'
                               f' "command": "cc -c {source}"}}]')
                command = [os.path.join(folder, "tests/lint/tidy.sh"), folder]
                result = subprocess.run(command, capture_output=True, text=True, check=False)
                self.assertEqual(result.returncode, expected, result.stdout + result.stderr)


if __name__ == "__main__":
    unittest.main()
