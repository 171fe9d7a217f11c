/* The doorbell: a worker that found its rings empty sleeps, and readers that push wake it, with no lost wake-up.
 *
 *   waiter:   flag = 1; full fence; look at every ring again; wait
 *   producer: publish; full fence; look at the flag; wake
 *
 * Spin's memory is sequentially consistent, so the one reordering that matters here, a load that passes an older store of the
 * same thread, is made explicit: each thread's stores go through a FIFO buffer (x86-TSO) that a process of its own drains
 * when it likes. A full fence waits until the thread's buffer is empty. No thread loads a word that it stores, so nothing
 * need be forwarded from a buffer. The eventfd is a kernel object: a system call on it is one step, and does not wait for
 * the buffer (a kernel entry is not a fence by contract).
 *
 * A lost wake-up is a state where the waiter sleeps and nobody will move: pan's "invalid end state". */

#ifndef PRODUCERS
#define PRODUCERS 2 /* rings, one a producer, that one doorbell serves: 1 or 2 */
#endif
#ifndef ITEMS
#define ITEMS 2 /* items that each producer pushes */
#endif
#ifndef OTHER_WAKES
#define OTHER_WAKES 1 /* waits that end for another reason (a deadline, another descriptor); few, or they hide a lost wake-up */
#endif
#define STORES 2 /* entries of a store buffer */

#define SLEEPS 1 /* the waiter waits and the eventfd is not signalled */
#define WAKES 2 /* a producer sees the flag and signals */
#define SECOND_LOOK_FINDS 3 /* the look after the fence finds an item */
#define SPURIOUS_WAKE 4 /* the waiter was woken and the rings are empty */
#ifndef REACH
#define REACH 0
#endif

/* Memory. Word p is the tail of producer p's ring, the last word is the waiter's flag. */
#define FLAG PRODUCERS
byte memory[PRODUCERS + 1];
bool event; /* the eventfd's count is above zero */

/* Store buffers: thread p is a producer, the last one the waiter. */
#define WAITER PRODUCERS
chan buffer[PRODUCERS + 1] = [STORES] of { byte, byte };

inline store(thread, word, value)
{
	buffer[thread] ! word, value
}

inline full_fence(thread)
{
	empty(buffer[thread])
}

proctype drain(byte thread)
{
	byte word, value;

end:	do
	:: atomic { buffer[thread] ? word, value -> memory[word] = value; word = 0; value = 0 }
	od
}

proctype producer(byte self)
{
	byte tail, flag;

	do
	:: tail < ITEMS ->
		tail++;
		store(self, self, tail); /* publish (release) */
#ifndef MUT_NO_FENCE_PRODUCER
		full_fence(self);
#endif
		flag = memory[FLAG];
		if
		:: flag ->
			assert(REACH != WAKES);
			event = true
		:: else
		fi;
		flag = 0
	:: else -> break
	od
}

/* Takes what is in the first rings. */
inline look(rings)
{
	d_step { found = false; ring = 0 };
	do
	:: ring < rings ->
		tail = memory[ring]; /* acquire */
		d_step {
			if
			:: tail != head[ring] ->
				taken = taken + tail - head[ring];
				head[ring] = tail;
				found = true
			:: else
			fi;
			tail = 0;
			ring++
		}
	:: else -> break
	od;
	ring = 0
}

/* After the second look found something: doorbell_disarm or doorbell_lower, both are right. */
inline end_wait()
{
	store(WAITER, FLAG, 0);
	if
	:: event = false
	:: skip
	fi
}

proctype waiter()
{
	byte head[PRODUCERS]; /* private cursors */
	byte tail, ring, taken;
	byte other_wakes = OTHER_WAKES;
	bool found, woken;

	do
	:: taken == PRODUCERS * ITEMS -> break
	:: else ->
		look(PRODUCERS);
		if
		:: found -> woken = false; goto again
		:: else ->
			assert(REACH != SPURIOUS_WAKE || !woken);
			woken = false
		fi;

		store(WAITER, FLAG, 1);
#ifndef MUT_NO_FENCE_CONSUMER
		full_fence(WAITER);
#endif
#ifndef MUT_NO_LOOK_AGAIN
#ifdef MUT_LOOK_AGAIN_AT_ONE_RING
		look(1);
#else
		look(PRODUCERS);
#endif
		if
		:: found ->
			assert(REACH != SECOND_LOOK_FINDS);
			end_wait();
			goto again
		:: else
		fi;
#endif
		assert(REACH != SLEEPS || event);
		if /* wait */
		:: event -> store(WAITER, FLAG, 0); event = false
		:: other_wakes > 0 -> other_wakes--; store(WAITER, FLAG, 0) /* the eventfd is not read */
		fi;
		woken = true;
again:
		skip
	od
}

init {
	byte thread;

	atomic {
		do
		:: thread < PRODUCERS ->
			run producer(thread);
			run drain(thread);
			thread++
		:: else -> break
		od;
		run waiter();
		run drain(WAITER)
	}
}
