/* The SPSC ring: private cursors, a cached copy of the other side's, one published word a side, free-running counters.
 *
 * The counters are bytes that start just below 256, so that they wrap with entries in flight; the real ones are 64 bits
 * wide and the same argument holds. An entry's content is its sequence number. A slot is filled in two steps, so that a
 * consumer that reads too early sees a torn entry. A side that can do nothing waits for the other side's word to change, so a
 * ring that wrongly looks full or empty for ever is pan's "invalid end state". */

#ifndef START
#define START 254 /* first value of the counters */
#endif
#ifndef CAPACITY
#define CAPACITY 4 /* slots, a power of two */
#endif
#ifndef ITEMS
#define ITEMS 9
#endif
#define FREE 254
#define TORN 255
#define DISTANCE(from, to) (((to) - (from)) & 255) /* unsigned difference of two counters */

#define FULL 1 /* the producer finds the ring full */
#define EMPTY 2 /* the consumer finds the ring empty */
#define WRAPPED_IN_FLIGHT 3 /* the tail has wrapped, the head has not, and the ring is full */
#define BATCH_ROUND_THE_END 4 /* one commit covers the last slot and the first */
#define STALE_COPY 5 /* the consumer's copy of the tail is behind by more than a batch */
#ifndef REACH
#define REACH 0
#endif

byte head_pub = START; /* written by the consumer, in release() */
byte tail_pub = START; /* written by the producer, in commit() */
byte slot[CAPACITY] = FREE;

bool slot_free = true; /* the producer fills only released slots */
bool content_right = true; /* the consumer reads whole entries, each once, in order */

active proctype producer()
{
	byte tail = START, head_seen = START; /* private */
	byte sequence, space, n;

	do
	:: sequence == ITEMS -> break
	:: else ->
		/* reserve(n): 1 or 2 entries. The copy is reloaded only where it says that there is too little room. */
		if
		:: n = 1
		:: ITEMS - sequence >= 2 -> n = 2
		fi;
#if defined(MUT_COMPARE_LESS_PRODUCER)
		if
		:: tail + n <= ((head_seen + CAPACITY) & 255)
		:: else -> head_seen = head_pub
		fi;
		space = (tail + n <= ((head_seen + CAPACITY) & 255) -> n : 0);
#else
#ifdef MUT_ONE_TOO_MANY
#define SLOTS (CAPACITY + 1)
#else
#define SLOTS CAPACITY
#endif
		if
		:: SLOTS - DISTANCE(head_seen, tail) < n -> head_seen = head_pub /* acquire */
		:: else
		fi;
		space = SLOTS - DISTANCE(head_seen, tail);
#endif
		if
		:: space == 0 ->
			assert(REACH != FULL);
			assert(REACH != WRAPPED_IN_FLIGHT || !(head_seen > tail));
			n = 0;
			head_pub != head_seen /* wait for the consumer */
		:: space > 0 && space < n -> n = space
		:: else
		fi;
		assert(REACH != BATCH_ROUND_THE_END || n < 2 || (tail & (CAPACITY - 1)) != CAPACITY - 1);
		space = 0;
#ifdef MUT_COMMIT_BEFORE_FILL
		tail_pub = (tail + n) & 255;
#endif
		do
		:: n > 0 ->
			d_step {
				slot_free = slot[tail & (CAPACITY - 1)] == FREE;
				assert(slot_free);
				slot[tail & (CAPACITY - 1)] = TORN
			};
			d_step {
				slot[tail & (CAPACITY - 1)] = sequence;
				sequence++;
				tail = (tail + 1) & 255;
				n--
			}
		:: else -> break
		od;
#ifndef MUT_COMMIT_BEFORE_FILL
		tail_pub = tail /* commit: release */
#endif
	od
}

active proctype consumer()
{
	byte head = START, tail_seen = START; /* private */
	byte expected, n;

	do
	:: expected == ITEMS -> break
	:: else ->
		/* peek(n): up to 2 entries. The copy is reloaded only where it says that the ring is empty. */
#ifdef MUT_COMPARE_LESS_CONSUMER
#define HAS_ENTRIES (head < tail_seen)
#else
#define HAS_ENTRIES (DISTANCE(head, tail_seen) > 0)
#endif
		if
		:: HAS_ENTRIES
		:: else -> tail_seen = tail_pub /* acquire */
		fi;
		if
		:: HAS_ENTRIES ->
			assert(REACH != STALE_COPY || DISTANCE(tail_seen, tail_pub) <= 2);
			if
			:: n = 1
			:: DISTANCE(head, tail_seen) >= 2 -> n = 2
			fi
		:: else ->
			assert(REACH != EMPTY);
			tail_pub != tail_seen /* wait for the producer */
		fi;
#ifdef MUT_RELEASE_BEFORE_READ
		head_pub = (head + n) & 255;
#endif
		do
		:: n > 0 -> d_step {
			content_right = slot[head & (CAPACITY - 1)] == expected;
			assert(content_right);
			slot[head & (CAPACITY - 1)] = FREE;
			expected++;
			head = (head + 1) & 255;
			n--
		}
		:: else -> break
		od;
#ifndef MUT_RELEASE_BEFORE_READ
		head_pub = head /* release */
#endif
	od
}
