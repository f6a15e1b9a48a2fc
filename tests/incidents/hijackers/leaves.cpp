// An object per thread that writes to an object of the process when its thread ends. C++ promises
// that the main thread's objects go first.

#include "extension.h"

#include <cstdio>

static bool is_open = true;

struct Log {
    ~Log() {
        is_open = false;
        puts("log closed");
    }
};

struct Cache {
    bool used = false;
    ~Cache() { puts(is_open ? "cache saved" : "cache written to a closed log"); }
};

static thread_local Cache cache;

static PyObject *work(PyObject *, PyObject *) {
    cache.used = true;
    static Log log;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"work", work, METH_NOARGS, nullptr}, {}};
EXTENSION(leaves, true)
