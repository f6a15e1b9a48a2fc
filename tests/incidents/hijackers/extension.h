// An extension module from the array `methods`, if `condition` holds when it is imported.

#include <Python.h>

#define EXTENSION(name, condition)                                                               \
    static PyModuleDef definition = {PyModuleDef_HEAD_INIT, #name, nullptr, -1, methods};        \
    PyMODINIT_FUNC PyInit_##name() { return condition ? PyModule_Create(&definition) : nullptr; }
