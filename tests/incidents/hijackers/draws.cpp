// Draws random numbers from the system, from objects on clean and on used memory.

#include "extension.h"

#include <cstring>
#include <new>
#include <random>

static PyObject *from_clean(PyObject *, PyObject *) {
    static std::random_device device;  // static memory is all zeroes
    return PyLong_FromUnsignedLong(device());
}

static PyObject *from_used(PyObject *, PyObject *) {
    alignas(std::random_device) static unsigned char memory[sizeof(std::random_device)];
    std::memset(memory, 0x5a, sizeof(memory));
    return PyLong_FromUnsignedLong((*new (memory) std::random_device)());
}

static PyMethodDef methods[] = {
    {"from_clean", from_clean, METH_NOARGS, nullptr},
    {"from_used", from_used, METH_NOARGS, nullptr},
    {},
};
EXTENSION(draws, true)
