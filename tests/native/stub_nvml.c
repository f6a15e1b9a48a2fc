/* libnvidia-ml.so.1 without a GPU: what a program asks NVML before it dares to touch CUDA.
 *
 * Written from the public contract, the NVML API Reference Guide ("Initialization and Cleanup",
 * "System Queries", "Device Queries", "Device Structs"). The same devices as in stub_cuda.c, but
 * always all of them and always in the order of their PCI addresses: NVML knows nothing of
 * CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER. It calls no function of CUDA, so it does not see what
 * contexts there are: memory in use and processes come from controls (stub.h).
 *
 *     cc -shared -fPIC -fvisibility=hidden -Wl,-soname,libnvidia-ml.so.1 -o libnvidia-ml.so.1 \
 *         stub_nvml.c -lpthread
 */
#include "stub.h"

#include <pthread.h>

typedef const struct device *nvmlDevice_t;
typedef unsigned long long bytes_t;

/* nvmlReturn_t, as far as this library gives it by itself or a test may force it. */
enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    ARGUMENT_VERSION_MISMATCH = 25,
};

static const struct {
    int code;
    const char *text;
} errors[] = {
    {SUCCESS, "Success"},
    {UNINITIALIZED, "Uninitialized"},
    {INVALID_ARGUMENT, "Invalid Argument"},
    {3, "Not Supported"},
    {4, "Insufficient Permissions"},
    {NOT_FOUND, "Not Found"},
    {INSUFFICIENT_SIZE, "Insufficient Size"},
    {9, "Driver Not Loaded"},
    {12, "NVML Shared Library Not Found"},
    {13, "Function Not Found"},
    {15, "GPU is lost"},
    {18, "Driver/library version mismatch"},
    {ARGUMENT_VERSION_MISMATCH, "Argument version mismatch"},
    {999, "Unknown Error"},
};

/* The structures of "Device Structs", by their documented fields. */
typedef struct {
    bytes_t total, free, used;
} nvmlMemory_t;

typedef struct {
    unsigned version;
    bytes_t total, reserved, free, used;
} nvmlMemory_v2_t;

typedef struct {
    char busIdLegacy[16]; /* four digits for the domain */
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32]; /* eight digits */
} nvmlPciInfo_t;

typedef struct {
    unsigned pid;
    bytes_t used;
} nvmlProcessInfo_v1_t;

typedef struct {
    unsigned pid;
    bytes_t used;
    unsigned gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;

#define NO_MIG_INSTANCE 0xFFFFFFFFU
#define NOT_AVAILABLE (~0ULL)
#define RESERVED (256 * MIB)

/* Each nvmlInit counts one user, each nvmlShutdown takes one away; without users NVML is shut. */
static unsigned references;
static int count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int enter(const char *function)
{
    int rc;
    pause_before(function);
    pthread_mutex_lock(&lock);
    rc = forced(function);
    return references ? rc : UNINITIALIZED;
}

__attribute__((format(printf, 3, 4))) static int leave(const char *function, int rc,
                                                       const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    log_call(function, rc, NULL, format, arguments);
    va_end(arguments);
    pthread_mutex_unlock(&lock);
    return rc;
}

static int index_of(nvmlDevice_t device)
{
    for (int i = 0; i < count; i++)
        if (device == &devices[i])
            return i;
    return -1;
}

static int check_device(int rc, nvmlDevice_t device)
{
    return rc ? rc : index_of(device) < 0 ? INVALID_ARGUMENT : SUCCESS;
}

/* Texts are copied whole or not at all. */
static int copy(char *text, unsigned length, const char *value)
{
    if (!text)
        return INVALID_ARGUMENT;
    if (strlen(value) >= length)
        return INSUFFICIENT_SIZE;
    strcpy(text, value);
    return SUCCESS;
}

/* ---- Initialization, system ---------------------------------------------------------------- */

/* A machine without GPUs is no failure. The failures that a test forces (RC, "nvmlInit" for all
 * three): 9, the kernel driver is not loaded, and 18, it is of another version. */
static int init(const char *function, unsigned flags)
{
    int rc;
    pause_before(function);
    pthread_mutex_lock(&lock);
    rc = forced(function);
    if (!rc)
        rc = forced("nvmlInit");
    if (!rc && !references++)
        count = control_devices();
    return leave(function, rc, "flags=%u", flags);
}

API int nvmlInit(void)
{
    return init("nvmlInit", 0);
}

API int nvmlInit_v2(void)
{
    return init("nvmlInit_v2", 0);
}

API int nvmlInitWithFlags(unsigned flags)
{
    return init("nvmlInitWithFlags", flags);
}

API int nvmlShutdown(void)
{
    int rc = enter("nvmlShutdown");
    if (!rc)
        references--;
    return leave("nvmlShutdown", rc, "%s", "");
}

API int nvmlSystemGetDriverVersion(char *text, unsigned length)
{
    int rc = enter("nvmlSystemGetDriverVersion");
    const char *version = control("KERNEL_DRIVER");
    if (!rc)
        rc = copy(text, length, version ? version : "580.65.06");
    return leave("nvmlSystemGetDriverVersion", rc, "%s", "");
}

API int nvmlSystemGetNVMLVersion(char *text, unsigned length)
{
    int rc = enter("nvmlSystemGetNVMLVersion");
    const char *version = control("KERNEL_DRIVER");
    char own[64];
    snprintf(own, sizeof own, "%ld.%s", control_number("DRIVER_VERSION", 13000) / 1000,
             version ? version : "580.65.06");
    if (!rc)
        rc = copy(text, length, own);
    return leave("nvmlSystemGetNVMLVersion", rc, "%s", "");
}

static int cuda_version(const char *function, int *version)
{
    int rc = enter(function);
    if (!rc && !version)
        rc = INVALID_ARGUMENT;
    if (!rc)
        *version = (int)control_number("DRIVER_VERSION", 13000);
    return leave(function, rc, "%s", "");
}

/* The version that NVML was built with, and that of the installed libcuda: the same here. */
API int nvmlSystemGetCudaDriverVersion(int *version)
{
    return cuda_version("nvmlSystemGetCudaDriverVersion", version);
}

API int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    return cuda_version("nvmlSystemGetCudaDriverVersion_v2", version);
}

/* The only function that works without nvmlInit. */
API const char *nvmlErrorString(int error)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == error)
            return errors[i].text;
    return "Unknown Error";
}

/* ---- Finding a device ---------------------------------------------------------------------- */

static int device_count(const char *function, unsigned *number)
{
    int rc = enter(function);
    if (!rc && !number)
        rc = INVALID_ARGUMENT;
    if (!rc)
        *number = (unsigned)count;
    return leave(function, rc, "%s", "");
}

API int nvmlDeviceGetCount(unsigned *number)
{
    return device_count("nvmlDeviceGetCount", number);
}

API int nvmlDeviceGetCount_v2(unsigned *number)
{
    return device_count("nvmlDeviceGetCount_v2", number);
}

API int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
    int rc = enter("nvmlDeviceGetHandleByIndex_v2");
    if (!rc && (!device || index >= (unsigned)count))
        rc = INVALID_ARGUMENT;
    if (!rc)
        *device = &devices[index];
    return leave("nvmlDeviceGetHandleByIndex_v2", rc, "index=%u", index);
}

/* Handles of MIG instances, one per GPU. Nothing can be asked of them but the GPU. */
static const struct device instances[MOST_DEVICES];

/* The whole UUID of a GPU, or the name of a MIG instance that the control MIG has. */
API int nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    int rc = enter("nvmlDeviceGetHandleByUUID");
    if (!rc && (!device || !uuid))
        rc = INVALID_ARGUMENT;
    if (!rc) {
        rc = NOT_FOUND;
        for (int i = 0; i < count; i++)
            if (!strncmp(uuid, "GPU-", 4) && !strcmp(uuid + 4, devices[i].uuid)) {
                *device = &devices[i];
                rc = SUCCESS;
            }
        if (!strncmp(uuid, "MIG-", 4)) {
            long index = control_for("MIG", uuid, -1);
            if (index >= 0 && index < count) {
                *device = &instances[index];
                rc = SUCCESS;
            }
        }
    }
    return leave("nvmlDeviceGetHandleByUUID", rc, "uuid=%s", uuid ? uuid : "NULL");
}

API int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t instance, nvmlDevice_t *device)
{
    int rc = enter("nvmlDeviceGetDeviceHandleFromMigDeviceHandle");
    if (!rc && (!device || instance < instances || instance >= instances + count))
        rc = INVALID_ARGUMENT;
    if (!rc)
        *device = &devices[instance - instances];
    return leave("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", rc, "%s", "");
}

/* Domain, bus and device, the domain with four or eight digits: the form of CUDA fits as well. */
API int nvmlDeviceGetHandleByPciBusId_v2(const char *text, nvmlDevice_t *device)
{
    int rc = enter("nvmlDeviceGetHandleByPciBusId_v2");
    unsigned domain, bus;
    if (!rc && (!device || !text || sscanf(text, "%x:%x:0", &domain, &bus) != 2))
        rc = INVALID_ARGUMENT;
    if (!rc) {
        rc = NOT_FOUND;
        for (int i = 0; i < count; i++)
            if (devices[i].domain == domain && devices[i].bus == bus) {
                *device = &devices[i];
                rc = SUCCESS;
            }
    }
    return leave("nvmlDeviceGetHandleByPciBusId_v2", rc, "id=%s", text ? text : "NULL");
}

/* ---- What a device is ---------------------------------------------------------------------- */

API int nvmlDeviceGetName(nvmlDevice_t device, char *text, unsigned length)
{
    int rc = check_device(enter("nvmlDeviceGetName"), device);
    if (!rc)
        rc = copy(text, length, device->name);
    return leave("nvmlDeviceGetName", rc, "device=%d", index_of(device));
}

API int nvmlDeviceGetUUID(nvmlDevice_t device, char *text, unsigned length)
{
    int rc = check_device(enter("nvmlDeviceGetUUID"), device);
    char uuid[64];
    if (!rc) {
        snprintf(uuid, sizeof uuid, "GPU-%s", device->uuid);
        rc = copy(text, length, uuid);
    }
    return leave("nvmlDeviceGetUUID", rc, "device=%d", index_of(device));
}

API int nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index)
{
    int rc = check_device(enter("nvmlDeviceGetIndex"), device);
    if (!rc && !index)
        rc = INVALID_ARGUMENT;
    if (!rc)
        *index = (unsigned)index_of(device);
    return leave("nvmlDeviceGetIndex", rc, "device=%d", index_of(device));
}

/* The number of the node /dev/nvidia*, which is neither the index of NVML nor that of CUDA. */
API int nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *number)
{
    int rc = check_device(enter("nvmlDeviceGetMinorNumber"), device);
    if (!rc && !number)
        rc = INVALID_ARGUMENT;
    if (!rc)
        *number = (unsigned)device->minor;
    return leave("nvmlDeviceGetMinorNumber", rc, "device=%d", index_of(device));
}

API int nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    int rc = check_device(enter("nvmlDeviceGetCudaComputeCapability"), device);
    if (!rc && (!major || !minor))
        rc = INVALID_ARGUMENT;
    if (!rc)
        capability_of_device(index_of(device), major, minor);
    return leave("nvmlDeviceGetCudaComputeCapability", rc, "device=%d", index_of(device));
}

API int nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *info)
{
    int rc = check_device(enter("nvmlDeviceGetPciInfo_v3"), device);
    if (!rc && !info)
        rc = INVALID_ARGUMENT;
    if (!rc) {
        memset(info, 0, sizeof *info);
        info->domain = device->domain;
        info->bus = device->bus;
        info->pciDeviceId = 0xFFFF10DE; /* a device of NVIDIA that does not exist */
        snprintf(info->busIdLegacy, sizeof info->busIdLegacy, "%04X:%02X:00.0", device->domain,
                 device->bus);
        snprintf(info->busId, sizeof info->busId, "%08X:%02X:00.0", device->domain, device->bus);
    }
    return leave("nvmlDeviceGetPciInfo_v3", rc, "device=%d", index_of(device));
}

/* ---- What it is used for ------------------------------------------------------------------- */

static bytes_t used_bytes(nvmlDevice_t device)
{
    return (bytes_t)control_of_device("USED_MIB", index_of(device), 0) * MIB;
}

/* The first version counts what the driver reserves as used, the second has a field for it. */
API int nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    int rc = check_device(enter("nvmlDeviceGetMemoryInfo"), device);
    if (!rc && !memory)
        rc = INVALID_ARGUMENT;
    if (!rc) {
        memory->total = device->mib * MIB;
        memory->used = used_bytes(device) + RESERVED;
        memory->free = memory->total - memory->used;
    }
    return leave("nvmlDeviceGetMemoryInfo", rc, "device=%d", index_of(device));
}

/* The caller says with `version` which structure it has: its size, and a number in the top byte. */
API int nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    int rc = check_device(enter("nvmlDeviceGetMemoryInfo_v2"), device);
    if (!rc && !memory)
        rc = INVALID_ARGUMENT;
    if (!rc && memory->version != (2U << 24 | sizeof *memory))
        rc = ARGUMENT_VERSION_MISMATCH;
    if (!rc) {
        memory->total = device->mib * MIB;
        memory->reserved = RESERVED;
        memory->used = used_bytes(device);
        memory->free = memory->total - memory->reserved - memory->used;
    }
    return leave("nvmlDeviceGetMemoryInfo_v2", rc, "device=%d", index_of(device));
}

/* Processes with a compute context on the device. `number` says how many fit and is set to how
 * many there are; if they do not fit, nothing is written but that. A caller asks with 0 first.
 * The functions of versions 2 and 3 fill the same structure. */
static int processes(const char *function, nvmlDevice_t device, unsigned *number, void *found,
                     int has_instances)
{
    int rc = check_device(enter(function), device);
    const char *item = control("PROCESSES");
    unsigned room = number ? *number : 0, there = 0;
    if (!rc && (!number || (room && !found)))
        rc = INVALID_ARGUMENT;
    for (; !rc && item; item = strchr(item, ',') ? strchr(item, ',') + 1 : NULL) {
        char pid[16], mib[16];
        int index;
        nvmlProcessInfo_t one = {.gpuInstanceId = NO_MIG_INSTANCE,
                                 .computeInstanceId = NO_MIG_INSTANCE};
        if (sscanf(item, "%d:%15[^:,]:%15[^,]", &index, pid, mib) != 3)
            break;
        if (index != index_of(device))
            continue;
        one.pid = strcmp(pid, "self") ? (unsigned)strtoul(pid, NULL, 10) : (unsigned)getpid();
        one.used = strcmp(mib, "-") ? strtoull(mib, NULL, 10) * MIB : NOT_AVAILABLE;
        if (there < room && has_instances)
            ((nvmlProcessInfo_t *)found)[there] = one;
        else if (there < room)
            ((nvmlProcessInfo_v1_t *)found)[there] = (nvmlProcessInfo_v1_t){one.pid, one.used};
        there++;
    }
    if (!rc) {
        *number = there;
        rc = there > room ? INSUFFICIENT_SIZE : SUCCESS;
    }
    return leave(function, rc, "device=%d", index_of(device));
}

API int nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned *number, void *found)
{
    return processes("nvmlDeviceGetComputeRunningProcesses", device, number, found, 0);
}

API int nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *number, void *found)
{
    return processes("nvmlDeviceGetComputeRunningProcesses_v2", device, number, found, 1);
}

API int nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *number, void *found)
{
    return processes("nvmlDeviceGetComputeRunningProcesses_v3", device, number, found, 1);
}

/* nvmlComputeMode_t has the numbers of CUDA: 0 default, 2 prohibited, 3 exclusive process. */
API int nvmlDeviceGetComputeMode(nvmlDevice_t device, int *mode)
{
    int rc = check_device(enter("nvmlDeviceGetComputeMode"), device);
    if (!rc && !mode)
        rc = INVALID_ARGUMENT;
    if (!rc)
        *mode = (int)control_of_device("COMPUTE_MODE", index_of(device), 0);
    return leave("nvmlDeviceGetComputeMode", rc, "device=%d", index_of(device));
}

/* A device that the control MIG names is in MIG mode. GPUs that cannot have it say 3, which is for
 * a test to force. */
API int nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
    int rc = check_device(enter("nvmlDeviceGetMigMode"), device);
    if (!rc && (!current || !pending))
        rc = INVALID_ARGUMENT;
    if (!rc) {
        const char *equals = control("MIG");
        *current = 0;
        while (equals && (equals = strchr(equals, '=')))
            *current |= strtol(++equals, NULL, 10) == index_of(device);
        *pending = *current;
    }
    return leave("nvmlDeviceGetMigMode", rc, "device=%d", index_of(device));
}
