/* What both stub libraries share: the controls, which are environment variables, and the log.
 *
 * Controls are read when they are needed, not when the library is loaded: a test may change them
 * in the running process. Those that describe the machine (DEVICES, MIG) are fixed by the first
 * successful initialization, as a machine does not change.
 *
 *   STUB_CUDA_DEVICES         number of GPUs, 0 to 8, default 2
 *   STUB_CUDA_DRIVER_VERSION  as cuDriverGetVersion has it, default 13000
 *   STUB_CUDA_KERNEL_DRIVER   as nvmlSystemGetDriverVersion has it, default 580.65.06
 *   STUB_CUDA_RC              function=status,...: the function fails so and does nothing else
 *   STUB_CUDA_DELAY           function=milliseconds,...: slept before the function does anything
 *   STUB_CUDA_COMPUTE_MODE    0 shared, 2 prohibited, 3 exclusive process
 *   STUB_CUDA_CAPABILITY      major.minor
 *   STUB_CUDA_CONTEXT_MIB     what a context costs, default 500
 *   STUB_CUDA_USED_MIB        what NVML reports as used by programs, default 0
 *   STUB_CUDA_PROCESSES       device:pid:MiB,... for NVML; "self" is the asking process, MiB "-"
 *                             is unknown
 *   STUB_CUDA_MIG             name=device,...: MIG instances that CUDA_VISIBLE_DEVICES may name; if
 *                             it is not set, the first of them is the only device
 *   STUB_CUDA_LOG             a file; each call appends one line to it
 *
 * Wherever a device is meant it is the index in PCI order. COMPUTE_MODE, CAPABILITY and USED_MIB
 * take one value for all devices or a list, one value per device. Names of functions in RC and
 * DELAY also match versioned ones: cuCtxCreate is cuCtxCreate_v2 as well.
 */
#ifndef STUB_H
#define STUB_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "devices.h"

#define API __attribute__((visibility("default")))

/* The value of a control, NULL if it is unset or empty. */
static inline const char *control(const char *name)
{
    char full[64];
    const char *value;
    snprintf(full, sizeof full, "STUB_CUDA_%s", name);
    value = getenv(full);
    return value && *value ? value : NULL;
}

static inline long control_number(const char *name, long fallback)
{
    const char *value = control(name);
    return value ? strtol(value, NULL, 0) : fallback;
}

/* The element at `index` of a list, its only element if it has just one, NULL beyond the end. */
static inline const char *control_element(const char *name, int index)
{
    const char *value = control(name);
    if (!value || !strchr(value, ','))
        return value;
    while (index-- > 0) {
        value = strchr(value, ',');
        if (!value)
            return NULL;
        value++;
    }
    return value;
}

static inline long control_of_device(const char *name, int index, long fallback)
{
    const char *value = control_element(name, index);
    return value ? strtol(value, NULL, 0) : fallback;
}

static inline void capability_of_device(int index, int *major, int *minor)
{
    const char *value = control_element("CAPABILITY", index);
    *major = devices[index].major_capability;
    *minor = devices[index].minor_capability;
    if (value)
        sscanf(value, "%d.%d", major, minor);
}

static inline int control_devices(void)
{
    long count = control_number("DEVICES", 2);
    return count < 0 ? 0 : count > MOST_DEVICES ? MOST_DEVICES : (int)count;
}

/* Whether `name` is the `length` characters at `key`, with a version behind them or not. */
static inline int is_named(const char *name, const char *key, size_t length)
{
    const char *rest = name + length;
    if (strlen(name) < length || strncmp(name, key, length))
        return 0;
    return !*rest || (!strncmp(rest, "_v", 2) && rest[2 + strspn(rest + 2, "0123456789")] == '\0');
}

/* The number that a control of the form name=number,... has for `function`. */
static inline long control_for(const char *name, const char *function, long fallback)
{
    const char *item = control(name);
    while (item) {
        const char *equals = strchr(item, '=');
        if (!equals)
            break;
        if (is_named(function, item, (size_t)(equals - item)))
            return strtol(equals + 1, NULL, 0);
        item = strchr(equals, ',');
        item = item ? item + 1 : NULL;
    }
    return fallback;
}

static inline int forced(const char *function)
{
    return (int)control_for("RC", function, 0);
}

static inline void pause_before(const char *function)
{
    long ms = control_for("DELAY", function, 0);
    struct timespec rest = {ms / 1000, ms % 1000 * 1000000L};
    if (ms > 0)
        while (nanosleep(&rest, &rest)) {
        }
}

/* Append "pid tid seq name args @context -> rc", the context being the one that was current when the
 * call began; NVML has none, and `where` is NULL. One write to a file opened with O_APPEND, so that lines
 * of several threads and processes never mix; opened anew each time, because programs that fork
 * close files which they do not know. `seq` counts the calls of this library in this process. */
static inline void log_call(const char *function, int rc, const char *where, const char *format,
                            va_list arguments)
{
    static unsigned long sequence;
    const char *path = control("LOG");
    char line[512], said[320] = "";
    int length, file;
    if (!path)
        return;
    vsnprintf(said, sizeof said, format, arguments);
    length = snprintf(line, sizeof line, "%d %ld %lu %s%s%s%s%s -> %d\n", (int)getpid(),
                      (long)syscall(SYS_gettid), __atomic_add_fetch(&sequence, 1, __ATOMIC_RELAXED),
                      function, *said ? " " : "", said, where ? " @" : "", where ? where : "", rc);
    file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file < 0)
        return;
    if (write(file, line, (size_t)length) != length)
        fputs("stub_cuda: the log could not be written\n", stderr);
    close(file);
}

#endif
