/* Memory of the stub driver, in its wide variant: what is allocated, and whose it is.
 *
 * From the manual ("Memory Management", "Unified Addressing", "Stream Ordered Memory Allocator").
 * Memory of a device is memory of the host, so a program that reads it without a copy gets away
 * with it. Fresh memory is full of FRESH, not of zeros. Allocations are not set off against the
 * memory of the device. Memory of a pool (cuMemAllocAsync) belongs to a device and to no context
 * (Programming Guide, "Stream Ordered Memory Allocator", "Pointer Attributes"), and stands for all
 * that is mapped there, too; the pools themselves, arrays and virtual addresses are not modeled.
 */
#include "memory.h"

#define FRESH 0xA5

enum kind { DEVICE, POOL, MANAGED, HOST, REGISTERED };

struct allocation {
    struct allocation *next;
    char *base;
    size_t size;
    struct owner owner; /* the context is NULL for memory of a pool */
    int device;
    enum kind kind;
    unsigned flags;
    unsigned long long id;
};

static struct allocation *allocations;

/* The allocation that an address lies in, NULL for none, and for what went with its context. */
static struct allocation *find(const void *address)
{
    const char *wanted = address;
    for (struct allocation *each = allocations; each; each = each->next)
        if (wanted >= each->base && wanted < each->base + each->size
            && (each->kind == POOL || lives(each->owner)))
            return each;
    return NULL;
}

int check_range(int rc, CUdeviceptr address, size_t bytes)
{
    const struct allocation *found = find(AT(address));
    if (rc || !bytes)
        return rc;
    return found && bytes <= (size_t)(found->base + found->size - AT(address)) ? SUCCESS
                                                                              : INVALID_VALUE;
}

static int add(char *base, size_t size, enum kind kind, unsigned flags)
{
    static unsigned long long made;
    struct allocation *added = calloc(1, sizeof *added);
    if (!added)
        return OUT_OF_MEMORY;
    *added = (struct allocation){allocations, base,  size, owner_now(), current()->device,
                                 kind,        flags, ++made};
    allocations = added;
    return SUCCESS;
}

/* Needs a current context; of `rc`, as check_current. */
static int allocate(int rc, void **address, size_t bytes, enum kind kind, unsigned flags)
{
    void *base = NULL;
    rc = check_unsafe(check_current(rc), NULL);
    if (!rc && (!address || !bytes))
        rc = INVALID_VALUE;
    if (!rc && posix_memalign(&base, 512, bytes))
        rc = OUT_OF_MEMORY;
    if (!rc)
        rc = add(base, bytes, kind, flags);
    if (rc) {
        free(base);
        return rc;
    }
    *address = memset(base, FRESH, bytes);
    return rc;
}

/* Only what the same family of functions gave, and only by its first address. */
static int discard(int rc, const void *address, int of_host, int registered)
{
    struct allocation *found = find(address), **link = &allocations;
    if (rc)
        return rc;
    if (!found || found->base != address || (found->kind >= HOST) != of_host
        || (found->kind == REGISTERED) != registered)
        return registered ? HOST_MEMORY_NOT_REGISTERED : INVALID_VALUE;
    while (*link != found)
        link = &(*link)->next;
    *link = found->next;
    if (!registered)
        free(found->base);
    free(found);
    return SUCCESS;
}

static unsigned long long written(int rc, const void *address)
{
    return rc ? 0 : *(const CUdeviceptr *)address;
}

/* ---- Memory of devices --------------------------------------------------------------------- */

API int cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    int rc = allocate(enter("cuMemAlloc_v2"), (void **)address, bytes, DEVICE, 0);
    return leave("cuMemAlloc_v2", rc, "bytes=%zu address=%#llx", bytes, written(rc, address));
}

API int cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    int rc = check_stream(enter("cuMemAllocAsync"), stream);
    rc = allocate(rc, (void **)address, bytes, POOL, 0);
    if (!rc) {
        allocations->device = context_of_stream(stream)->device;
        allocations->owner.context = NULL;
    }
    return leave("cuMemAllocAsync", rc, "bytes=%zu stream=%#llx address=%#llx", bytes,
                 (CUdeviceptr)(size_t)stream, written(rc, address));
}

API int cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned flags)
{
    int rc = allocate(enter("cuMemAllocManaged"), (void **)address, bytes, MANAGED, flags);
    return leave("cuMemAllocManaged", rc, "bytes=%zu flags=%u address=%#llx", bytes, flags,
                 written(rc, address));
}

/* Rows begin at multiples of 512 bytes. */
API int cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                           unsigned element)
{
    int rc = enter("cuMemAllocPitch_v2");
    size_t row = (width + 511) / 512 * 512;
    if (!rc && (!pitch || (element != 4 && element != 8 && element != 16)))
        rc = INVALID_VALUE;
    rc = allocate(rc, (void **)address, row * height, DEVICE, 0);
    if (!rc)
        *pitch = row;
    return leave("cuMemAllocPitch_v2", rc, "width=%zu height=%zu address=%#llx", width, height,
                 written(rc, address));
}

API int cuMemFree_v2(CUdeviceptr address)
{
    int rc = discard(check_unsafe(check_current(enter("cuMemFree_v2")), NULL), AT(address), 0, 0);
    return leave("cuMemFree_v2", rc, "address=%#llx", address);
}

API int cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
    int rc = discard(check_stream(enter("cuMemFreeAsync"), stream), AT(address), 0, 0);
    return leave("cuMemFreeAsync", rc, "address=%#llx stream=%#llx", address,
                 (CUdeviceptr)(size_t)stream);
}

API int cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    int rc = check_current(enter("cuMemGetAddressRange_v2"));
    const struct allocation *found = find(AT(address));
    if (!rc && (!found || found->kind >= HOST))
        rc = INVALID_VALUE;
    if (!rc && base)
        *base = (CUdeviceptr)(size_t)found->base;
    if (!rc && bytes)
        *bytes = found->size;
    return leave("cuMemGetAddressRange_v2", rc, "address=%#llx", address);
}

/* ---- Memory of the host that devices reach ------------------------------------------------- */

API int cuMemHostAlloc(void **address, size_t bytes, unsigned flags)
{
    int rc = allocate(enter("cuMemHostAlloc"), address, bytes, HOST, flags);
    return leave("cuMemHostAlloc", rc, "bytes=%zu flags=%u address=%#llx", bytes, flags,
                 written(rc, address));
}

API int cuMemAllocHost_v2(void **address, size_t bytes)
{
    int rc = allocate(enter("cuMemAllocHost_v2"), address, bytes, HOST, 0);
    return leave("cuMemAllocHost_v2", rc, "bytes=%zu address=%#llx", bytes, written(rc, address));
}

API int cuMemFreeHost(void *address)
{
    int rc = discard(check_current(enter("cuMemFreeHost")), address, 1, 0);
    return leave("cuMemFreeHost", rc, "address=%p", address);
}

API int cuMemHostRegister_v2(void *address, size_t bytes, unsigned flags)
{
    int rc = check_current(enter("cuMemHostRegister_v2"));
    if (!rc && (!address || !bytes))
        rc = INVALID_VALUE;
    if (!rc && find(address))
        rc = HOST_MEMORY_ALREADY_REGISTERED;
    if (!rc)
        rc = add(address, bytes, REGISTERED, flags);
    return leave("cuMemHostRegister_v2", rc, "address=%p bytes=%zu", address, bytes);
}

API int cuMemHostUnregister(void *address)
{
    int rc = discard(check_current(enter("cuMemHostUnregister")), address, 1, 1);
    return leave("cuMemHostUnregister", rc, "address=%p", address);
}

API int cuMemHostGetDevicePointer_v2(CUdeviceptr *result, void *address, unsigned flags)
{
    int rc = check_current(enter("cuMemHostGetDevicePointer_v2"));
    if (!rc && (!result || flags || !find(address)))
        rc = INVALID_VALUE;
    if (!rc)
        *result = (CUdeviceptr)(size_t)address;
    return leave("cuMemHostGetDevicePointer_v2", rc, "address=%p", address);
}

API int cuMemHostGetFlags(unsigned *flags, void *address)
{
    int rc = check_current(enter("cuMemHostGetFlags"));
    const struct allocation *found = find(address);
    if (!rc && (!flags || !found || found->kind < HOST))
        rc = INVALID_VALUE;
    if (!rc)
        *flags = found->flags;
    return leave("cuMemHostGetFlags", rc, "address=%p", address);
}

/* ---- What an address is -------------------------------------------------------------------- */

/* Writes an attribute of the allocation, or with NULL what cuPointerGetAttributes gives for an
 * unknown address. The numbers are CUpointer_attribute; those of memory pools, of mapping and of
 * other processes are not modeled. */
static int write_attribute(void *value, int attribute, const struct allocation *found,
                           const char *address)
{
    switch (attribute) {
    case 1: /* CONTEXT: NULL for memory of a pool, and no error */
        *(CUcontext *)value = found ? found->owner.context : NULL;
        return SUCCESS;
    case 2: /* MEMORY_TYPE: 1 host, 2 device */
        *(unsigned *)value = !found ? 0 : found->kind >= HOST ? 1 : 2;
        return SUCCESS;
    case 3: /* DEVICE_POINTER */
        *(const char **)value = found ? address : NULL;
        return SUCCESS;
    case 4: /* HOST_POINTER: memory of devices has none */
        *(const char **)value = found && found->kind > POOL ? address : NULL;
        return found && found->kind <= POOL ? INVALID_VALUE : SUCCESS;
    case 7: /* BUFFER_ID */
        *(unsigned long long *)value = found ? found->id : 0;
        return SUCCESS;
    case 8: /* IS_MANAGED */
        *(unsigned *)value = found && found->kind == MANAGED;
        return SUCCESS;
    case 9: /* DEVICE_ORDINAL */
        *(int *)value = found ? found->device : -2;
        return SUCCESS;
    case 11: /* RANGE_START_ADDR */
        *(char **)value = found ? found->base : NULL;
        return SUCCESS;
    case 12: /* RANGE_SIZE */
        *(size_t *)value = found ? found->size : 0;
        return SUCCESS;
    default:
        return NOT_SUPPORTED;
    }
}

API int cuPointerGetAttribute(void *value, int attribute, CUdeviceptr address)
{
    int rc = enter("cuPointerGetAttribute");
    const struct allocation *found = find(AT(address));
    if (!rc && (!value || !found))
        rc = INVALID_VALUE;
    if (!rc)
        rc = write_attribute(value, attribute, found, AT(address));
    return leave("cuPointerGetAttribute", rc, "attribute=%d address=%#llx", attribute, address);
}

/* By the manual an address that is unknown, or lacks an attribute, is no error here. */
API int cuPointerGetAttributes(unsigned count, int *attributes, void **values, CUdeviceptr address)
{
    int rc = enter("cuPointerGetAttributes");
    const struct allocation *found = find(AT(address));
    if (!rc && (!attributes || !values))
        rc = INVALID_VALUE;
    for (unsigned i = 0; !rc && i < count; i++)
        if (write_attribute(values[i], attributes[i], found, AT(address)) == NOT_SUPPORTED)
            rc = NOT_SUPPORTED;
    return leave("cuPointerGetAttributes", rc, "count=%u address=%#llx", count, address);
}
