// __cxa_thread_atexit as the C++ runtime had it before the C library did the work (glibc 2.18):
// a list per thread under a pthread key, and one call of atexit for the main thread. That call
// takes its place among the destructors of static objects, instead of before all of them.

#include <cstdlib>
#include <pthread.h>

struct Entry {
    void (*destructor)(void *);
    void *object;
    Entry *next;
};

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void run_list(void *list) {
    for (Entry *entry = static_cast<Entry *>(list); entry;) {
        Entry *done = entry;
        entry->destructor(entry->object);
        entry = entry->next;
        delete done;
    }
}

static void run_own() {
    void *list = pthread_getspecific(key);
    pthread_setspecific(key, nullptr);
    run_list(list);
}

static void make_key() {
    pthread_key_create(&key, run_list);
    std::atexit(run_own);
}

extern "C" {
int __cxa_thread_atexit(void (*destructor)(void *), void *object, void *) {
    pthread_once(&once, make_key);
    Entry *next = static_cast<Entry *>(pthread_getspecific(key));
    pthread_setspecific(key, new Entry{destructor, object, next});
    return 0;
}

int api_version() { return 7; }
}
