/* The machine that both stub libraries describe: up to eight GPUs, in the order of their PCI
 * addresses. No two devices share a value, so a test that confuses two of them fails, and no
 * number can pass for another: minor numbers run backwards, one device lies in another PCI
 * domain, and the UUIDs begin with the same digit, so that a prefix can be ambiguous.
 *
 * tests/native_fixtures.py reads the table as text: one device per line.
 */
#ifndef STUB_DEVICES_H
#define STUB_DEVICES_H

#define MOST_DEVICES 8
#define MIB (1024ULL * 1024ULL)

struct device {
    const char *name;
    const char *uuid; /* without "GPU-" */
    unsigned domain, bus;
    int minor;
    int major_capability, minor_capability;
    int multiprocessors;
    unsigned long long mib;
};

static const struct device devices[MOST_DEVICES] = {
    {"Stub GPU A", "c0a14b5e-0d31-4f0a-9c11-000000000aa0", 0, 0x03, 7, 7, 0, 20, 8192},
    {"Stub GPU B", "c1b25c6f-1e42-4a1b-8d22-000000000bb1", 0, 0x3B, 6, 7, 5, 40, 16384},
    {"Stub GPU C", "c2c36d70-2f53-4b2c-9e33-000000000cc2", 0, 0x5E, 5, 8, 0, 60, 24576},
    {"Stub GPU D", "c3d47e81-3064-4c3d-8f44-000000000dd3", 1, 0x00, 4, 8, 6, 80, 32768},
    {"Stub GPU E", "c4e58f92-4175-4d4e-9055-000000000ee4", 1, 0x86, 3, 8, 9, 100, 40960},
    {"Stub GPU F", "c5f690a3-5286-4e5f-8166-000000000ff5", 1, 0xAF, 2, 9, 0, 120, 49152},
    {"Stub GPU G", "c607a1b4-6397-4f60-9277-000000000006", 2, 0xD8, 1, 10, 0, 140, 57344},
    {"Stub GPU H", "c718b2c5-74a8-4071-8388-000000000117", 2, 0xD9, 0, 12, 0, 160, 65536},
};

#endif
