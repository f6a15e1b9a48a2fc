/* What stub_memory.c has for stub_copies.c. */
#ifndef MEMORY_H
#define MEMORY_H

#include "driver.h"

#define AT(address) ((char *)(size_t)(address))

/* Whether so many bytes from that address lie in one allocation; `rc` if that is a failure. */
int check_range(int rc, CUdeviceptr address, size_t bytes);

#endif
