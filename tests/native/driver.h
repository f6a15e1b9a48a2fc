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
};

/* A context stays in memory when it is destroyed, so that its handle can still be recognized. */
typedef struct context {
    struct context *next; /* of those made by cuCtxCreate */
    int device;           /* CUDA ordinal */
    int is_primary;
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

/* Each gives `rc` if that is a failure already. */
int check_current(int rc);
int check_stream(int rc, CUstream stream);

#endif
