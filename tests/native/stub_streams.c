/* Streams and events of the stub driver, in its wide variant.
 *
 * From the manual ("Stream Management", "Event Management"), and from the Programming Guide,
 * "Stream and Event Behavior", for what works across contexts: waiting for an event of another
 * context does, recording one there does not. All work is done when it is asked for, so there is
 * never anything to wait for: what a program waits for stands in the log. Captures of graphs have
 * their rules and no graphs: see the part on captures.
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
    CUcontext green; /* what its green context converts to, NULL for a stream of a regular one */
    enum { FREE, CAPTURING, INVALIDATED } capture;
    struct stream *origin; /* the stream on which the capture that this one is part of began */
    int mode;              /* of that capture, at its origin */
    long thread;           /* that began it */
};

typedef struct event {
    struct event *next;
    struct owner owner;
    unsigned flags;
    int alive, recorded;
    struct stream *captured; /* the origin of the capture that it was last recorded in */
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

static int undefined(const char *kind, const void *handle)
{
    fprintf(stderr, "stub_cuda: undefined behavior: %p is no %s\n", handle, kind);
    abort();
}

int check_stream(int rc, CUstream stream)
{
    if (rc || is_default(stream))
        return check_current(rc);
    for (struct stream *each = streams; each; each = each->next)
        if (each == stream && each->alive && lives(each->owner))
            return SUCCESS;
    return undefined("stream", stream);
}

static int check_event(int rc, CUevent event)
{
    if (rc)
        return rc;
    for (struct event *each = events; each; each = each->next)
        if (each == event && each->alive && lives(each->owner))
            return SUCCESS;
    return undefined("event", event);
}

CUcontext context_of_stream(CUstream stream)
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
    ASK("cuStreamGetDevice", int, context_of_stream(stream)->device);
}

static CUcontext green_of(CUstream stream)
{
    CUcontext now = current();
    if (!is_default(stream))
        return stream->green;
    return now && now->is_green ? now : NULL;
}

/* Of a stream of a green context this gives what that converts to ... */
API int cuStreamGetCtx(CUstream stream, CUcontext *value)
{
    ASK("cuStreamGetCtx", CUcontext,
        green_of(stream) ? green_of(stream) : context_of_stream(stream));
}

/* ... and this the primary context, and the green one beside it. */
API int cuStreamGetCtx_v2(CUstream stream, CUcontext *value, char **green)
{
    int rc = check_stream(enter("cuStreamGetCtx_v2"), stream);
    if (!rc && (!value || !green))
        rc = INVALID_VALUE;
    if (!rc) {
        CUcontext found = green_of(stream);
        *green = found ? (char *)found + 1 : NULL;
        *value = found ? primary_of(found->device) : context_of_stream(stream);
    }
    return leave("cuStreamGetCtx_v2", rc, "stream=%#llx", HANDLE(stream));
}

API int cuGreenCtxStreamCreate(CUstream *stream, char *green, unsigned flags, int priority)
{
    int rc = enter("cuGreenCtxStreamCreate");
    CUcontext context = green ? (CUcontext)(void *)(green - 1) : NULL;
    struct stream *made_now = NULL;
    if (!rc && (!stream || !green || flags != 1)) /* CU_STREAM_NON_BLOCKING is required */
        rc = INVALID_VALUE;
    if (!rc && !(made_now = calloc(1, sizeof *made_now)))
        rc = OUT_OF_MEMORY;
    if (!rc) {
        CUcontext primary = primary_of(context->device);
        *made_now = (struct stream){.next = streams, .owner = {primary, primary->ended},
                                    .flags = flags, .priority = priority, .alive = 1, .id = ++made,
                                    .green = context};
        *stream = streams = made_now;
    }
    return leave("cuGreenCtxStreamCreate", rc, "stream=%#llx", HANDLE(made_now));
}

/* ---- Captures ------------------------------------------------------------------------------ */

/* From the manual ("Stream Management", cuStreamBeginCapture and what follows) and the Programming
 * Guide, "Stream Capture". Which calls are "potentially unsafe" beside cudaMalloc the manual does
 * not say: here those that allocate or free, and those by which the host waits or asks. */

enum { GLOBAL, THREAD_LOCAL, RELAXED };
static __thread int thread_mode;

static long this_thread(void)
{
    return (long)syscall(SYS_gettid);
}

/* A capture that was disturbed must be ended before its streams can be used again. */
static void invalidate(const struct stream *origin)
{
    for (struct stream *each = streams; each; each = each->next)
        if (each->capture && each->origin == origin)
            each->capture = INVALIDATED;
}

int check_unsafe(int rc, CUcontext whole)
{
    for (struct stream *each = streams; !rc && each; each = each->next) {
        int is_own = each->thread == this_thread();
        if (each->capture != CAPTURING || each->origin != each)
            continue;
        if (each->owner.context == whole) {
            invalidate(each);
            return CAPTURE_UNSUPPORTED;
        }
        if (thread_mode == RELAXED ? 0
            : is_own               ? each->mode != RELAXED
                                   : thread_mode == GLOBAL && each->mode == GLOBAL) {
            invalidate(each);
            rc = CAPTURE_UNSUPPORTED;
        }
    }
    return rc;
}

/* The capture that makes the legacy stream of the current context unusable: one on a stream that
 * synchronizes with it. */
static const struct stream *implicit(CUstream stream)
{
    if (HANDLE(stream) <= 1)
        for (const struct stream *each = streams; each; each = each->next)
            if (each->capture && !(each->flags & 1) && each->owner.context == current())
                return each->origin;
    return NULL;
}

/* For calls that put something on a stream. */
static int check_use(int rc, CUstream stream)
{
    const struct stream *disturbed = rc ? NULL : implicit(stream);
    if (disturbed) {
        invalidate(disturbed);
        return CAPTURE_IMPLICIT;
    }
    return !rc && !is_default(stream) && stream->capture == INVALIDATED ? CAPTURE_INVALIDATED : rc;
}

/* CU_STREAM_LEGACY cannot be captured; that of the thread is not modeled. */
API int cuStreamBeginCapture_v2(CUstream stream, int mode)
{
    int rc = check_stream(enter("cuStreamBeginCapture_v2"), stream);
    if (!rc && (mode < GLOBAL || mode > RELAXED))
        rc = INVALID_VALUE;
    if (!rc && is_default(stream))
        rc = HANDLE(stream) == 2 ? NOT_SUPPORTED : CAPTURE_UNSUPPORTED;
    if (!rc && stream->capture)
        rc = INVALID_VALUE;
    if (!rc) {
        stream->capture = CAPTURING;
        stream->origin = stream;
        stream->mode = mode;
        stream->thread = this_thread();
    }
    return leave("cuStreamBeginCapture_v2", rc, "stream=%#llx mode=%d", HANDLE(stream), mode);
}

/* The graph is no more than a handle that is not NULL. */
API int cuStreamEndCapture(CUstream stream, void **graph)
{
    int rc = check_stream(enter("cuStreamEndCapture"), stream);
    if (!rc && (!graph || is_default(stream) || !stream->capture))
        rc = INVALID_VALUE;
    if (!rc && stream->origin != stream)
        rc = CAPTURE_UNMATCHED;
    if (!rc && stream->mode != RELAXED && stream->thread != this_thread())
        rc = CAPTURE_WRONG_THREAD;
    if (!rc) {
        rc = stream->capture == INVALIDATED ? CAPTURE_INVALIDATED : SUCCESS;
        *graph = rc ? NULL : stream;
        for (struct stream *each = streams; each; each = each->next)
            if (each->origin == stream)
                each->capture = FREE, each->origin = NULL;
    }
    return leave("cuStreamEndCapture", rc, "stream=%#llx", HANDLE(stream));
}

API int cuThreadExchangeStreamCaptureMode(int *mode)
{
    int rc = enter("cuThreadExchangeStreamCaptureMode"), now = thread_mode;
    if (!rc && (!mode || *mode < GLOBAL || *mode > RELAXED))
        rc = INVALID_VALUE;
    if (!rc) {
        thread_mode = *mode;
        *mode = now;
    }
    return leave("cuThreadExchangeStreamCaptureMode", rc, "mode=%d", thread_mode);
}

API int cuStreamIsCapturing(CUstream stream, int *value)
{
    int rc = check_stream(enter("cuStreamIsCapturing"), stream);
    if (!rc && !value)
        rc = INVALID_VALUE;
    if (!rc && implicit(stream))
        rc = CAPTURE_IMPLICIT;
    if (!rc)
        *value = is_default(stream) ? FREE : (int)stream->capture;
    return leave("cuStreamIsCapturing", rc, "stream=%#llx", HANDLE(stream));
}

/* A stream that is captured can neither be waited for nor asked. */
static int wait(const char *function, CUstream stream)
{
    int rc = check_use(check_stream(enter(function), stream), stream);
    if (!rc && !is_default(stream) && stream->capture) {
        invalidate(stream->origin);
        rc = CAPTURE_UNSUPPORTED;
    }
    return leave(function, check_unsafe(rc, NULL), "stream=%#llx", HANDLE(stream));
}

API int cuStreamSynchronize(CUstream stream)
{
    return wait("cuStreamSynchronize", stream);
}

API int cuStreamQuery(CUstream stream)
{
    return wait("cuStreamQuery", stream);
}

/* It is called at once, like all other work. */
API int cuLaunchHostFunc(CUstream stream, void (*function)(void *), void *data)
{
    int rc = check_use(check_stream(enter("cuLaunchHostFunc"), stream), stream);
    if (!rc && !function)
        rc = INVALID_VALUE;
    rc = leave("cuLaunchHostFunc", rc, "stream=%#llx", HANDLE(stream));
    if (!rc)
        function(data);
    return rc;
}

/* A stream that waits for an event of a capture becomes a part of it; one that is captured cannot
 * wait for anything outside. */
API int cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    int rc = check_event(check_stream(enter("cuStreamWaitEvent"), stream), event);
    struct stream *own = is_default(stream) ? NULL : stream->origin;
    rc = check_use(rc, stream);
    if (!rc && own != event->captured) {
        rc = !event->captured ? CAPTURE_ISOLATION
             : own            ? CAPTURE_MERGE
             : is_default(stream) ? CAPTURE_IMPLICIT
                                  : SUCCESS;
        if (rc && own)
            invalidate(own);
        if (rc && event->captured)
            invalidate(event->captured);
        if (!rc) {
            stream->capture = CAPTURING;
            stream->origin = event->captured;
        }
    }
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
    rc = check_use(rc, stream);
    if (!rc && event->owner.context != context_of_stream(stream))
        rc = INVALID_HANDLE;
    if (!rc) {
        event->recorded = 1;
        event->captured = is_default(stream) ? NULL : stream->origin;
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
    int rc = check_event(enter(function), event);
    if (!rc && event->captured) {
        invalidate(event->captured);
        rc = CAPTURED_EVENT;
    }
    return leave(function, check_unsafe(rc, NULL), "event=%#llx", HANDLE(event));
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
