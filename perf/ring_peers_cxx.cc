/* perf/ring: the rings that are C++ headers, Boost.Lockfree's and moodycamel's. */
#include "ring_subject.h"

#if __has_include(<boost/lockfree/spsc_queue.hpp>)
#define HAVE_BOOST
#include <boost/lockfree/spsc_queue.hpp>
#include <boost/version.hpp>
#endif
#if __has_include(<readerwriterqueue/readerwriterqueue.h>)
#define HAVE_MOODYCAMEL
#include <readerwriterqueue/readerwriterqueue.h>
#elif __has_include(<readerwriterqueue.h>)
#define HAVE_MOODYCAMEL
#include <readerwriterqueue.h>
#endif

#include <cerrno>
#include <new>

/* The members of a subject in their order, since C++17 has no designated initialisers. */
#define UNAVAILABLE(name, why)                                                                               \
    {                                                                                                        \
        name, nullptr, why, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr                    \
    }

namespace
{

/* Everything but push, pop and depth is the same for every queue. */
template <typename Queue> struct adapter {
    static int create(void *memory)
    {
        static_assert(sizeof(typename Queue::type) <= RING_SUBJECT_ROOM, "room");
        try {
            Queue::make(memory);
        } catch (const std::bad_alloc &) {
            return -ENOMEM;
        }
        return 0;
    }

    static void destroy(void *memory)
    {
        using type = typename Queue::type;
        static_cast<type *>(memory)->~type();
    }

    static void produce(void *memory, ring_run *run)
    {
        ring_produce_loop(run, memory, Queue::push);
    }

    static void consume(void *memory, ring_run *run)
    {
        ring_consume_loop(run, memory, Queue::pop, Queue::depth);
    }

    static void ping(void *there, void *back, ring_run *run)
    {
        ring_ping_loop(run, there, Queue::push, back, Queue::pop);
    }

    static void pong(void *there, void *back, ring_run *run)
    {
        ring_pong_loop(run, there, Queue::pop, back, Queue::push);
    }
};

#ifdef HAVE_BOOST
/* The capacity is a constant, so the entries lie inside the object and it holds no pointer. */
struct boost_queue {
    using type = boost::lockfree::spsc_queue<ring_entry, boost::lockfree::capacity<RING_SLOTS - 1>>;

    static void make(void *memory)
    {
        new (memory) type;
    }

    RING_INLINE uint32_t push(void *handle, uint64_t first, uint32_t count)
    {
        ring_entry entries[RING_BATCH_MAX];
        for (uint32_t i = 0; i < count; i++)
            ring_entry_fill(&entries[i], first + i);
        return static_cast<uint32_t>(static_cast<type *>(handle)->push(entries, count));
    }

    RING_INLINE uint32_t pop(void *handle, uint64_t first, uint32_t count, uint64_t *wrong)
    {
        ring_entry entries[RING_BATCH_MAX];
        uint32_t ready = static_cast<uint32_t>(static_cast<type *>(handle)->pop(entries, count));
        for (uint32_t i = 0; i < ready; i++)
            *wrong |= ring_entry_wrong(&entries[i], first + i);
        return ready;
    }

    RING_INLINE uint64_t depth(void *handle)
    {
        return static_cast<type *>(handle)->read_available();
    }
};
#endif

#ifdef HAVE_MOODYCAMEL
/* No call for a batch: a batch is a loop of single entries. try_enqueue never allocates. */
struct moodycamel_queue {
    using type = moodycamel::ReaderWriterQueue<ring_entry>;

    static void make(void *memory)
    {
        new (memory) type(RING_SLOTS);
    }

    RING_INLINE uint32_t push(void *handle, uint64_t first, uint32_t count)
    {
        uint32_t done = 0;
        for (; done < count; done++) {
            ring_entry entry;
            ring_entry_fill(&entry, first + done);
            if (!static_cast<type *>(handle)->try_enqueue(entry))
                break;
        }
        return done;
    }

    RING_INLINE uint32_t pop(void *handle, uint64_t first, uint32_t count, uint64_t *wrong)
    {
        uint32_t done = 0;
        for (; done < count; done++) {
            ring_entry entry;
            if (!static_cast<type *>(handle)->try_dequeue(entry))
                break;
            *wrong |= ring_entry_wrong(&entry, first + done);
        }
        return done;
    }

    RING_INLINE uint64_t depth(void *handle)
    {
        return static_cast<type *>(handle)->size_approx();
    }
};
#endif

} // namespace

extern "C" {

#ifdef HAVE_BOOST
const struct ring_subject ring_subject_boost = {
    "boost_spsc_queue",
    "Boost " BOOST_LIB_VERSION ", fixed capacity, range calls, which copy",
    nullptr,
    nullptr,
    adapter<boost_queue>::create,
    adapter<boost_queue>::destroy,
    adapter<boost_queue>::produce,
    adapter<boost_queue>::consume,
    adapter<boost_queue>::ping,
    adapter<boost_queue>::pong,
};
#else
const struct ring_subject ring_subject_boost =
    UNAVAILABLE("boost_spsc_queue", "built without Boost.Lockfree (Debian: libboost-dev)");
#endif

#ifdef HAVE_MOODYCAMEL
const struct ring_subject ring_subject_moodycamel = {
    "moodycamel",
    "ReaderWriterQueue, try_ calls, singles in a loop",
    nullptr,
    "its blocks are heap memory linked by pointers, which mean nothing in another process",
    adapter<moodycamel_queue>::create,
    adapter<moodycamel_queue>::destroy,
    adapter<moodycamel_queue>::produce,
    adapter<moodycamel_queue>::consume,
    adapter<moodycamel_queue>::ping,
    adapter<moodycamel_queue>::pong,
};
#else
const struct ring_subject ring_subject_moodycamel =
    UNAVAILABLE("moodycamel", "built without readerwriterqueue (Debian: libreaderwriterqueue-dev)");
#endif
}
