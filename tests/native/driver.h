/* What the parts of libcuda.so.1 share: handles, statuses, the current context, and how a function
 * begins and ends. The library is compiled with hidden visibility, so none of this can be called
 * from outside.
 */
#ifndef DRIVER_H
#define DRIVER_H

#include "stub.h"

/* CUresult, as far as this library gives it by itself or a test may force it. */
enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    DEVICE_UNAVAILABLE = 46,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    PRIMARY_CONTEXT_ACTIVE = 708,
    CONTEXT_IS_DESTROYED = 709,
    HOST_MEMORY_ALREADY_REGISTERED = 712,
    HOST_MEMORY_NOT_REGISTERED = 713,
    NOT_SUPPORTED = 801,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
    CAPTURE_MERGE = 902,
    CAPTURE_UNMATCHED = 903,
    CAPTURE_ISOLATION = 905,
    CAPTURE_IMPLICIT = 906,
    CAPTURED_EVENT = 907,
    CAPTURE_WRONG_THREAD = 908,
};

/* A context stays in memory when it is destroyed, so that its handle can still be recognized. */
typedef struct context {
    struct context *next; /* of those made by cuCtxCreate */
    int device;           /* CUDA ordinal */
    int is_primary;
    int is_green; /* what a green context converts to; only its device counts */
    int number;   /* of those made by cuCtxCreate, from 1 */
    int alive;
    unsigned flags;
    unsigned ended; /* how often: a primary context may come back, what was in it does not */
} *CUcontext;

typedef struct stream *CUstream;
typedef unsigned long long CUdeviceptr;

/* Whose memory, stream or event something is; it goes with the context. */
struct owner {
    CUcontext context;
    unsigned ended;
};

static inline int lives(struct owner owner)
{
    return owner.context->alive && owner.context->ended == owner.ended;
}

/* Every function begins with enter, which takes the lock, and ends with leave. */
int enter(const char *function);
__attribute__((format(printf, 3, 4))) int leave(const char *function, int rc, const char *format,
                                                ...);

CUcontext current(void);
struct owner owner_now(void);

/* Each gives `rc` if that is a failure already. A handle of a stream or an event that does not exist
 * is undefined behavior by the manual: these abort, so that no program here can rely on an error. */
int check_current(int rc);
int check_stream(int rc, CUstream stream);
CUcontext context_of_stream(CUstream stream);

/* For what the manual calls potentially unsafe while a graph is captured. `whole` is a context that is
 * waited for, or NULL. */
int check_unsafe(int rc, CUcontext whole);

/* The primary context of a device. */
CUcontext primary_of(int device);
int check_device(int rc, int device);

#endif
