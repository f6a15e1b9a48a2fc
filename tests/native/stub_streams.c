/* Streams and events of the stub driver, in its wide variant.
 *
 * From the manual ("Stream Management", "Event Management"), and from the Programming Guide,
 * "Stream and Event Behavior", for what works across contexts: waiting for an event of another
 * context does, recording one there does not. All work is done when it is asked for, so there is
 * never anything to wait for: what a program waits for stands in the log.
 */
#include "driver.h"

#define HANDLE(handle) ((unsigned long long)(size_t)(handle))

/* Destroyed streams and events stay in memory, so that their handles are never given again. */
struct stream {
    struct stream *next;
    struct owner owner;
    unsigned flags;
    int priority, alive;
    unsigned long long id;
};

typedef struct event {
    struct event *next;
    struct owner owner;
    unsigned flags;
    int alive, recorded;
    struct timespec time;
} *CUevent;

static struct stream *streams;
static CUevent events;
static unsigned long long made = 2; /* streams; 1 and 2 are those that always exist */

/* NULL, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD are streams of whatever context is current. */
static int is_default(CUstream stream)
{
    return HANDLE(stream) <= 2;
}

int check_stream(int rc, CUstream stream)
{
    if (rc || is_default(stream))
        return check_current(rc);
    for (struct stream *each = streams; each; each = each->next)
        if (each == stream)
            return each->alive && lives(each->owner) ? SUCCESS : INVALID_HANDLE;
    return INVALID_HANDLE;
}

static int check_event(int rc, CUevent event)
{
    if (rc)
        return rc;
    for (struct event *each = events; each; each = each->next)
        if (each == event)
            return each->alive && lives(each->owner) ? SUCCESS : INVALID_HANDLE;
    return INVALID_HANDLE;
}

static CUcontext context_of(CUstream stream)
{
    return is_default(stream) ? current() : stream->owner.context;
}

/* ---- Streams ------------------------------------------------------------------------------- */

static int create(const char *function, CUstream *stream, unsigned flags, int priority)
{
    int rc = check_current(enter(function));
    struct stream *made_now = NULL;
    if (!rc && (!stream || flags > 1))
        rc = INVALID_VALUE;
    if (!rc && !(made_now = calloc(1, sizeof *made_now)))
        rc = OUT_OF_MEMORY;
    if (!rc) {
        made_now->owner = owner_now();
        made_now->flags = flags;
        made_now->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
        made_now->alive = 1;
        made_now->id = ++made;
        made_now->next = streams;
        *stream = streams = made_now;
    }
    return leave(function, rc, "flags=%u priority=%d stream=%#llx", flags, priority,
                 HANDLE(made_now));
}

API int cuStreamCreate(CUstream *stream, unsigned flags)
{
    return create("cuStreamCreate", stream, flags, 0);
}

API int cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
    return create("cuStreamCreateWithPriority", stream, flags, priority);
}

API int cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    int rc = check_current(enter("cuCtxGetStreamPriorityRange"));
    if (!rc && least)
        *least = 0;
    if (!rc && greatest)
        *greatest = -5;
    return leave("cuCtxGetStreamPriorityRange", rc, "%s", "");
}

API int cuStreamDestroy_v2(CUstream stream)
{
    int rc = check_stream(enter("cuStreamDestroy_v2"), stream);
    if (!rc && is_default(stream))
        rc = INVALID_HANDLE;
    if (!rc)
        stream->alive = 0;
    return leave("cuStreamDestroy_v2", rc, "stream=%#llx", HANDLE(stream));
}

/* The functions that only ask something of a stream. */
#define ASK(function, type, expression)                                        \
    int rc = check_stream(enter(function), stream);                            \
    if (!rc && !value)                                                         \
        rc = INVALID_VALUE;                                                    \
    if (!rc)                                                                   \
        *(type *)value = (expression);                                         \
    return leave(function, rc, "stream=%#llx", HANDLE(stream))

API int cuStreamGetFlags(CUstream stream, unsigned *value)
{
    ASK("cuStreamGetFlags", unsigned, is_default(stream) ? 0 : stream->flags);
}

API int cuStreamGetPriority(CUstream stream, int *value)
{
    ASK("cuStreamGetPriority", int, is_default(stream) ? 0 : stream->priority);
}

API int cuStreamGetId(CUstream stream, unsigned long long *value)
{
    ASK("cuStreamGetId", unsigned long long,
        !is_default(stream) ? stream->id : HANDLE(stream) ? HANDLE(stream) : 1);
}

API int cuStreamGetDevice(CUstream stream, int *value)
{
    ASK("cuStreamGetDevice", int, context_of(stream)->device);
}

API int cuStreamGetCtx(CUstream stream, CUcontext *value)
{
    ASK("cuStreamGetCtx", CUcontext, context_of(stream));
}

/* There are no green contexts here. */
API int cuStreamGetCtx_v2(CUstream stream, CUcontext *value, void **green)
{
    if (green)
        *green = NULL;
    ASK("cuStreamGetCtx_v2", CUcontext, context_of(stream));
}

/* Nothing is ever captured: CU_STREAM_CAPTURE_STATUS_NONE. */
API int cuStreamIsCapturing(CUstream stream, int *value)
{
    ASK("cuStreamIsCapturing", int, 0);
}

static int wait(const char *function, CUstream stream)
{
    return leave(function, check_stream(enter(function), stream), "stream=%#llx", HANDLE(stream));
}

API int cuStreamSynchronize(CUstream stream)
{
    return wait("cuStreamSynchronize", stream);
}

API int cuStreamQuery(CUstream stream)
{
    return wait("cuStreamQuery", stream);
}

API int cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    int rc = check_event(check_stream(enter("cuStreamWaitEvent"), stream), event);
    return leave("cuStreamWaitEvent", rc, "stream=%#llx event=%#llx flags=%u", HANDLE(stream),
                 HANDLE(event), flags);
}

/* ---- Events -------------------------------------------------------------------------------- */

#define DISABLE_TIMING 2

/* Interprocess events (4) must not take the time. */
API int cuEventCreate(CUevent *event, unsigned flags)
{
    int rc = check_current(enter("cuEventCreate"));
    struct event *made_now = NULL;
    if (!rc && (!event || flags > 7 || (flags & 4 && !(flags & DISABLE_TIMING))))
        rc = INVALID_VALUE;
    if (!rc && !(made_now = calloc(1, sizeof *made_now)))
        rc = OUT_OF_MEMORY;
    if (!rc) {
        made_now->owner = owner_now();
        made_now->flags = flags;
        made_now->alive = 1;
        made_now->next = events;
        *event = events = made_now;
    }
    return leave("cuEventCreate", rc, "flags=%u event=%#llx", flags, HANDLE(made_now));
}

API int cuEventDestroy_v2(CUevent event)
{
    int rc = check_event(enter("cuEventDestroy_v2"), event);
    if (!rc)
        event->alive = 0;
    return leave("cuEventDestroy_v2", rc, "event=%#llx", HANDLE(event));
}

/* The event and the stream must be of one context. */
static int record(const char *function, CUevent event, CUstream stream, unsigned flags)
{
    int rc = check_event(check_stream(enter(function), stream), event);
    if (!rc && event->owner.context != context_of(stream))
        rc = INVALID_HANDLE;
    if (!rc) {
        event->recorded = 1;
        clock_gettime(CLOCK_MONOTONIC, &event->time);
    }
    return leave(function, rc, "event=%#llx stream=%#llx flags=%u", HANDLE(event), HANDLE(stream),
                 flags);
}

API int cuEventRecord(CUevent event, CUstream stream)
{
    return record("cuEventRecord", event, stream, 0);
}

API int cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags)
{
    return record("cuEventRecordWithFlags", event, stream, flags);
}

/* An event that was never recorded is complete. */
static int wait_for_event(const char *function, CUevent event)
{
    return leave(function, check_event(enter(function), event), "event=%#llx", HANDLE(event));
}

API int cuEventSynchronize(CUevent event)
{
    return wait_for_event("cuEventSynchronize", event);
}

API int cuEventQuery(CUevent event)
{
    return wait_for_event("cuEventQuery", event);
}

static int elapsed(const char *function, float *milliseconds, CUevent start, CUevent end)
{
    int rc = check_event(check_event(enter(function), start), end);
    if (!rc && !milliseconds)
        rc = INVALID_VALUE;
    if (!rc && (!start->recorded || !end->recorded || (start->flags | end->flags) & DISABLE_TIMING
                || start->owner.context != end->owner.context))
        rc = INVALID_HANDLE;
    if (!rc)
        *milliseconds = (float)(end->time.tv_sec - start->time.tv_sec) * 1e3f +
                        (float)(end->time.tv_nsec - start->time.tv_nsec) / 1e6f;
    return leave(function, rc, "start=%#llx end=%#llx", HANDLE(start), HANDLE(end));
}

API int cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    return elapsed("cuEventElapsedTime", milliseconds, start, end);
}

API int cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end)
{
    return elapsed("cuEventElapsedTime_v2", milliseconds, start, end);
}
