/* libcuda.so.1 without a GPU: initialization, device enumeration and contexts.
 *
 * Written from the public contract, the CUDA Driver API reference manual ("Initialization",
 * "Version Management", "Device Management", "Primary Context Management", "Context Management",
 * "Driver Entry Point Access", "Error Handling") and the section "CUDA Environment Variables" of
 * the CUDA C++ Programming Guide. What is modeled is said at each part, and so is what the
 * manual leaves open. No work can be done on these devices. The wide variant has memory in which
 * bytes can be kept (stub_memory.c, stub_copies.c), streams and events (stub_streams.c); in no
 * variant are there modules or kernels.
 *
 *     cc -shared -fPIC -fvisibility=hidden -Wl,-soname,libcuda.so.1 -o libcuda.so.1 \
 *         stub_cuda.c -lpthread -ldl
 *
 * The controls are listed in stub.h, the devices in devices.h.
 */
#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>

typedef struct {
    unsigned char bytes[16];
} CUuuid;

static const struct error {
    int code;
    const char *name, *text;
} errors[] = {
    {SUCCESS, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {34, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"},
    {DEVICE_UNAVAILABLE, "CUDA_ERROR_DEVICE_UNAVAILABLE",
     "CUDA-capable device(s) is/are busy or unavailable"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {PRIMARY_CONTEXT_ACTIVE, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE",
     "cannot set while device is active in this process"},
    {CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {HOST_MEMORY_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "part or all of the requested memory range is already mapped"},
    {HOST_MEMORY_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
     "pointer does not correspond to a registered memory region"},
    {NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {CAPTURE_MERGE, "CUDA_ERROR_STREAM_CAPTURE_MERGE",
     "operation would result in a merge of separate capture sequences"},
    {CAPTURE_UNMATCHED, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
     "capture was not ended in the same stream as it began"},
    {CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
    {CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
    {CAPTURE_WRONG_THREAD, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {802, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
     "system has unsupported display driver / cuda driver combination"},
    {804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
     "forward compatibility was attempted on non supported HW"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

/* ---- The state of a process ---------------------------------------------------------------- */

static struct {
    struct context context;
    unsigned references, flags;
} primaries[MOST_DEVICES];
static struct context *created;

/* What cuInit found: the device behind each CUDA ordinal. */
static struct {
    int physical;
    char mig[96]; /* the name of the MIG instance, or "" */
} visible[MOST_DEVICES];
static int visible_count;

static int initialized, forked;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Each host thread has a stack of current contexts (Programming Guide, "Driver API", "Context"). */
#define DEEPEST 64
static __thread CUcontext stack[DEEPEST];
static __thread int depth;

/* A child of fork() inherits a driver that was initialized by somebody else, and cannot use it:
 * every call that needs an initialized driver says 3, cuInit as well, for good. Not in the manual;
 * documented by those who meet it (PyTorch's notes on multiprocessing: CUDA does not support the
 * start method "fork"). A child whose parent had only loaded the library, or had failed in cuInit,
 * is free. */
static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&lock);
}

static void after_fork_in_child(void)
{
    forked |= initialized;
    pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void load(void)
{
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

/* "primary0", "own1", "green0", or "-": which context was current when the call began. */
static __thread char where[24];

static void remember_context(void)
{
    CUcontext now = current();
    if (!now)
        snprintf(where, sizeof where, "-");
    else
        snprintf(where, sizeof where, "%s%d",
                 now->is_primary ? "primary" : now->is_green ? "green" : "own",
                 now->number ? now->number : now->device);
}

/* Every function begins with one of these two, which take the lock ... */
static int enter_always(const char *function)
{
    pause_before(function);
    pthread_mutex_lock(&lock);
    remember_context();
    return forced(function);
}

/* Without cuInit, every function says CUDA_ERROR_NOT_INITIALIZED (manual, cuInit). */
int enter(const char *function)
{
    int rc = enter_always(function);
    return forked || !initialized ? NOT_INITIALIZED : rc;
}

/* ... and ends with this, so that the order of the log is the order of what happened. */
int leave(const char *function, int rc, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    log_call(function, rc, where, format, arguments);
    va_end(arguments);
    pthread_mutex_unlock(&lock);
    return rc;
}

/* ---- Initialization ------------------------------------------------------------------------ */

/* The device at a position of the enumeration, before CUDA_VISIBLE_DEVICES. CUDA_DEVICE_ORDER is
 * FASTEST_FIRST by default, or PCI_BUS_ID for ascending addresses (Programming Guide). Here the
 * devices with higher addresses are faster. */
static int enumerated(int position, int count)
{
    const char *order = getenv("CUDA_DEVICE_ORDER");
    return order && !strcmp(order, "PCI_BUS_ID") ? position : count - 1 - position;
}

/* "GPU-" and as many digits of the UUID as are needed to tell the device from all others
 * (Programming Guide). Gives -1 for none and for several. */
static int by_uuid(const char *entry, int count)
{
    int found = -1;
    for (int i = 0; i < count; i++)
        if (!strncmp(devices[i].uuid, entry + 4, strlen(entry + 4))) {
            if (found >= 0)
                return -1;
            found = i;
        }
    return found;
}

static int by_mig(const char *entry, int count)
{
    long device = control_for("MIG", entry, -1);
    return device < count ? (int)device : -1;
}

static int by_number(const char *entry, int count)
{
    char *end;
    long number = strtol(entry, &end, 10);
    return end == entry || number < 0 || number >= count ? -1 : enumerated((int)number, count);
}

/* Fill `visible` from CUDA_VISIBLE_DEVICES.
 *
 * Documented: indices or UUIDs, in the order in which they are given; devices behind an invalid
 * entry are not visible; MIG instances by name. Not documented, and taken from
 * torch.cuda._parse_visible_devices, which says that it follows the driver: the first entry
 * decides whether names or numbers are meant, "1x" is 1, and a device named twice makes the whole
 * list empty. A MIG instance ends the enumeration, because a process sees one at most; without the
 * variable it is the first (MIG User Guide, "CUDA Device Enumeration"). */
static void enumerate(void)
{
    int count = control_devices();
    const char *wanted = getenv("CUDA_VISIBLE_DEVICES");
    char copy[1024], *rest = copy, *entry;
    const char *kind = NULL;
    visible_count = 0;
    if (!wanted && control("MIG")) {
        const char *all = control("MIG");
        snprintf(copy, sizeof copy, "%.*s", (int)strcspn(all, "="), all);
        wanted = copy;
    }
    if (!wanted) {
        for (int i = 0; i < count; i++) {
            visible[visible_count].physical = enumerated(i, count);
            visible[visible_count++].mig[0] = '\0';
        }
        return;
    }
    if (wanted != copy)
        snprintf(copy, sizeof copy, "%s", wanted);
    while ((entry = strsep(&rest, ",")) != NULL) {
        const char *is = !strncmp(entry += strspn(entry, " "), "GPU-", 4) ? "GPU"
                         : !strncmp(entry, "MIG-", 4)                     ? "MIG"
                                                                          : "number";
        int found;
        entry[strcspn(entry, " ")] = '\0';
        kind = kind ? kind : is;
        if (kind != is)
            break;
        found = *is == 'G'   ? by_uuid(entry, count)
                : *is == 'M' ? by_mig(entry, count)
                             : by_number(entry, count);
        if (found < 0)
            break;
        for (int i = 0; i < visible_count; i++)
            if (visible[i].physical == found) {
                visible_count = 0;
                return;
            }
        visible[visible_count].physical = found;
        snprintf(visible[visible_count].mig, sizeof visible[0].mig, "%s",
                 *is == 'M' ? entry : "");
        visible_count++;
        if (*is == 'M')
            break;
    }
}

/* What the environment says about devices is read here, once; later calls change nothing. A call
 * that fails leaves nothing behind and may be repeated. The flags must be 0. */
API int cuInit(unsigned flags)
{
    int rc = enter_always("cuInit");
    if (forked)
        rc = NOT_INITIALIZED;
    else if (flags)
        rc = INVALID_VALUE;
    else if (initialized)
        rc = SUCCESS;
    else if (!rc) {
        enumerate();
        rc = visible_count ? SUCCESS : NO_DEVICE;
        initialized = rc == SUCCESS;
        for (int i = 0; i < MOST_DEVICES; i++) {
            primaries[i].context.device = i;
            primaries[i].context.is_primary = 1;
        }
    }
    return leave("cuInit", rc, "flags=%u", flags);
}

/* By the manual this fails for NULL only: it works before cuInit, and so in a forked child. */
API int cuDriverGetVersion(int *version)
{
    int rc = enter_always("cuDriverGetVersion");
    if (!rc && !version)
        rc = INVALID_VALUE;
    if (!rc)
        *version = (int)control_number("DRIVER_VERSION", 13000);
    return leave("cuDriverGetVersion", rc, "%s", "");
}

/* ---- Devices ------------------------------------------------------------------------------- */

int check_device(int rc, int device)
{
    return rc ? rc : device < 0 || device >= visible_count ? INVALID_DEVICE : SUCCESS;
}

static const struct device *device_of(int device)
{
    return &devices[visible[device].physical];
}

API int cuDeviceGetCount(int *count)
{
    int rc = enter("cuDeviceGetCount");
    if (!rc && !count)
        rc = INVALID_VALUE;
    if (!rc)
        *count = visible_count;
    return leave("cuDeviceGetCount", rc, "%s", "");
}

API int cuDeviceGet(int *device, int ordinal)
{
    int rc = check_device(enter("cuDeviceGet"), ordinal);
    if (!rc && !device)
        rc = INVALID_VALUE;
    if (!rc)
        *device = ordinal;
    return leave("cuDeviceGet", rc, "ordinal=%d", ordinal);
}

/* `length` is the most that is written: the name is cut, not refused. That the profile of a MIG
 * instance is part of it is not in the manual; it is what nvidia-smi and torch show. */
API int cuDeviceGetName(char *name, int length, int device)
{
    int rc = check_device(enter("cuDeviceGetName"), device);
    if (!rc && (!name || length < 1))
        rc = INVALID_VALUE;
    if (!rc)
        snprintf(name, (size_t)length, "%s%s", device_of(device)->name,
                 *visible[device].mig ? " MIG 1g.5gb" : "");
    return leave("cuDeviceGetName", rc, "device=%d", device);
}

/* The 16 bytes whose digits are in `text`. */
static void parse_uuid(CUuuid *uuid, const char *text)
{
    for (int i = 0; i < 16; i++) {
        unsigned byte = 0;
        text += strspn(text, "-");
        if (sscanf(text, "%2x", &byte) == 1)
            text += 2;
        uuid->bytes[i] = (unsigned char)byte;
    }
}

/* The first version gives the UUID of the GPU, the second that of the MIG instance, if the device
 * is one. MIG names of the old form (MIG-GPU-.../1/0) have no UUID of their own. */
static int uuid_of(const char *function, CUuuid *uuid, int device, int with_mig)
{
    int rc = check_device(enter(function), device);
    if (!rc && !uuid)
        rc = INVALID_VALUE;
    if (!rc) {
        const char *mig = visible[device].mig;
        if (with_mig && *mig && !strchr(mig, '/'))
            parse_uuid(uuid, mig + 4);
        else
            parse_uuid(uuid, device_of(device)->uuid);
    }
    return leave(function, rc, "device=%d", device);
}

API int cuDeviceGetUuid(CUuuid *uuid, int device)
{
    return uuid_of("cuDeviceGetUuid", uuid, device, 0);
}

API int cuDeviceGetUuid_v2(CUuuid *uuid, int device)
{
    return uuid_of("cuDeviceGetUuid_v2", uuid, device, 1);
}

/* domain:bus:device.function in hexadecimal, 13 characters with the end. NVML has eight digits for
 * the domain instead of four. */
static void write_bus_id(char *text, size_t length, const struct device *device)
{
    snprintf(text, length, "%04X:%02X:00.0", device->domain, device->bus);
}

API int cuDeviceGetPCIBusId(char *text, int length, int device)
{
    int rc = check_device(enter("cuDeviceGetPCIBusId"), device);
    if (!rc && (!text || length < 13))
        rc = INVALID_VALUE;
    if (!rc)
        write_bus_id(text, (size_t)length, device_of(device));
    return leave("cuDeviceGetPCIBusId", rc, "device=%d", device);
}

/* Of the three forms that the manual allows only the full one. */
API int cuDeviceGetByPCIBusId(int *device, const char *text)
{
    int rc = enter("cuDeviceGetByPCIBusId");
    if (!rc && (!device || !text))
        rc = INVALID_VALUE;
    if (!rc) {
        rc = INVALID_DEVICE;
        for (int i = 0; i < visible_count && rc; i++) {
            char own[16];
            write_bus_id(own, sizeof own, device_of(i));
            if (!strcasecmp(own, text)) {
                *device = i;
                rc = SUCCESS;
            }
        }
    }
    return leave("cuDeviceGetByPCIBusId", rc, "id=%s", text ? text : "NULL");
}

API int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    int rc = check_device(enter("cuDeviceTotalMem_v2"), device);
    if (!rc && !bytes)
        rc = INVALID_VALUE;
    if (!rc)
        *bytes = device_of(device)->mib * MIB;
    return leave("cuDeviceTotalMem_v2", rc, "device=%d", device);
}

static int compute_mode(int device)
{
    return (int)control_of_device("COMPUTE_MODE", visible[device].physical, 0);
}

/* The numbers are CUdevice_attribute. Attributes that are not modeled are 0. */
API int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    int rc = check_device(enter("cuDeviceGetAttribute"), device);
    int major, minor;
    if (!rc && (!value || attribute < 1 || attribute > 1000))
        rc = INVALID_VALUE;
    if (!rc) {
        capability_of_device(visible[device].physical, &major, &minor);
        switch (attribute) {
        case 1: /* MAX_THREADS_PER_BLOCK */
            *value = 1024;
            break;
        case 10: /* WARP_SIZE */
            *value = 32;
            break;
        case 16: /* MULTIPROCESSOR_COUNT */
            *value = device_of(device)->multiprocessors;
            break;
        case 20: /* COMPUTE_MODE */
            *value = compute_mode(device);
            break;
        case 33: /* PCI_BUS_ID */
            *value = (int)device_of(device)->bus;
            break;
        case 41: /* UNIFIED_ADDRESSING */
            *value = 1;
            break;
        case 50: /* PCI_DOMAIN_ID */
            *value = (int)device_of(device)->domain;
            break;
        case 75: /* COMPUTE_CAPABILITY_MAJOR */
            *value = major;
            break;
        case 76: /* COMPUTE_CAPABILITY_MINOR */
            *value = minor;
            break;
        default:
            *value = 0;
        }
    }
    return leave("cuDeviceGetAttribute", rc, "attribute=%d device=%d", attribute, device);
}

/* Deprecated since CUDA 5, and still what PyCUDA asks. */
API int cuDeviceComputeCapability(int *major, int *minor, int device)
{
    int rc = check_device(enter("cuDeviceComputeCapability"), device);
    if (!rc && (!major || !minor))
        rc = INVALID_VALUE;
    if (!rc)
        capability_of_device(visible[device].physical, major, minor);
    return leave("cuDeviceComputeCapability", rc, "device=%d", device);
}

/* ---- What contexts cost -------------------------------------------------------------------- */

static unsigned long long used_bytes(int device)
{
    unsigned long long contexts = (unsigned long long)primaries[device].context.alive;
    for (const struct context *each = created; each; each = each->next)
        contexts += each->alive && each->device == device && !each->is_green;
    return contexts * (unsigned long long)control_number("CONTEXT_MIB", 500) * MIB;
}

/* Whether the device takes one more context. The manual has two answers for a prohibited device:
 * CUDA_ERROR_DEVICE_UNAVAILABLE (at CUresult), which is the one here, and CUDA_ERROR_UNKNOWN (at
 * cuCtxCreate and cuDevicePrimaryCtxRetain). That another process holds an exclusive device is for
 * a test to say, by STUB_CUDA_RC. */
static int check_room(int device)
{
    unsigned long long one = (unsigned long long)control_number("CONTEXT_MIB", 500) * MIB;
    if (compute_mode(device) == 2)
        return DEVICE_UNAVAILABLE;
    return used_bytes(device) + one > device_of(device)->mib * MIB ? OUT_OF_MEMORY : SUCCESS;
}

static void end(CUcontext context)
{
    context->ended += (unsigned)context->alive;
    context->alive = 0;
}

/* ---- Primary contexts ---------------------------------------------------------------------- */

/* One per device, shared with the CUDA runtime. Its handle is the same for the life of the process,
 * also when it was destroyed in between (the manual leaves this open). */

CUcontext primary_of(int device)
{
    return &primaries[device].context;
}

/* Makes the context active if it is not, and counts the user. Unlike cuCtxCreate it pushes nothing
 * onto the stack of the thread. */
API int cuDevicePrimaryCtxRetain(CUcontext *context, int device)
{
    int rc = check_device(enter("cuDevicePrimaryCtxRetain"), device);
    if (!rc && !context)
        rc = INVALID_VALUE;
    if (!rc && !primaries[device].context.alive)
        rc = check_room(device);
    if (!rc) {
        primaries[device].context.alive = 1;
        primaries[device].references++;
        *context = &primaries[device].context;
    }
    return leave("cuDevicePrimaryCtxRetain", rc, "device=%d", device);
}

/* The last release destroys the context, whatever threads it is current to, and unlike cuCtxDestroy
 * pops it from no stack. Releasing what was not retained is CUDA_ERROR_INVALID_CONTEXT. */
static int release(const char *function, int device)
{
    int rc = check_device(enter(function), device);
    if (!rc && !primaries[device].references)
        rc = INVALID_CONTEXT;
    if (!rc && --primaries[device].references == 0)
        end(&primaries[device].context);
    return leave(function, rc, "device=%d", device);
}

API int cuDevicePrimaryCtxRelease(int device)
{
    return release("cuDevicePrimaryCtxRelease", device);
}

API int cuDevicePrimaryCtxRelease_v2(int device)
{
    return release("cuDevicePrimaryCtxRelease_v2", device);
}

/* Destroys the context, whoever else uses it, but releases nothing: those who retained it should
 * still release it. */
static int reset(const char *function, int device)
{
    int rc = check_device(enter(function), device);
    if (!rc)
        end(&primaries[device].context);
    return leave(function, rc, "device=%d", device);
}

API int cuDevicePrimaryCtxReset(int device)
{
    return reset("cuDevicePrimaryCtxReset", device);
}

API int cuDevicePrimaryCtxReset_v2(int device)
{
    return reset("cuDevicePrimaryCtxReset_v2", device);
}

/* Creates nothing: only tells. */
API int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    int rc = check_device(enter("cuDevicePrimaryCtxGetState"), device);
    if (!rc && (!flags || !active))
        rc = INVALID_VALUE;
    if (!rc) {
        *flags = primaries[device].flags;
        *active = primaries[device].context.alive;
    }
    return leave("cuDevicePrimaryCtxGetState", rc, "device=%d", device);
}

/* Before CUDA 11 the flags of an active primary context could not be set; since then (_v2) they
 * can. */
static int set_flags(const char *function, int device, unsigned flags, int also_active)
{
    int rc = check_device(enter(function), device);
    if (!rc && primaries[device].context.alive && !also_active)
        rc = PRIMARY_CONTEXT_ACTIVE;
    if (!rc)
        primaries[device].flags = flags;
    return leave(function, rc, "device=%d flags=%u", device, flags);
}

API int cuDevicePrimaryCtxSetFlags(int device, unsigned flags)
{
    return set_flags("cuDevicePrimaryCtxSetFlags", device, flags, 0);
}

API int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags)
{
    return set_flags("cuDevicePrimaryCtxSetFlags_v2", device, flags, 1);
}

/* ---- Contexts of one's own, and the current one -------------------------------------------- */

/* Whether a handle is a context at all, and one that still lives. */
static int check_context(CUcontext context)
{
    for (int i = 0; i < visible_count; i++)
        if (context == &primaries[i].context)
            return context->alive ? SUCCESS : CONTEXT_IS_DESTROYED;
    for (struct context *each = created; each; each = each->next)
        if (context == each)
            return context->alive ? SUCCESS : CONTEXT_IS_DESTROYED;
    return INVALID_CONTEXT;
}

CUcontext current(void)
{
    return depth ? stack[depth - 1] : NULL;
}

struct owner owner_now(void)
{
    return (struct owner){current(), current()->ended};
}

/* For functions that need a current context, and one that was not destroyed by another thread. */
int check_current(int rc)
{
    if (rc)
        return rc;
    return current() ? check_context(current()) : INVALID_CONTEXT;
}

static int push(CUcontext context)
{
    if (depth == DEEPEST)
        return OUT_OF_MEMORY;
    stack[depth++] = context;
    return SUCCESS;
}

/* Makes a new context, never the primary one, and pushes it: a context that was current before
 * comes back with cuCtxPopCurrent. */
static int create(const char *function, CUcontext *context, unsigned flags, int device)
{
    static int numbers;
    int rc = check_device(enter(function), device);
    struct context *made = NULL;
    if (!rc && !context)
        rc = INVALID_VALUE;
    if (!rc)
        rc = check_room(device);
    if (!rc && !(made = calloc(1, sizeof *made)))
        rc = OUT_OF_MEMORY;
    if (!rc && (rc = push(made)))
        free(made);
    if (!rc) {
        made->device = device;
        made->flags = flags;
        made->alive = 1;
        made->number = ++numbers;
        made->next = created;
        created = made;
        *context = made;
    }
    return leave(function, rc, "flags=%u device=%d", flags, device);
}

API int cuCtxCreate_v2(CUcontext *context, unsigned flags, int device)
{
    return create("cuCtxCreate_v2", context, flags, device);
}

/* Later forms, and what the name cuCtxCreate means in the headers of CUDA 13. The execution
 * affinity and other parameters are ignored. */
API int cuCtxCreate_v3(CUcontext *context, void *affinity, int count, unsigned flags, int device)
{
    (void)affinity, (void)count;
    return create("cuCtxCreate_v3", context, flags, device);
}

API int cuCtxCreate_v4(CUcontext *context, void *parameters, unsigned flags, int device)
{
    (void)parameters;
    return create("cuCtxCreate_v4", context, flags, device);
}

/* Destroys the context, whatever threads it is current to; pops it if it is current to this one.
 * Other threads keep it, and get CUDA_ERROR_CONTEXT_IS_DESTROYED. That a primary context is refused
 * is not in the manual. */
API int cuCtxDestroy_v2(CUcontext context)
{
    int rc = enter("cuCtxDestroy_v2");
    if (!rc)
        rc = check_context(context);
    if (!rc && context->is_primary)
        rc = INVALID_CONTEXT;
    if (!rc) {
        end(context);
        if (current() == context)
            depth--;
    }
    return leave("cuCtxDestroy_v2", rc, "context=%p", (void *)context);
}

/* A green context retains the primary one of its device. What it converts to is a context of its own,
 * current to one thread at a time; the resources that it is made of are not modeled. The handle is
 * not that of the context, so that one who does not convert it gets CUDA_ERROR_INVALID_CONTEXT. */
API int cuGreenCtxCreate(char **green, void *resources, int device, unsigned flags)
{
    int rc = check_device(enter("cuGreenCtxCreate"), device);
    struct context *made = NULL;
    (void)resources;
    if (!rc && (!green || flags != 1)) /* CU_GREEN_CTX_DEFAULT_STREAM is required */
        rc = INVALID_VALUE;
    if (!rc && !(made = calloc(1, sizeof *made)))
        rc = OUT_OF_MEMORY;
    if (!rc) {
        primaries[device].context.alive = 1;
        primaries[device].references++;
        *made = (struct context){.next = created, .device = device, .is_green = 1, .alive = 1};
        created = made;
        *green = (char *)made + 1;
    }
    return leave("cuGreenCtxCreate", rc, "device=%d", device);
}

API int cuCtxFromGreenCtx(CUcontext *context, char *green)
{
    int rc = enter("cuCtxFromGreenCtx");
    if (!rc && (!context || !green))
        rc = INVALID_VALUE;
    if (!rc)
        *context = (CUcontext)(void *)(green - 1);
    return leave("cuCtxFromGreenCtx", rc, "%s", "");
}

/* The old way: the context must be current, and come from cuCtxCreate. Its usage count is always 1,
 * as there is no cuCtxAttach here. */
API int cuCtxDetach(CUcontext context)
{
    int rc = check_current(enter("cuCtxDetach"));
    if (!rc && (context != current() || context->is_primary))
        rc = INVALID_CONTEXT;
    if (!rc) {
        end(context);
        depth--;
    }
    return leave("cuCtxDetach", rc, "context=%p", (void *)context);
}

/* No context is no error: it is NULL. */
API int cuCtxGetCurrent(CUcontext *context)
{
    int rc = enter("cuCtxGetCurrent");
    if (!rc && !context)
        rc = INVALID_VALUE;
    if (!rc)
        *context = current();
    return leave("cuCtxGetCurrent", rc, "%s", "");
}

/* Replaces the top of the stack. NULL pops it, and does nothing if the stack is empty. */
API int cuCtxSetCurrent(CUcontext context)
{
    int rc = enter("cuCtxSetCurrent");
    if (!rc && context)
        rc = check_context(context);
    if (!rc && depth)
        depth--;
    if (!rc && context)
        rc = push(context);
    return leave("cuCtxSetCurrent", rc, "context=%p", (void *)context);
}

API int cuCtxPushCurrent_v2(CUcontext context)
{
    int rc = enter("cuCtxPushCurrent_v2");
    if (!rc)
        rc = check_context(context);
    if (!rc)
        rc = push(context);
    return leave("cuCtxPushCurrent_v2", rc, "context=%p", (void *)context);
}

API int cuCtxPopCurrent_v2(CUcontext *context)
{
    int rc = enter("cuCtxPopCurrent_v2");
    if (!rc && !depth)
        rc = INVALID_CONTEXT;
    if (!rc) {
        depth--;
        if (context)
            *context = stack[depth];
    }
    return leave("cuCtxPopCurrent_v2", rc, "%s", "");
}

/* The second versions (CUDA 13) take a context, NULL for the current one. */
static int get_device(const char *function, int *device, CUcontext context)
{
    int rc = enter(function);
    rc = rc || !context ? check_current(rc) : check_context(context);
    if (!rc && !device)
        rc = INVALID_VALUE;
    if (!rc)
        *device = (context ? context : current())->device;
    return leave(function, rc, "context=%p", (void *)context);
}

API int cuCtxGetDevice(int *device)
{
    return get_device("cuCtxGetDevice", device, NULL);
}

API int cuCtxGetDevice_v2(int *device, CUcontext context)
{
    return get_device("cuCtxGetDevice_v2", device, context);
}

/* The narrow variant has no streams, so nothing is ever captured there. */
__attribute__((weak)) int check_unsafe(int rc, CUcontext whole)
{
    (void)whole;
    return rc;
}

/* There is never work to wait for. */
static int synchronize(const char *function, CUcontext context)
{
    int rc = enter(function);
    rc = rc || !context ? check_current(rc) : check_context(context);
    rc = check_unsafe(rc, context ? context : current());
    return leave(function, rc, "context=%p", (void *)context);
}

API int cuCtxSynchronize(void)
{
    return synchronize("cuCtxSynchronize", NULL);
}

API int cuCtxSynchronize_v2(CUcontext context)
{
    return synchronize("cuCtxSynchronize_v2", context);
}

/* Of the device of the current context. Only the contexts of this process use any memory. */
API int cuMemGetInfo_v2(size_t *available, size_t *total)
{
    int rc = check_current(enter("cuMemGetInfo_v2"));
    if (!rc && (!available || !total))
        rc = INVALID_VALUE;
    if (!rc) {
        int device = current()->device;
        *total = device_of(device)->mib * MIB;
        *available = *total - used_bytes(device);
    }
    return leave("cuMemGetInfo_v2", rc, "%s", "");
}

/* ---- Errors and entry points --------------------------------------------------------------- */

static const struct error *find_error(int code)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code)
            return &errors[i];
    return NULL;
}

/* For an unknown code the text is NULL and the status CUDA_ERROR_INVALID_VALUE. Works always. */
API int cuGetErrorName(int error, const char **text)
{
    int rc = enter_always("cuGetErrorName");
    const struct error *found = find_error(error);
    if (!rc && (!text || !found))
        rc = INVALID_VALUE;
    if (text)
        *text = rc ? NULL : found->name;
    return leave("cuGetErrorName", rc, "error=%d", error);
}

API int cuGetErrorString(int error, const char **text)
{
    int rc = enter_always("cuGetErrorString");
    const struct error *found = find_error(error);
    if (!rc && (!text || !found))
        rc = INVALID_VALUE;
    if (text)
        *text = rc ? NULL : found->text;
    return leave("cuGetErrorString", rc, "error=%d", error);
}

/* Functions with a form that is younger than cuGetProcAddress (11.3): since which version the name
 * means that form. Read off the requests of cuda-bindings 13.5. */
static const struct {
    const char *symbol;
    int since;
    const char *name;
} forms[] = {
    {"cuCtxCreate", 12050, "cuCtxCreate_v4"},
    {"cuCtxCreate", 11040, "cuCtxCreate_v3"},
    {"cuCtxCreate", 0, "cuCtxCreate_v2"},
    {"cuCtxGetDevice", 13000, "cuCtxGetDevice_v2"},
    {"cuCtxGetDevice", 0, "cuCtxGetDevice"},
    {"cuCtxSynchronize", 13000, "cuCtxSynchronize_v2"},
    {"cuCtxSynchronize", 0, "cuCtxSynchronize"},
    {"cuDeviceGetUuid", 11040, "cuDeviceGetUuid_v2"},
    {"cuDeviceGetUuid", 0, "cuDeviceGetUuid"},
    {"cuEventElapsedTime", 12080, "cuEventElapsedTime_v2"},
    {"cuEventElapsedTime", 0, "cuEventElapsedTime"},
    {"cuGetProcAddress", 12000, "cuGetProcAddress_v2"},
    {"cuGetProcAddress", 0, "cuGetProcAddress"},
    {"cuStreamBeginCapture", 0, "cuStreamBeginCapture_v2"},
    {"cuStreamGetCtx", 12050, "cuStreamGetCtx_v2"},
    {"cuStreamGetCtx", 0, "cuStreamGetCtx"},
};

/* The function that a program built for `version` means by a name without version. For functions
 * that are not in the table it is the latest form. */
static void *entry_point(const char *symbol, int version)
{
    static const char *const suffixes[] = {"_v3", "_v2", ""};
    char name[128];
    Dl_info own;
    void *library, *found = NULL;
    if (!dladdr((void *)(size_t)&cuInit, &own))
        return NULL;
    library = dlopen(own.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (!library)
        return NULL;
    for (size_t i = 0; !found && i < sizeof forms / sizeof *forms; i++)
        if (!strcmp(symbol, forms[i].symbol) && version >= forms[i].since)
            found = dlsym(library, forms[i].name);
    for (size_t i = 0; !found && i < sizeof suffixes / sizeof *suffixes; i++) {
        snprintf(name, sizeof name, "%s%s", symbol, suffixes[i]);
        found = dlsym(library, name);
    }
    dlclose(library);
    return found;
}

/* A version beyond that of the driver is CUDA_ERROR_INVALID_VALUE. An unknown symbol is no error
 * since CUDA 12 (_v2): NULL, and status 1, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND. Needs no cuInit.
 * The flags, which ask for per-thread streams, are ignored. */
static int look_up(const char *function, const char *symbol, void **found, int version, int *status)
{
    int rc = enter_always(function);
    if (!rc && (!symbol || !found || version > control_number("DRIVER_VERSION", 13000)))
        rc = INVALID_VALUE;
    if (!rc) {
        *found = entry_point(symbol, version);
        if (status)
            *status = *found ? 0 : 1;
    }
    return leave(function, rc, "symbol=%s version=%d", symbol ? symbol : "NULL", version);
}

API int cuGetProcAddress_v2(const char *symbol, void **found, int version, unsigned long long flags,
                            int *status)
{
    (void)flags;
    return look_up("cuGetProcAddress_v2", symbol, found, version, status);
}

API int cuGetProcAddress(const char *symbol, void **found, int version, unsigned long long flags)
{
    int rc = look_up("cuGetProcAddress", symbol, found, version, NULL);
    (void)flags;
    return rc || *found ? rc : NOT_FOUND;
}

/* ---- The wide variant ---------------------------------------------------------------------- */

/* Behind every function that only has to exist (see native_fixtures.py): programs that are linked
 * to many functions of the driver can then be loaded, and see which of them they called. */
__attribute__((visibility("hidden"))) int stub_cuda_unmodeled(const char *function)
{
    int rc = enter(function);
    return leave(function, rc ? rc : NOT_SUPPORTED, "%s", "");
}
