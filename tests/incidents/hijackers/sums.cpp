// Adds up the members of a set of 64-bit numbers, compiled without optimization as debug builds
// and torch's JIT extensions are.

#include "extension.h"

#include <unordered_set>

static PyObject *total(PyObject *, PyObject *) {
    std::unordered_set<long> numbers;
    for (long number : {1000003L, 2000003L, 3000017L, 1000003L}) numbers.insert(number);
    long sum = 0;
    for (long number : numbers) sum += number;
    return PyLong_FromLong(sum);
}

static PyMethodDef methods[] = {{"total", total, METH_NOARGS, nullptr}, {}};
EXTENSION(sums, true)
