// The extension of a hijacking package. It is linked with the package's library, or, with OPEN
// defined as the library's name, opens it itself: no wrapper around a Python function sees that.

#include "extension.h"

#ifdef OPEN
#include <dlfcn.h>
static int (*api_version)();
static bool open_library() {
    void *library = dlopen(OPEN, RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        PyErr_SetString(PyExc_ImportError, dlerror());
        return false;
    }
    api_version = reinterpret_cast<int (*)()>(dlsym(library, "api_version"));
    return true;
}
#else
extern "C" int api_version();
static bool open_library() { return true; }
#endif

static PyObject *version(PyObject *, PyObject *) { return PyLong_FromLong(api_version()); }

static PyMethodDef methods[] = {{"api_version", version, METH_NOARGS, nullptr}, {}};
EXTENSION(_native, open_library())
