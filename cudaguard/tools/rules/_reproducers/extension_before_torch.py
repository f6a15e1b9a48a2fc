"""Compile an extension that links libc10.so, and import it without importing torch."""

import importlib.util
import os
import subprocess
import sys
import sysconfig

SOURCE = """
#include <Python.h>
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "linked", NULL, -1, NULL};
PyMODINIT_FUNC PyInit_linked(void) { return PyModule_Create(&module); }
"""

torch = importlib.util.find_spec("torch")
if torch is None:
    sys.exit("there is no torch")
libraries = os.path.join(os.path.dirname(torch.origin), "lib")
with open("linked.c", "w") as file:
    file.write(SOURCE)
compiler = os.environ.get("CC", "cc")
include = sysconfig.get_path("include")
command = [compiler, "-shared", "-fPIC", "-I", include, "linked.c", "-o", "linked.so"]
try:
    subprocess.run([*command, "-Wl,--no-as-needed", "-L", libraries, "-lc10"], check=True)
except (OSError, subprocess.CalledProcessError) as error:
    print(f"the extension cannot be compiled: {error}", file=sys.stderr)
    sys.exit(125)
sys.path.insert(0, os.getcwd())
import linked

print("the extension is imported:", linked.__name__)
