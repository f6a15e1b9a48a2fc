/* Copies and fills of the stub driver, in its wide variant.
 *
 * From the manual ("Memory Management"). All of them are done at once, also those that are given a
 * stream, which must exist all the same. Addresses of devices must be allocated here; those of the
 * host may be any. There are no arrays.
 */
#include "memory.h"

#define HANDLE(stream) ((unsigned long long)(size_t)(stream))

enum { HOST = 1, DEVICE = 2, UNIFIED = 4 }; /* CUmemorytype; 3 are arrays */

/* ---- In one piece -------------------------------------------------------------------------- */

/* Ends the function that `rc` is of. Both sides are of a device unless the flags say otherwise. */
enum { TO_HOST = 1, FROM_HOST = 2, ANYWHERE = TO_HOST | FROM_HOST };

static int copy(const char *function, int rc, CUdeviceptr to, CUdeviceptr from, size_t bytes,
                int where, CUstream stream)
{
    if (!(where & TO_HOST))
        rc = check_range(rc, to, bytes);
    if (!(where & FROM_HOST))
        rc = check_range(rc, from, bytes);
    if (!rc && bytes && (!to || !from))
        rc = INVALID_VALUE;
    if (!rc)
        memmove(AT(to), AT(from), bytes);
    return leave(function, rc, "to=%#llx from=%#llx bytes=%zu stream=%#llx", to, from, bytes,
                 HANDLE(stream));
}

static int copy_now(const char *function, CUdeviceptr to, CUdeviceptr from, size_t bytes, int where)
{
    return copy(function, check_current(enter(function)), to, from, bytes, where, NULL);
}

static int copy_later(const char *function, CUdeviceptr to, CUdeviceptr from, size_t bytes,
                      int where, CUstream stream)
{
    return copy(function, check_stream(enter(function), stream), to, from, bytes, where, stream);
}

API int cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return copy_now("cuMemcpy", to, from, bytes, ANYWHERE);
}

API int cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy_later("cuMemcpyAsync", to, from, bytes, ANYWHERE, stream);
}

API int cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
    return copy_now("cuMemcpyHtoD_v2", to, HANDLE(from), bytes, FROM_HOST);
}

API int cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    return copy_later("cuMemcpyHtoDAsync_v2", to, HANDLE(from), bytes, FROM_HOST, stream);
}

API int cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
    return copy_now("cuMemcpyDtoH_v2", HANDLE(to), from, bytes, TO_HOST);
}

API int cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy_later("cuMemcpyDtoHAsync_v2", HANDLE(to), from, bytes, TO_HOST, stream);
}

API int cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return copy_now("cuMemcpyDtoD_v2", to, from, bytes, 0);
}

API int cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy_later("cuMemcpyDtoDAsync_v2", to, from, bytes, 0, stream);
}

API int cuMemcpyPeer(CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here,
                     size_t bytes)
{
    (void)there, (void)here;
    return copy_now("cuMemcpyPeer", to, from, bytes, 0);
}

API int cuMemcpyPeerAsync(CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here,
                          size_t bytes, CUstream stream)
{
    (void)there, (void)here;
    return copy_later("cuMemcpyPeerAsync", to, from, bytes, 0, stream);
}

/* ---- Row by row ---------------------------------------------------------------------------- */

/* CUDA_MEMCPY3D and CUDA_MEMCPY2D: the same fields, twice. */
struct side {
    size_t x, y, z, lod;
    int type;
    char *host;
    CUdeviceptr device;
    void *array, *reserved;
    size_t pitch, height;
};
struct box {
    struct side from, to;
    size_t width, height, depth;
};
struct flat_side {
    size_t x, y;
    int type;
    char *host;
    CUdeviceptr device;
    void *array;
    size_t pitch;
};
struct flat {
    struct flat_side from, to;
    size_t width, height;
};

/* The first byte of a row. A pitch or height of 0 is that of the box. */
static CUdeviceptr row(const struct side *side, const struct box *box, size_t y, size_t z)
{
    size_t pitch = side->pitch ? side->pitch : box->width;
    size_t height = side->height ? side->height : box->height;
    return (side->type == HOST ? HANDLE(side->host) : side->device) +
           ((side->z + z) * height + side->y + y) * pitch + side->x;
}

static int check_side(int rc, const struct side *side, const struct box *box)
{
    if (!rc && (side->type < HOST || side->type > UNIFIED))
        rc = INVALID_VALUE;
    if (!rc && side->type != HOST && side->type != DEVICE && side->type != UNIFIED)
        rc = NOT_SUPPORTED;
    if (!rc && side->pitch && side->pitch < side->x + box->width)
        rc = INVALID_VALUE;
    for (size_t z = 0; side->type == DEVICE && z < box->depth; z++)
        for (size_t y = 0; y < box->height; y++)
            rc = check_range(rc, row(side, box, y, z), box->width);
    return rc;
}

static int copy_box(const char *function, int rc, const struct box *box, CUstream stream)
{
    static const struct box none;
    if (!rc && !box)
        rc = INVALID_VALUE;
    box = box ? box : &none;
    rc = rc ? rc : check_side(check_side(rc, &box->from, box), &box->to, box);
    for (size_t z = 0; !rc && z < box->depth; z++)
        for (size_t y = 0; y < box->height; y++)
            memmove(AT(row(&box->to, box, y, z)), AT(row(&box->from, box, y, z)), box->width);
    return leave(function, rc, "to=%#llx from=%#llx width=%zu height=%zu depth=%zu stream=%#llx",
                 row(&box->to, box, 0, 0), row(&box->from, box, 0, 0), box->width, box->height,
                 box->depth, HANDLE(stream));
}

static struct side side_of(const struct flat_side *flat)
{
    return (struct side){flat->x,      flat->y,     0,    0,           flat->type, flat->host,
                         flat->device, flat->array, NULL, flat->pitch, 0};
}

static int copy_flat(const char *function, int rc, const struct flat *flat, CUstream stream)
{
    struct box box;
    if (!flat)
        return copy_box(function, rc, NULL, stream);
    box = (struct box){side_of(&flat->from), side_of(&flat->to), flat->width, flat->height, 1};
    return copy_box(function, rc, &box, stream);
}

API int cuMemcpy2D_v2(const struct flat *flat)
{
    return copy_flat("cuMemcpy2D_v2", check_current(enter("cuMemcpy2D_v2")), flat, NULL);
}

API int cuMemcpy2DUnaligned_v2(const struct flat *flat)
{
    int rc = check_current(enter("cuMemcpy2DUnaligned_v2"));
    return copy_flat("cuMemcpy2DUnaligned_v2", rc, flat, NULL);
}

API int cuMemcpy2DAsync_v2(const struct flat *flat, CUstream stream)
{
    int rc = check_stream(enter("cuMemcpy2DAsync_v2"), stream);
    return copy_flat("cuMemcpy2DAsync_v2", rc, flat, stream);
}

API int cuMemcpy3D_v2(const struct box *box)
{
    return copy_box("cuMemcpy3D_v2", check_current(enter("cuMemcpy3D_v2")), box, NULL);
}

API int cuMemcpy3DAsync_v2(const struct box *box, CUstream stream)
{
    int rc = check_stream(enter("cuMemcpy3DAsync_v2"), stream);
    return copy_box("cuMemcpy3DAsync_v2", rc, box, stream);
}

/* ---- Fills --------------------------------------------------------------------------------- */

/* Ends the function that `rc` is of: rows of elements of 1, 2 or 4 bytes. */
static int fill(const char *function, int rc, CUdeviceptr address, size_t pitch, unsigned value,
                size_t size, size_t width, size_t height, CUstream stream)
{
    for (size_t y = 0; y < height; y++)
        rc = check_range(rc, address + y * pitch, width * size);
    if (!rc && (address % size || (height > 1 && pitch % size)))
        rc = INVALID_VALUE;
    for (size_t y = 0; !rc && y < height; y++)
        for (size_t x = 0; x < width; x++) /* the low bytes come first, as on x86 and Arm */
            memcpy(AT(address + y * pitch + x * size), &value, size);
    return leave(function, rc, "address=%#llx value=%u width=%zu height=%zu stream=%#llx", address,
                 value, width, height, HANDLE(stream));
}

API int cuMemsetD8_v2(CUdeviceptr at, unsigned char value, size_t n)
{
    int rc = check_current(enter("cuMemsetD8_v2"));
    return fill("cuMemsetD8_v2", rc, at, 0, value, 1, n, 1, NULL);
}

API int cuMemsetD16_v2(CUdeviceptr at, unsigned short value, size_t n)
{
    int rc = check_current(enter("cuMemsetD16_v2"));
    return fill("cuMemsetD16_v2", rc, at, 0, value, 2, n, 1, NULL);
}

API int cuMemsetD32_v2(CUdeviceptr at, unsigned value, size_t n)
{
    int rc = check_current(enter("cuMemsetD32_v2"));
    return fill("cuMemsetD32_v2", rc, at, 0, value, 4, n, 1, NULL);
}

API int cuMemsetD8Async(CUdeviceptr at, unsigned char value, size_t n, CUstream stream)
{
    int rc = check_stream(enter("cuMemsetD8Async"), stream);
    return fill("cuMemsetD8Async", rc, at, 0, value, 1, n, 1, stream);
}

API int cuMemsetD16Async(CUdeviceptr at, unsigned short value, size_t n, CUstream stream)
{
    int rc = check_stream(enter("cuMemsetD16Async"), stream);
    return fill("cuMemsetD16Async", rc, at, 0, value, 2, n, 1, stream);
}

API int cuMemsetD32Async(CUdeviceptr at, unsigned value, size_t n, CUstream stream)
{
    int rc = check_stream(enter("cuMemsetD32Async"), stream);
    return fill("cuMemsetD32Async", rc, at, 0, value, 4, n, 1, stream);
}

API int cuMemsetD2D8_v2(CUdeviceptr at, size_t pitch, unsigned char value, size_t w, size_t h)
{
    int rc = check_current(enter("cuMemsetD2D8_v2"));
    return fill("cuMemsetD2D8_v2", rc, at, pitch, value, 1, w, h, NULL);
}

API int cuMemsetD2D16_v2(CUdeviceptr at, size_t pitch, unsigned short value, size_t w, size_t h)
{
    int rc = check_current(enter("cuMemsetD2D16_v2"));
    return fill("cuMemsetD2D16_v2", rc, at, pitch, value, 2, w, h, NULL);
}

API int cuMemsetD2D32_v2(CUdeviceptr at, size_t pitch, unsigned value, size_t w, size_t h)
{
    int rc = check_current(enter("cuMemsetD2D32_v2"));
    return fill("cuMemsetD2D32_v2", rc, at, pitch, value, 4, w, h, NULL);
}
