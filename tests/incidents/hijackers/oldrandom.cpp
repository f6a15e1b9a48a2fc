// std::random_device::_M_init as an old C++ runtime had it: it sets the first member, the file.
// A runtime since GCC 10 also reads a function pointer and a descriptor, which nobody sets here.

#include <cstdio>

struct OldRandomDevice {
    FILE *file;
};

extern "C" {
// Of programs with the old std::string, and with the new one (std::__cxx11).
void init_old_strings(OldRandomDevice *self, const void *) asm("_ZNSt13random_device7_M_initERKSs");
void init_new_strings(OldRandomDevice *self, const void *) asm(
    "_ZNSt13random_device7_M_initERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE");

void init_old_strings(OldRandomDevice *self, const void *) {
    self->file = fopen("/dev/urandom", "rb");
}
void init_new_strings(OldRandomDevice *self, const void *token) { init_old_strings(self, token); }

int api_version() { return 7; }
}
